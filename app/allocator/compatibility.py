"""Compatibility groups (KEP-5963): which devices may be allocated together on one counter set.

Each (driver, pool, counter set) is in one of three states:

    empty       no member yet                  admits anything
    ungrouped   its members declare no groups  admits only devices without groups
    grouped     the rolling intersection       admits devices that share a group with it

Members are folded in one after the other.  The intersection is stricter than comparing pairs: after {a,b} and {b,c}, {a,c} is
refused although it overlaps both.  State that contradicts itself is kept as it is: an empty intersection admits nothing.
"""

from collections.abc import Iterable, Mapping

from app.allocator.undo import Trail
from app.model.device import CounterConsumption

GroupState = frozenset[str] | None
"""Of a counter set that has members: the rolling intersection, or None for "ungrouped".  An empty set has no entry at all."""


def admits(states: Mapping[str, GroupState], entry: CounterConsumption) -> bool:
    """Whether a device with this consumption may join the members of its counter set."""
    if entry.counter_set not in states:
        return True
    state = states[entry.counter_set]
    if state is None:
        return not entry.compatibility_groups
    return not state.isdisjoint(entry.compatibility_groups)


def folded(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """The state of the counter set once the device is a member."""
    declared = entry.compatibility_groups
    if entry.counter_set not in states:
        return frozenset(declared) if declared else None
    state = states[entry.counter_set]
    if state is None or not declared:
        return state
    return state.intersection(declared)


class CompatibilityTable:
    """The group states of one pool during one search: what is held before, and what this attempt adds."""

    __slots__ = ("_states",)

    def __init__(self, held: Iterable[tuple[str, CounterConsumption]]) -> None:
        """Fold in the held devices, in the order given, as (device, entry)."""
        self._states: dict[str, GroupState] = {}
        for _, entry in held:
            self._states[entry.counter_set] = folded(self._states, entry)

    def join(self, consumption: Iterable[CounterConsumption], trail: Trail) -> bool:
        """Make a device a member of each counter set it draws on; False if one refuses it (the caller then undoes).

        Each entry is folded before the next is tested.
        """
        states = self._states
        for entry in consumption:
            if not admits(states, entry):
                return False
            trail.put(states, entry.counter_set, folded(states, entry))
        return True

    def refusal(self, consumption: Iterable[CounterConsumption]) -> tuple[CounterConsumption, GroupState] | None:
        """The first entry that is refused, with the state that refuses it."""
        states = dict(self._states)
        for entry in consumption:
            if not admits(states, entry):
                return entry, states[entry.counter_set]
            states[entry.counter_set] = folded(states, entry)
        return None


class GroupedSets:
    """The rule with the feature off: counter sets on which somebody holds a device with groups take no further devices."""

    __slots__ = ("_closed",)

    def __init__(self, held: Iterable[tuple[str, CounterConsumption]]) -> None:
        """Close the sets that these held devices draw on with groups."""
        self._closed = frozenset(entry.counter_set for _, entry in held if entry.compatibility_groups)

    def closed(self, consumption: Iterable[CounterConsumption]) -> str | None:
        """The first counter set of this device that is closed, or that the device itself declares groups for."""
        for entry in consumption:
            if entry.compatibility_groups or entry.counter_set in self._closed:
                return entry.counter_set
        return None
