import pytest
from dra_extender.cel.values.times import SECOND, parse_go_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("11m0s", 660.0), ("1h1m1.5s", 3661.5), ("300ms", 0.3), ("0", 0.0), ("-2s", -2.0), (".5s", 0.5)],
)
def test_durations_are_read_as_go_does(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5s ", "5d", "1s2", "--1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 5s or 11m0s"):
        parse_go_duration(text)
