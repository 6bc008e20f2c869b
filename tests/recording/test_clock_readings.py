"""What clocks showed is noted in whole ticks, equal readings together, and handed out again one by one."""

import pytest
from dra_extender.recording.clock_readings import TICKS_PER_SECOND, ClockKind, ReadingsNoted, ReadingsPlayed
from hypothesis import given
from hypothesis import strategies as st

READS = st.lists(
    st.lists(st.tuples(st.sampled_from(ClockKind), st.floats(0, 2e9)), max_size=8),
    max_size=6,
)


@given(READS)
def test_every_reading_is_handed_out_as_its_reader_saw_it(steps: list[list[tuple[ClockKind, float]]]) -> None:
    noted, played = ReadingsNoted(), ReadingsPlayed()
    for step in steps:
        seen = [noted.note(clock, seconds) for clock, seconds in step]
        assert all(0 <= seconds - shown < 1 / TICKS_PER_SECOND for shown, (_, seconds) in zip(seen, step, strict=True))
        assert played.use(played.decoded(noted.take())) == 0
        assert [played.next(clock) for clock, _ in step] == seen


def test_many_equal_readings_take_three_numbers() -> None:
    noted = ReadingsNoted()
    for number in range(1000):
        noted.note(ClockKind.MONOTONIC, 5.0 + number * 1e-9)
    assert noted.take() == [ClockKind.MONOTONIC, 5 * TICKS_PER_SECOND, 1000]
    assert noted.take() == []


def test_reading_of_another_clock_or_beyond_the_last_is_none_and_those_left_are_counted() -> None:
    noted, played = ReadingsNoted(), ReadingsPlayed()
    for clock in (ClockKind.WALL, ClockKind.WALL, ClockKind.LOOP):
        noted.note(clock, 3.0)
    played.use(played.decoded(noted.take()))
    assert played.next(ClockKind.LOOP) is None
    assert played.next(ClockKind.WALL) == 3.0
    assert played.use(None) == 2
    assert played.next(ClockKind.WALL) is None


@pytest.mark.parametrize("readings", [[0], [3, 1, 1], [-1, 1, 1], [0, 1, 0], [0, 1, -5]])
def test_numbers_that_are_no_readings_are_refused(readings: list[int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ReadingsPlayed().decoded(readings)
