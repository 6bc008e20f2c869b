"""Collections of cyclic garbage are bounded by number of objects, and find what requests leave behind."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from dra_extender.runtime.garbage import NEW_OBJECTS, SURVIVING_OBJECTS, collect_if_due, collected_in_short, freeze


class Knot:
    """Refers to itself: only the cyclic collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def no_collection_by_itself() -> Iterator[None]:
    with collected_in_short():
        gc.collect()
        yield


def _kept_objects(number: int) -> list[list[object]]:
    return [[] for _ in range(number)]


def test_nothing_is_collected_while_few_objects_are_new() -> None:
    kept = _kept_objects(NEW_OBJECTS // 2)
    assert collect_if_due() is None
    assert len(kept) == NEW_OBJECTS // 2


def test_a_cycle_among_new_objects_is_freed_at_the_next_look() -> None:
    freed = weakref.ref(Knot())
    kept = _kept_objects(NEW_OBJECTS + 1000)
    assert freed() is not None
    assert collect_if_due() == 0
    assert freed() is None
    assert kept


def test_a_cycle_that_survived_one_look_is_freed_when_enough_have() -> None:
    knot = Knot()
    freed = weakref.ref(knot)
    kept = [_kept_objects(NEW_OBJECTS + 1000)]
    assert collect_if_due() == 0
    del knot
    collected: list[int | None] = []
    while len(collected) <= SURVIVING_OBJECTS // NEW_OBJECTS + 1 and 1 not in collected:
        assert freed() is not None
        kept.append(_kept_objects(NEW_OBJECTS + 1000))
        collected.append(collect_if_due())
    assert collected[-1] == 1
    assert freed() is None


def test_before_a_freeze_what_is_new_is_collected_and_what_was_old_is_not_visited() -> None:
    old = Knot()
    gc.collect()
    kept, freed = weakref.ref(old), weakref.ref(Knot())
    del old
    freeze()
    assert freed() is None
    assert kept() is not None


def test_what_was_frozen_and_what_survived_twice_is_not_visited_again() -> None:
    frozen = Knot()
    freeze()
    before = gc.get_freeze_count()
    old = _kept_objects(SURVIVING_OBJECTS + NEW_OBJECTS)
    assert collect_if_due() == 0
    more = _kept_objects(NEW_OBJECTS + 1000)
    assert collect_if_due() == 1
    new = _kept_objects(NEW_OBJECTS + 1000)
    assert collect_if_due() == 0
    assert gc.get_freeze_count() == before
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not young & {id(each) for each in old + more}
    assert id(new[0]) in young
    assert frozen.itself is frozen
