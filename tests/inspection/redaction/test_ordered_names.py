"""Other names: in the order of the names, as different, and around those that stay."""

from random import Random

import pytest
from dra_extender.inspection.redaction.names import OrderedNames, UnorderableNameError
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sets(st.text("ab0-.Z", max_size=4), max_size=30)


@given(NAMES, st.integers())
def test_other_names_are_in_the_order_of_the_names_and_have_nothing_of_them(names: set[str], seed: int) -> None:
    ordered = OrderedNames()
    for each in names:
        ordered.of(each)
    ordered.resolve(Random(seed))
    others = [ordered.of(each) for each in sorted(names)]
    assert others == sorted(set(others))
    assert all(each.startswith("r") and len(each) == 12 for each in others if each)


@given(NAMES, st.sets(st.text("ab0-.Z", min_size=1, max_size=4), max_size=4))
def test_names_that_stay_stay_in_the_order_of_all(names: set[str], stay: set[str]) -> None:
    ordered = OrderedNames()
    ordered.keep(*stay)
    for each in names | stay:
        ordered.of(each)
    try:
        ordered.resolve(Random(1))
    except UnorderableNameError:
        return
    others = [ordered.of(each) for each in sorted(names | stay)]
    assert others == sorted(set(others))
    assert all(ordered.of(each) == each for each in stay)


def test_names_without_room_between_them_are_refused_with_both() -> None:
    ordered = OrderedNames()
    ordered.keep("a", "a+")
    for each in ("a", "a!", "a+"):
        ordered.of(each)
    with pytest.raises(UnorderableNameError, match=r"'a' and 'a\+' have to stay"):
        ordered.resolve(Random(1))


def test_two_resolutions_have_other_names() -> None:
    """Nobody can tell from two files which names are one."""
    drawn = []
    for seed in range(2):
        ordered = OrderedNames()
        ordered.of("a")
        ordered.resolve(Random(seed))
        drawn.append(ordered.of("a"))
    assert drawn[0] != drawn[1]
