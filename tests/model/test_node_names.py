import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.base import ModelError
from app.model.node_names import NodeNames, turned

plain = st.text(st.characters(codec="utf-8", exclude_characters='"\\,', exclude_categories=["Cc"]))
lists = st.lists(plain, min_size=1, max_size=300)


def names_of(names: list[str]) -> NodeNames:
    read = NodeNames.read(msgspec.json.encode(names))
    assert read is not None
    return read


@given(lists)
def test_they_are_what_was_sent(names: list[str]) -> None:
    assert list(names_of(names)) == names
    assert len(names_of(names)) == len(names)
    assert (names_of(names)[0], names_of(names)[1:]) == (names[0], names[1:])


@given(lists, st.integers(0, 2**32))
def test_turning_leaves_nothing_out_and_keeps_the_order(names: list[str], number: int) -> None:
    for given_names in (names, names_of(names)):
        found = list(turned(given_names, number))
        assert any(found == names[start:] + names[:start] for start in range(len(names)))


@given(st.integers(0, 2**32))
def test_long_lists_are_decoded_piece_by_piece(number: int) -> None:
    names = [f"gpu-pool-a-{index:05}" for index in range(2_000)]
    found = list(turned(names_of(names), number))
    start = names.index(found[0])
    assert found == names[start:] + names[:start]


@pytest.mark.parametrize(
    "sent",
    ["null", "[]", "5", '["a", "b\\n"]', '[ "a"]', '["a",5,"b"]', '["",","]', '[","]', '{"a":"b"}', '"a"', '[["a"]]'],
)
def test_anything_unusual_is_left_to_others(sent: str) -> None:
    assert NodeNames.read(sent.encode()) is None


@given(lists)
def test_spaces_between_names_do_no_harm(names: list[str]) -> None:
    read = NodeNames.read(json.dumps(names, ensure_ascii=False).encode())
    assert read is not None
    assert sorted(read.turned(7)) == sorted(names)


def test_what_is_too_long_for_a_name_is_refused_when_it_is_looked_at() -> None:
    read = NodeNames.read(b'["a","%b","b"]' % (b"x" * 254))
    assert read is not None
    with pytest.raises(ModelError, match="names of nodes"):
        list(read)
    with pytest.raises(ModelError, match="names of nodes"):
        list(read.turned(3))


def test_no_names_turn_into_none() -> None:
    assert list(turned((), 5)) == []


@given(st.lists(st.text('a,"', max_size=3), max_size=5), st.booleans(), st.integers(0, 40))
def test_names_with_commas_or_quotes_are_read_as_they_are_or_left_to_others(
    names: list[str], spaced: bool, number: int
) -> None:
    read = NodeNames.read(json.dumps(names, separators=(", " if spaced else ",", ":")).encode())
    assert read is None or sorted(read.turned(number)) == sorted(names)
    assert read is None or list(read) == names
