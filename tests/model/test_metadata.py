"""Times as the API writes them, and `namespace/name`."""

import pytest
from dra_extender.model.metadata import seconds_of, split_key, time_text


def test_time_is_written_as_the_api_does_and_read_again() -> None:
    assert time_text(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert seconds_of(time_text(1_700_000_000.9)) == 1_700_000_000


@pytest.mark.parametrize("seconds", [1e30, float("inf"), -1e15])
def test_time_that_no_calendar_has_is_written_as_a_number_and_is_none_when_read(seconds: float) -> None:
    assert time_text(seconds) == f"at {seconds:.0f} s"
    assert seconds_of(time_text(seconds)) is None


@pytest.mark.parametrize(
    ("key", "parts"),
    [("ml/train", ("ml", "train")), ("train", ("default", "train")), ("ml/", ("ml", "")), ("/train", ("", "train"))],
)
def test_key_has_the_namespace_that_is_given_where_it_names_none(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key, "default") == parts
