"""Compatibility groups (KEP-5963): which devices may be allocated together on one counter set.

Each (driver, pool, counter set) is in one of three states:

    empty       no member yet                  admits anything
    ungrouped   its members declare no groups  admits only devices without groups
    grouped     the rolling intersection       admits devices that share a group with it

The intersection is stricter than comparing pairs: after {a,b} and {b,c}, {a,c} is refused although it overlaps both.  Members
that contradict each other, some without groups beside some with groups or a list of groups with no group in common, leave the empty
intersection, which admits nothing, in whatever order the members come.
"""

from collections.abc import Iterable, Mapping, Sequence

from dra_extender.allocator.state.trail import Trail
from dra_extender.model.device import CounterConsumption

GroupState = frozenset[str] | None
"""The state of a counter set with members: the rolling intersection, or None for "ungrouped".  An empty set has no entry."""


def are_compatible(members: Iterable[Sequence[str]]) -> bool:
    """Whether devices with these groups may share a counter set: all have no groups, or all have one group in common."""
    found = [frozenset(groups) for groups in members]
    return not any(found) or bool(frozenset.intersection(*found))


def admits(states: Mapping[str, GroupState], entry: CounterConsumption) -> bool:
    """Whether a device with this consumption may join the members of its counter set."""
    if entry.counter_set not in states:
        return True
    state = states[entry.counter_set]
    if state is None:
        return not entry.compatibility_groups
    return not state.isdisjoint(entry.compatibility_groups)


def folded(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """The state of the counter set once the device is a member; the order of members does not matter."""
    declared = entry.compatibility_groups
    if entry.counter_set not in states:
        return frozenset(declared) if declared else None
    state = states[entry.counter_set]
    if state is None:
        return frozenset() if declared else None
    return state.intersection(declared)


def folded_in_order(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """As `folded` in Kubernetes 1.37: where some members have groups and others none, the first member decides for the set."""
    state = states.get(entry.counter_set)
    if entry.counter_set in states and (state is None or not entry.compatibility_groups):
        return state
    return folded(states, entry)


class CompatibilityTable:
    """The group states of one pool during one search: from what is held, and from what the search picks."""

    __slots__ = ("_states",)

    def __init__(self, held: Iterable[tuple[str, CounterConsumption]], *, in_order: bool = False) -> None:
        """Fold in the held devices as (device, entry); `in_order` selects the rule of Kubernetes 1.37."""
        fold = folded_in_order if in_order else folded
        self._states: dict[str, GroupState] = {}
        for _, entry in held:
            self._states[entry.counter_set] = fold(self._states, entry)

    def join(self, consumption: Iterable[CounterConsumption], trail: Trail) -> bool:
        """Make a device a member of each counter set on which it draws; False if one does not admit it (the caller then undoes).

        Each entry is folded before the next is tested.
        """
        states = self._states
        for entry in consumption:
            if not admits(states, entry):
                return False
            trail.put(states, entry.counter_set, folded(states, entry))
        return True

    def conflict(self, consumption: Iterable[CounterConsumption]) -> tuple[CounterConsumption, GroupState] | None:
        """The first entry that its counter set does not admit, with the state of the set."""
        states = dict(self._states)
        for entry in consumption:
            if not admits(states, entry):
                return entry, states[entry.counter_set]
            states[entry.counter_set] = folded(states, entry)
        return None


class GroupedSets:
    """The rule with the feature off: a counter set with a held device that has groups admits no further device."""

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
