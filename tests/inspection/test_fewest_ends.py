"""The fewest ends are as few as all sets together show, as long as every set may be tried."""

from collections.abc import Sequence
from itertools import chain, combinations

from dra_extender.inspection.fewest_ends import fewest_ends, irreducible
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples

AMOUNTS = st.lists(st.integers(0, 9), max_size=7)


@examples(300)
@given(leaving=AMOUNTS, staying=AMOUNTS, data=st.data())
def test_ends_are_the_fewest_of_all_sets(leaving: list[int], staying: list[int], data: st.DataObject) -> None:
    amounts = [*leaving, *staying]
    needed = data.draw(st.integers(1, max(1, sum(amounts))))
    forbidden = data.draw(st.sets(st.sampled_from(range(len(amounts))))) if amounts else set()
    goes, stays = range(len(leaving)), range(len(leaving), len(amounts))

    def suffices(some: Sequence[int]) -> bool:
        return sum(amounts[each] for each in some) >= needed

    if not suffices([*goes, *stays]):
        return
    awaited, ended = fewest_ends(goes, stays, lambda each: each not in forbidden, suffices)
    assert suffices([*awaited, *ended])
    assert all(not suffices([other for other in (*awaited, *ended) if other != each]) for each in (*awaited, *ended))
    allowed = [each for each in stays if each not in forbidden]
    among = allowed if suffices([*goes, *allowed]) else stays
    sets = chain.from_iterable(combinations(among, size) for size in range(len(among) + 1))
    assert len(ended) == len(next(each for each in sets if suffices([*goes, *each])))


def test_preferred_ones_stay_where_any_of_them_is_enough() -> None:
    assert irreducible(["low", "middle", "high"], lambda some: len(some) > 1) == ["low", "middle"]
    assert fewest_ends([], ["low", "middle", "high"], lambda _: True, bool) == ([], ["low"])


def test_answer_suffices_where_nothing_more_may_be_tried() -> None:
    assert fewest_ends(["a"], ["b", "c"], lambda _: True, lambda _: False) == (["a"], ["b", "c"])
