"""The changing state of one search: picks, marks, shares, counters, groups and constraints, all undone through one trail."""

from collections.abc import Hashable, Iterable, Sequence
from enum import IntEnum
from operator import add
from typing import Any, NamedTuple

from dra_extender.allocator.demand.constraints import REFUSED, ConstraintConflict, conflict_of
from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.compatibility import CompatibilityTable, GroupedSets
from dra_extender.allocator.rules.compatible_only_with import DeviceLocation, NeighbourTable
from dra_extender.allocator.rules.counters import CounterTable
from dra_extender.allocator.rules.held_consumption import held_consumption
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.rules.shared_capacity import Amounts
from dra_extender.allocator.state.result import SearchEndedError, SearchPaused
from dra_extender.allocator.state.trail import Trail
from dra_extender.model.device import CounterConsumption


class Pick(NamedTuple):
    """A device taken by this attempt."""

    claim: int
    wanted: SearchableRequest
    location: int
    share: Amounts | None = None
    """What a share takes of each capacity; None if the device is taken whole."""


class Exclusion(IntEnum):
    """Why the picks so far (or what is held) keep an eligible device away; NONE if it was taken."""

    NONE = 0
    PICKED = 1
    GROUPS = 2
    COUNTERS = 3
    CONSTRAINT = 4
    CAPACITY = 5
    NEIGHBOURS = 6


class PoolTables:
    """Counters and groups of one pool during one search, from what its held devices draw."""

    __slots__ = ("counters", "grouped", "groups", "held")

    def __init__(self, pool: Pool, node_view: NodeView) -> None:
        usage = node_view.usage(pool)
        held = self.held = tuple(held_consumption(pool.published, usage))
        self.counters = CounterTable(pool.totals, held)
        enforced = node_view.features.compatibility_groups
        in_order = not node_view.rules.contradictions_close_sets
        self.groups = CompatibilityTable(held, in_order=in_order) if enforced else None
        self.grouped = None if enforced else GroupedSets(held)


