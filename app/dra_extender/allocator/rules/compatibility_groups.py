"""Compatibility groups: which devices may draw on one counter set together (KEP-5963).

Each (driver, pool, counter set) is in one of three states:

    empty       no member yet                  admits anything
    ungrouped   its members declare no groups  admits only devices without groups
    grouped     the rolling intersection       admits devices that share a group with it

The intersection is stricter than comparing pairs: after {a,b} and {b,c}, {a,c} is refused although it overlaps both.  Members
that contradict each other, some without groups beside some with groups or a list of groups with no group in common, leave the empty
intersection, which admits nothing, in whatever order the members come.

Admin access takes nothing, so groups from the admin's policy do not apply to it.  Groups that drivers publish do, as in upstream:
a device picked with admin access is a member for the rest of the search.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dra_extender.allocator.state.trail import Trail
from dra_extender.model.device import CounterConsumption

GroupState = frozenset[str] | None
"""The state of a counter set with members: the rolling intersection, or None for "ungrouped".  An empty set has no entry."""

NewState = Callable[[Mapping[str, GroupState], CounterConsumption], GroupState]
"""Returns the state of a counter set once a device is a member."""


def are_compatible(members: Iterable[Sequence[str]]) -> bool:
    """Return whether devices with these groups may share a counter set: all have no groups, or all have one group in common."""
    group_sets = [frozenset(groups) for groups in members]
    return not any(group_sets) or bool(frozenset.intersection(*group_sets))


def admits(states: Mapping[str, GroupState], entry: CounterConsumption) -> bool:
    """Return whether a device with this consumption may join the members of its counter set."""
    if entry.counter_set not in states:
        return True
    state = states[entry.counter_set]
    if state is None:
        return not entry.compatibility_groups
    return not state.isdisjoint(entry.compatibility_groups)


def state_with(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """Return the state of the counter set once the device is a member; the order of members does not matter."""
    declared = entry.compatibility_groups
    if entry.counter_set not in states:
        return frozenset(declared) if declared else None
    state = states[entry.counter_set]
    if state is None:
        return frozenset() if declared else None
    return state.intersection(declared)


def state_with_by_1_37(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """Return the state by the rule of Kubernetes 1.37: where some members have groups and others none, the first one decides."""
    state = states.get(entry.counter_set)
    if entry.counter_set in states and (state is None or not entry.compatibility_groups):
        return state
    return state_with(states, entry)


def state_with_while_off(states: Mapping[str, GroupState], entry: CounterConsumption) -> GroupState:
    """Return the state by the rule with the feature off: a set with a held device that has groups admits nothing."""
    is_closed = entry.compatibility_groups or states.get(entry.counter_set) is not None
    return frozenset() if is_closed else None


class GroupTable:
    """The group states of one pool during one search: from what is held, and from what the search picks.

    `_states` has the members without admin access.  `_published` has all members, but not the entries that the policy groups; it is
    None for a search without admin access, for which `_states` decides alone.
    """

    __slots__ = ("_published", "_states")

    def __init__(
        self,
        held_entries: Iterable[tuple[str, CounterConsumption]],
        *,
        new_state: NewState = state_with,
        admin_access: bool = False,
    ) -> None:
        """Make the held devices members, as (device, entry).

        `new_state` is the rule by which they determine the states.  `admin_access`: some request of the search has admin access.
        """
        self._states: dict[str, GroupState] = {}
        self._published: dict[str, GroupState] | None = {} if admin_access else None
        for _, entry in held_entries:
            self._states[entry.counter_set] = new_state(self._states, entry)
            if self._published is not None and not entry.grouped_by_policy:
                self._published[entry.counter_set] = new_state(self._published, entry)

    def join(self, consumption: Sequence[CounterConsumption], trail: Trail, *, admin: bool = False) -> bool:
        """Make a device a member of each counter set on which it draws; False if one does not admit it (the caller then undoes).

        Each entry joins before the next is tested.
        """
        for states, entries in self._states_to_join(consumption, admin=admin):
            for entry in entries:
                if not admits(states, entry):
                    return False
                trail.put(states, entry.counter_set, state_with(states, entry))
        return True

    def conflict(
        self, consumption: Sequence[CounterConsumption], *, admin: bool = False
    ) -> tuple[CounterConsumption, GroupState] | None:
        """Return the first entry that its counter set does not admit, with the state of the set."""
        for joined, entries in self._states_to_join(consumption, admin=admin):
            states = dict(joined)
            for entry in entries:
                if not admits(states, entry):
                    return entry, states[entry.counter_set]
                states[entry.counter_set] = state_with(states, entry)
        return None

    def _states_to_join(
        self, consumption: Sequence[CounterConsumption], *, admin: bool
    ) -> Iterator[tuple[dict[str, GroupState], Sequence[CounterConsumption]]]:
        """Yield the states that a device joins, each with the entries that count there."""
        if not admin:
            yield self._states, consumption
        if self._published is not None:
            yield self._published, [entry for entry in consumption if not entry.grouped_by_policy]
