from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.retry import LONGEST, SHORTEST, Backoff
from dra_extender.kube.watch.list_watch import lines
from hypothesis import given
from hypothesis import strategies as st


async def stream(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=20))
async def test_lines_do_not_depend_on_where_the_stream_is_cut(data: bytes, cuts: list[int]) -> None:
    """What follows the last line break never comes out, and empty lines neither."""
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    whole = [line for line in data.split(b"\n")[:-1] if line and not line.isspace()]
    assert [line async for line in lines(stream(pieces))] == whole


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ApiCallError, match="longer than 100 bytes"):
        [line async for line in lines(stream([b"x" * 30] * 4), longest=100)]
    assert [line async for line in lines(stream([b"x" * 30, b"\n"] * 4), longest=100)] == [b"x" * 30] * 4


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2000), st.floats(0, 100))
def test_a_pause_is_within_its_limits_and_never_shorter_than_asked_for(
    chance: float, failed: int, asked: float
) -> None:
    backoff = Backoff(lambda: chance)
    backoff.failures = failed
    pause = backoff.next(asked)
    assert max(asked, SHORTEST) <= pause <= max(asked, LONGEST)
