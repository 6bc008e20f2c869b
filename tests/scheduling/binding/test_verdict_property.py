"""What filter offers the check after the write accepts, in random histories, and what breaks a rule it finds.

The histories are republished slices, policies, foreign allocations, shares, and allocations of this program for which the state
was another one.  An oracle that shares nothing with the program judges beside it; mutants of the rule do not survive.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from dra_extender.allocator import picks as attempt
from dra_extender.allocator import placement as results
from dra_extender.allocator.picks import Exclusion, SearchState
from dra_extender.allocator.rules import capacity, verdict
from dra_extender.allocator.rules import compatibility_groups as compatibility
from dra_extender.allocator.rules import held_devices as occupancy
from dra_extender.allocator.rules.counters import CounterTable
from dra_extender.allocator.rules.verdict import Violation
from dra_extender.model.allocation import DeviceHolding
from dra_extender.scheduling.binding import conflicts as overlap
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scheduling.verdict_histories import KINDS, History, Step, first_failure, without_groups

STEPS: Final = 30
SEEDS: Final = 150
RARE: Final = (134, 41, 29, 21)
"""Seeds of histories in which the mutants show that others seldom find."""
numbers = st.integers(0, 60)
steps = st.tuples(st.integers(0, KINDS - 1), numbers, numbers, numbers)


@examples(60)
@given(st.lists(steps, max_size=40))
def test_what_filter_offers_is_accepted_and_every_violation_is_found(history: list[Step]) -> None:
    History().play(history)


@examples(25)
@given(st.lists(steps, max_size=40))
def test_what_filter_offers_is_accepted_while_groups_are_off(history: list[Step]) -> None:
    without_groups().play(history)


def test_random_histories_agree_with_the_oracle_and_reach_every_judgement() -> None:
    counts: dict[str, int] = {}

    def new() -> History:
        history = History()
        history.judged = counts
        return history

    assert first_failure(range(SEEDS), STEPS, new) == ""
    judgements = ("offered: yes", "offered: no", "accepted: yes", "overlaps: yes", "overlaps: no", "contradictions: no")
    assert all(counts[each] > SEEDS / 2 for each in judgements), counts


Patch = Callable[[pytest.MonkeyPatch], None]


def replacing(owner: Any, name: str, value: Any) -> Patch:
    return lambda patch: patch.setattr(owner, name, value)


def pairwise(members: Iterable[Any]) -> bool:
    found = [frozenset(groups) for groups in members]
    return all(not (one or other) or bool(one & other) for one in found for other in found)


def ignoring_none(members: Iterable[Any]) -> bool:
    found = [frozenset(groups) for groups in members if groups]
    return not found or bool(frozenset.intersection(*found))


def without_snapshots(published: Any, usage: Any) -> Any:
    bare = partial(msgspec.structs.replace, consumption=None, groups=None)
    return occupancy.held_consumption(published, {name: tuple(map(bare, held)) for name, held in usage.items()})


def without_vanished(published: Any, usage: Any) -> Any:
    names = {device.name for each in published for device in each.devices}
    return occupancy.held_consumption(published, {name: held for name, held in usage.items() if name in names})


def first_kind(kinds: set[str]) -> Callable[..., Violation | None]:
    def judge(*args: Any, **more: Any) -> Violation | None:
        found = verdict.verdict(*args, **more)
        return found if found is not None and found.kind in kinds else None

    return judge


DRAW: Final = SearchState._draw


def joins_again(self: SearchState, wanted: Any, location: int) -> Exclusion:
    pools, sharing = self.node_view.pools, self.node_view.sharing
    further = sharing.is_shareable(location) and (location in self.shares or sharing.is_shared(location))
    exclusion = DRAW(self, wanted, location)
    groups = self.tables(pools.views[location].pool).groups
    if exclusion or not further or groups is None:
        return exclusion
    joined = groups.join(pools.devices[location].consumes_counters, self.trail, admin=wanted.admin)
    return Exclusion.NONE if joined else Exclusion.GROUPS


def admitting(states: Any, entry: Any) -> bool:
    return entry.counter_set not in states or states[entry.counter_set] is None or not entry.compatibility_groups


def admin_counts(holdings: Iterable[DeviceHolding]) -> tuple[DeviceHolding, ...]:
    return tuple(holdings)


KINDS_OF_BREACH: Final = {verdict.DEVICE, verdict.CAPACITY, verdict.GROUPS, verdict.COUNTERS}
MUTANTS: Final[dict[str, Patch]] = {
    "the search keeps the order of members": replacing(
        attempt, "CompatibilityTable", lambda held, **_: compatibility.CompatibilityTable(held, in_order=True)
    ),
    "the search admits no device with groups to a set with groups": replacing(compatibility, "admits", admitting),
    "the search asks a further share for groups": replacing(SearchState, "_draw", joins_again),
    "the search never asks for counters": replacing(CounterTable, "reserve", lambda *_: True),
    "the search never asks for capacity": replacing(capacity.Sharing, "exhausted", lambda *_: None),
    "the search ignores snapshots": replacing(attempt, "held_consumption", without_snapshots),
    "a further share freezes the slice": replacing(results, "frozen_view", lambda *_: None),
    "the verdict compares groups in pairs": replacing(verdict, "are_compatible", pairwise),
    "the verdict ignores devices without groups": replacing(verdict, "are_compatible", ignoring_none),
    "the verdict ignores snapshots": replacing(verdict, "held_consumption", without_snapshots),
    "the verdict ignores devices that are not published": replacing(verdict, "held_consumption", without_vanished),
    "the verdict takes a further share for a new member": replacing(verdict, "_without_admin_access", lambda _: ()),
    "the verdict counts admin access": replacing(verdict, "_without_admin_access", admin_counts),
    "the verdict accepts everything": replacing(overlap, "verdict", lambda *_: None),
    "the verdict refuses everything": replacing(overlap, "verdict", lambda *_: Violation(verdict.DEVICE, "d0")),
    **{
        f"the verdict forgets {kind}": replacing(overlap, "verdict", first_kind(KINDS_OF_BREACH - {kind}))
        for kind in sorted(KINDS_OF_BREACH)
    },
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_mutants_of_the_rule_do_not_survive(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert first_failure((*RARE, *range(SEEDS)), STEPS)
