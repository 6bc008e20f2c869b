"""The changing state of one search: picks, marks, shares, counters, groups and constraints, all undone through one trail."""

from collections.abc import Hashable
from operator import add
from typing import Any, NamedTuple

from dra_extender.allocator.demand.constraints import REFUSED, ConstraintConflict, conflict_of
from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.capacity import Amounts, CapacityMismatch
from dra_extender.allocator.rules.compatibility_groups import (
    GroupTable,
    state_with,
    state_with_by_1_37,
    state_with_while_off,
)
from dra_extender.allocator.rules.compatible_only_with import NeighbourTable, SlicePosition
from dra_extender.allocator.rules.counter_sets import CounterTable
from dra_extender.allocator.rules.held_devices import held_consumption
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.reasons import Code
from dra_extender.allocator.state.trail import Trail


class DeviceSlot(NamedTuple):
    """A slot to be filled: the device number `picked` of a request."""

    claim: int
    request: int
    picked: int
    option: SearchableRequest


class Pick(NamedTuple):
    """A device that this search has picked."""

    claim: int
    option: SearchableRequest
    location: int
    share: Amounts | None = None
    """What a share takes of each capacity; None if the device is taken whole."""


class PoolTables:
    """Counters and compatibility groups of one pool during one search; they start from what held devices draw."""

    __slots__ = ("counters", "groups", "held_entries")

    def __init__(self, pool: Pool, node_view: NodeView, *, admin_access: bool = False) -> None:
        """`admin_access`: some request of the search has admin access."""
        usage = node_view.usage(pool)
        held_entries = self.held_entries = tuple(held_consumption(pool.published, usage))
        self.counters = CounterTable(pool.totals, held_entries)
        if node_view.features.compatibility_groups:
            new_state = state_with_by_1_37 if node_view.release.as_upstream else state_with
        else:
            new_state = state_with_while_off
        self.groups = GroupTable(held_entries, new_state=new_state, admin_access=admin_access)


