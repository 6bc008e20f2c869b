"""Lines of a terminal: nothing is cut, and what no calendar has is still written."""

import pytest
from dra_extender.inspection.lines import age_text, beside_label, clock_text, wrapped
from dra_extender.model.api_json import number_of


def test_long_text_is_wrapped_below_itself_and_a_long_word_is_not_cut() -> None:
    word = "x" * 40
    assert wrapped(f"one two {word} three", "  ", 12) == ["  one two", f"      {word}", "      three"]


def test_label_stands_before_the_first_line_alone_and_an_empty_text_keeps_it() -> None:
    assert list(beside_label("2 nodes  ", ["one two three", "four"], 18)) == [
        "2 nodes  one two",
        "         three",
        "         four",
    ]
    assert list(beside_label("2 nodes  ", [""], 18)) == ["2 nodes"]


@pytest.mark.parametrize(
    ("count", "noun", "text"), [(1, "node", "1 node"), (0, "pod", "0 pods"), (2, "class", "2 classes")]
)
def test_number_has_the_noun_that_agrees(count: int, noun: str, text: str) -> None:
    assert number_of(count, noun) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (61, "1m"), (7_200, "2h"), (90_000 * 2, "2d")])
def test_age_is_written_in_its_largest_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_time_that_no_calendar_has_is_far_away() -> None:
    assert clock_text(0) == "00:00:00Z"
    assert clock_text(1e30) == "further notice"