class SearchState:
    """Search state.  `try_pick` either takes a device or leaves no trace; `undo` goes back to a mark.

    `neighbours` is None where no device minds its neighbours.
    """

    __slots__ = (
        "_claims_by_device",
        "_constraint_state",
        "_demand",
        "_node_view",
        "_shares",
        "_tables",
        "neighbours",
        "picks",
        "sizes",
        "trail",
    )

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        self._demand = demand
        self._node_view = node_view
        self.trail = Trail()
        self.picks: list[Pick] = []
        self.sizes: dict[int, int] = {}
        self._claims_by_device: dict[int, int] = {}
        self._shares: dict[int, Amounts] = {}
        self._constraint_state: dict[tuple[int, int], Any] = {}
        self._tables: dict[int, PoolTables] = {}
        self.neighbours: NeighbourTable | None = None
        if node_view.pools_with_rules:
            self.neighbours = NeighbourTable(node_view, demand.compile_rule, lambda pool: self.tables(pool).held)

    def size(self, claim: int) -> int:
        """Devices picked for a claim so far."""
        return self.sizes.get(claim, 0)

    def try_pick(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        """Take an eligible device for a claim, or say what refuses it and leave everything as it was.

        Raises:
            SearchEndedError: a derived attribute does not compile or fails on the device; nothing is left then either.
            SearchPaused: the deadline raised it; nothing is left then either.
        """
        if self.is_picked(claim, wanted, location):
            return Exclusion.PICKED
        trail = self.trail
        mark = trail.mark()
        try:
            exclusion = self._reserve(claim, wanted, location)
        except (SearchEndedError, SearchPaused):
            trail.undo_to(mark)
            raise
        if exclusion:
            trail.undo_to(mark)
            return exclusion
        share = self._mark(claim, wanted, location)
        trail.put(self.sizes, claim, self.sizes.get(claim, 0) + 1)
        trail.append(self.picks, Pick(claim, wanted, location, share))
        return Exclusion.NONE

    def exclusion(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        """What would refuse the device now; changes nothing."""
        mark = self.trail.mark()
        found = self.try_pick(claim, wanted, location)
        self.trail.undo_to(mark)
        return found

    def is_picked(self, claim: int, wanted: SearchableRequest, location: int) -> bool:
        """Whether this attempt has the whole device already: any claim counts, but for admin access only the same claim."""
        marked = self._claims_by_device.get(location)
        return marked is not None and (not wanted.admin or bool(marked & 1 << claim))

    def picked_devices(self) -> Iterable[tuple[int, int]]:
        """(location, the claims that have it as bits) of every device that this attempt has whole."""
        return self._claims_by_device.items()

    def mark(self, location: int) -> int:
        """The claims of this attempt that have the whole device, as bits."""
        return self._claims_by_device.get(location, 0)

    def shared(self, location: int) -> Amounts | None:
        """What this attempt has of the device in shares; None without any."""
        return self._shares.get(location)

    def shared_devices(self) -> Iterable[tuple[int, Amounts]]:
        """(location, what this attempt has of the device in shares) of every shared device."""
        return self._shares.items()

    def tables(self, pool: Pool) -> PoolTables:
        """Counters and groups of a pool, built on first need."""
        found = self._tables.get(id(pool))
        if found is None:
            found = self._tables[id(pool)] = PoolTables(pool, self._node_view)
        return found

    def constraint_states(self, claim: int) -> tuple[Hashable, ...]:
        """What of the states of all constraints of a claim decides about further devices, immutable values."""
        states = self._constraint_state
        constraints = self._demand.claims[claim].constraints
        return tuple(each.deciding(states.get((claim, index))) for index, each in enumerate(constraints))

    def refusing_constraint(self, claim: int, wanted: SearchableRequest, location: int) -> ConstraintConflict | None:
        """The first constraint that keeps a device out at present, and by which values."""
        for index in wanted.constraints:
            constraint = self._demand.claims[claim].constraints[index]
            attribute = self._node_view.attribute(wanted, constraint.attribute, location)
            state = self._constraint_state.get((claim, index))
            if constraint.joined(state, attribute) is REFUSED:
                return conflict_of(constraint, attribute, state)
        return None

    def _mark(self, claim: int, wanted: SearchableRequest, location: int) -> Amounts | None:
        """Take the device whole, or a share of it, of which the amounts are returned."""
        sharing = self._node_view.sharing
        if not sharing.is_shareable(location):
            self.trail.put(self._claims_by_device, location, self._claims_by_device.get(location, 0) | 1 << claim)
            return None
        needed = sharing.needs(wanted, location)
        share: Amounts = () if isinstance(needed, CapacityMismatch) else needed
        before = self._shares.get(location)
        total = share if before is None else tuple(map(add, before, share))
        self.trail.put(self._shares, location, total)
        return share

    def _reserve(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        # Mode All looks at capacity last: there a constraint that refuses the device counts more.
        exact = wanted.count != ALL
        if exact and self._is_exhausted(wanted, location):
            return Exclusion.CAPACITY
        exclusion = self._draw(wanted, location) or self._constrain(claim, wanted, location)
        if not exclusion and not exact and self._is_exhausted(wanted, location):
            return Exclusion.CAPACITY
        return exclusion

    def _is_exhausted(self, wanted: SearchableRequest, location: int) -> bool:
        return self._node_view.sharing.exhausted(wanted, location, self._shares.get(location, ())) is not None

    def _draw(self, wanted: SearchableRequest, location: int, *, pays: bool = True) -> Exclusion:  # noqa: ARG002 - for other rules
        """Take the device's counters and join its groups, unless a share of it has done so already."""
        pools, sharing = self._node_view.pools, self._node_view.sharing
        consumption = pools.devices[location].consumes_counters
        if not consumption and self.neighbours is None:
            return Exclusion.NONE
        if sharing.is_shareable(location) and (location in self._shares or sharing.is_shared(location)):
            return self._further_share(location)
        view = pools.views[location]
        exclusion = self._join_sets(view.pool, consumption, pays=pays) if consumption else Exclusion.NONE
        if exclusion or self.neighbours is None:
            return exclusion
        device_location = DeviceLocation(view.published, location - view.base)
        return Exclusion.NONE if self.neighbours.join(view.pool, device_location, self.trail) else Exclusion.NEIGHBOURS

    def _join_sets(self, pool: Pool, consumption: Sequence[CounterConsumption], *, pays: bool) -> Exclusion:
        tables = self.tables(pool)
        if tables.groups is not None:
            if not tables.groups.join(consumption, self.trail):
                return Exclusion.GROUPS
        elif tables.grouped is not None and tables.grouped.closed(consumption) is not None:
            return Exclusion.GROUPS
        if pays and not tables.counters.reserve(consumption, self.trail):
            return Exclusion.COUNTERS
        return Exclusion.NONE

    def _further_share(self, location: int) -> Exclusion:
        """A device with a share is a member of its counter sets already, so that only its capacity is judged."""
        node_view = self._node_view
        if node_view.rules.shares_keep_snapshot:
            return Exclusion.NONE
        groups = self.tables(node_view.pools.views[location].pool).groups
        joined = groups is None or groups.join(node_view.pools.devices[location].consumes_counters, self.trail)
        return Exclusion.NONE if joined else Exclusion.GROUPS

    def _constrain(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        """Let the device join the constraints of the claim."""
        for index in wanted.constraints:
            key = (claim, index)
            constraint = self._demand.claims[claim].constraints[index]
            attribute = self._node_view.attribute(wanted, constraint.attribute, location)
            state = constraint.joined(self._constraint_state.get(key), attribute)
            if state is REFUSED:
                return Exclusion.CONSTRAINT
            self.trail.put(self._constraint_state, key, state)
        return Exclusion.NONE