class SearchState:
    """The picks of one search on a node.  `try_pick` picks a device or leaves no trace; `trail.undo_to` returns to a mark.

    `sizes` are the numbers of devices by claim.  By location, `claims_by_device` has the claims that picked the whole device as
    bits, and `shares` the sum of the shares picked of a device.
    `neighbours` is None where no device has a rule about its neighbours.
    """

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        self.demand = demand
        self.node_view = node_view
        self.trail = Trail()
        self.picks: list[Pick] = []
        self.sizes: dict[int, int] = {}
        self.claims_by_device: dict[int, int] = {}
        self.shares: dict[int, Amounts] = {}
        # The devices that requests without admin access picked; kept only where other requests have admin access.
        self._members: dict[int, bool] = {}
        self._constraint_state: dict[tuple[int, int], Any] = {}
        self._tables: dict[int, PoolTables] = {}
        self.neighbours: NeighbourTable | None = None
        if node_view.pools_with_rules:
            self.neighbours = NeighbourTable(
                node_view, demand.compile_rule, lambda pool: self.tables(pool).held_entries
            )

    def try_pick(self, claim: int, option: SearchableRequest, location: int) -> Code | None:
        """Pick an eligible device for a claim; if something excludes it, change nothing and return the code of that."""
        if self.is_picked(claim, option, location):
            return Code.COMBINATION
        trail, sharing = self.trail, self.node_view.sharing
        mark = trail.mark()
        # Mode All checks capacity last: a constraint that excludes the device is an error there, and comes first.
        exact = option.count != ALL
        try:
            if exact and self._is_exhausted(option, location):
                return Code.CAPACITY
            exclusion = self._join(option, location) or self._constrain(claim, option, location)
            if not exclusion and not exact and self._is_exhausted(option, location):
                exclusion = Code.CAPACITY
        except BaseException:
            trail.undo_to(mark)
            raise
        if exclusion:
            trail.undo_to(mark)
            return exclusion
        if self.demand.admin_access and not option.admin:
            trail.put(self._members, location, True)
        share: Amounts | None = None
        if sharing.is_shareable(location):
            needs = sharing.needs(option, location)
            share = () if isinstance(needs, CapacityMismatch) else needs
            before = self.shares.get(location)
            trail.put(self.shares, location, share if before is None else tuple(map(add, before, share)))
        else:
            trail.put(self.claims_by_device, location, self.claims_by_device.get(location, 0) | 1 << claim)
        trail.put(self.sizes, claim, self.sizes.get(claim, 0) + 1)
        trail.append(self.picks, Pick(claim, option, location, share))
        return None

    def exclusion(self, claim: int, option: SearchableRequest, location: int) -> Code | None:
        """Return the code of what excludes the device now; changes nothing."""
        mark = self.trail.mark()
        exclusion = self.try_pick(claim, option, location)
        self.trail.undo_to(mark)
        return exclusion

    def is_picked(self, claim: int, option: SearchableRequest, location: int) -> bool:
        """Return whether the whole device is picked already: by any claim, or for a request with admin access by the same claim."""
        marked = self.claims_by_device.get(location)
        return marked is not None and (not option.admin or bool(marked & 1 << claim))

    def is_member(self, location: int) -> bool:
        """Return whether a picked device is a member for groups of the policy; a device picked with admin access only is not."""
        return not self.demand.admin_access or location in self._members

    def tables(self, pool: Pool) -> PoolTables:
        """Return the counters and groups of a pool, built on first need."""
        tables = self._tables.get(id(pool))
        if tables is None:
            tables = self._tables[id(pool)] = PoolTables(pool, self.node_view, admin_access=self.demand.admin_access)
        return tables

    def constraint_states(self, claim: int) -> tuple[Hashable, ...]:
        """Return for each constraint of a claim the part of its state that decides about further devices; immutable."""
        states = self._constraint_state
        constraints = self.demand.claims[claim].constraints
        return tuple(constraint.deciding(states.get((claim, index))) for index, constraint in enumerate(constraints))

    def refusing_constraint(self, claim: int, option: SearchableRequest, location: int) -> ConstraintConflict | None:
        """Return the first constraint that excludes a device now, with the values that conflict; None without one."""
        for index in option.constraints:
            constraint = self.demand.claims[claim].constraints[index]
            attribute = self.node_view.attribute(option, constraint.attribute, location)
            state = self._constraint_state.get((claim, index))
            if constraint.state_with(state, attribute) is REFUSED:
                return conflict_of(constraint, attribute, state)
        return None

    def _is_exhausted(self, option: SearchableRequest, location: int) -> bool:
        return self.node_view.sharing.exhausted(option, location, self.shares.get(location, ())) is not None

    def _join(self, option: SearchableRequest, location: int) -> Code | None:
        """Make the device a member of its counter sets and a neighbour; a further share of a device is both already.

        With admin access the device is neither a neighbour nor a member by the groups of the admin's policy.
        """
        pools, sharing = self.node_view.pools, self.node_view.sharing
        consumption = pools.devices[location].consumes_counters
        if not consumption and self.neighbours is None:
            return None
        view, admin = pools.views[location], option.admin
        is_shared = sharing.is_shareable(location) and sharing.is_shared(location)
        is_further_share = is_shared or location in self.shares
        if is_further_share and (admin or is_shared or self.is_member(location)):
            # A device with a share is a member of its counter sets already, so that only its capacity counts.
            return None
        if consumption:
            tables = self.tables(view.pool)
            if not tables.groups.join(consumption, self.trail, admin=admin):
                return Code.GROUPS
            if not is_further_share and not tables.counters.draw(consumption, self.trail):
                return Code.COUNTERS
        if admin or self.neighbours is None:
            return None
        slice_position = SlicePosition(view.published, location - view.base)
        return None if self.neighbours.join(view.pool, slice_position, self.trail) else Code.NEIGHBOURS

    def _constrain(self, claim: int, option: SearchableRequest, location: int) -> Code | None:
        """Make the device join the constraints of the claim."""
        for index in option.constraints:
            key = (claim, index)
            constraint = self.demand.claims[claim].constraints[index]
            attribute = self.node_view.attribute(option, constraint.attribute, location)
            state = constraint.state_with(self._constraint_state.get(key), attribute)
            if state is REFUSED:
                return Code.CONSTRAINT
            self.trail.put(self._constraint_state, key, state)
        return None
