"""The changing state of one search: picks, marks, counters, groups and constraints, all undone through one trail."""

from enum import IntEnum
from typing import Any, NamedTuple

from app.allocator.compatibility import CompatibilityTable, GroupedSets
from app.allocator.constraints import REFUSED, Constraint
from app.allocator.counters import CounterTable
from app.allocator.demand import Demand, Wanted
from app.allocator.eligibility import NodeFacts
from app.allocator.occupancy import held_consumption
from app.allocator.pools import Pool
from app.allocator.undo import Trail
from app.model.device import Device


class Pick(NamedTuple):
    """A device taken by this attempt."""

    claim: int
    wanted: Wanted
    location: int


class Refusal(IntEnum):
    """Why the picks so far (or what is held) keep an eligible device away; NONE if it was taken."""

    NONE = 0
    PICKED = 1
    GROUPS = 2
    COUNTERS = 3
    CONSTRAINT = 4


class PoolTables:
    """Counters and groups of one pool during one search, from what its held devices draw."""

    __slots__ = ("counters", "grouped", "groups", "held")

    def __init__(self, pool: Pool, facts: NodeFacts) -> None:
        held = self.held = tuple(held_consumption(pool.published, facts.usage(pool)))
        self.counters = CounterTable(pool.totals, held)
        enforced = facts.features.compatibility_groups
        self.groups = CompatibilityTable(held) if enforced else None
        self.grouped = None if enforced else GroupedSets(held)


class Attempt:
    """Search state.  `take` either takes a device or leaves no trace; `undo` goes back to a mark."""

    __slots__ = ("_constraint_state", "_demand", "_facts", "_marks", "_tables", "picks", "sizes", "trail")

    def __init__(self, demand: Demand, facts: NodeFacts) -> None:
        self._demand = demand
        self._facts = facts
        self.trail = Trail()
        self.picks: list[Pick] = []
        self.sizes: dict[int, int] = {}
        self._marks: dict[int, int] = {}
        self._constraint_state: dict[tuple[int, int], Any] = {}
        self._tables: dict[int, PoolTables] = {}

    def size(self, claim: int) -> int:
        """Devices picked for a claim so far."""
        return self.sizes.get(claim, 0)

    def take(self, claim: int, wanted: Wanted, location: int) -> Refusal:
        """Take an eligible device for a claim, or say what refuses it and leave everything as it was."""
        if self.is_picked(claim, wanted, location):
            return Refusal.PICKED
        trail = self.trail
        mark = trail.mark()
        refusal = self._reserve(claim, wanted, location)
        if refusal:
            trail.back_to(mark)
            return refusal
        trail.put(self._marks, location, self._marks.get(location, 0) | 1 << claim)
        trail.put(self.sizes, claim, self.sizes.get(claim, 0) + 1)
        trail.append(self.picks, Pick(claim, wanted, location))
        return Refusal.NONE

    def refusal(self, claim: int, wanted: Wanted, location: int) -> Refusal:
        """What would refuse the device now; changes nothing."""
        mark = self.trail.mark()
        found = self.take(claim, wanted, location)
        self.trail.back_to(mark)
        return found

    def is_picked(self, claim: int, wanted: Wanted, location: int) -> bool:
        """Whether this attempt has the device already: any claim counts, but for admin access only the same claim."""
        marked = self._marks.get(location)
        return marked is not None and (not wanted.admin or bool(marked & 1 << claim))

    def tables(self, pool: Pool) -> PoolTables:
        """Counters and groups of a pool, built on first need."""
        found = self._tables.get(id(pool))
        if found is None:
            found = self._tables[id(pool)] = PoolTables(pool, self._facts)
        return found

    def constraint_states(self, claim: int) -> tuple[Any, ...]:
        """The states of all constraints of a claim, immutable values."""
        count = len(self._demand.claims[claim].constraints)
        return tuple(self._constraint_state.get((claim, index)) for index in range(count))

    def refusing_constraint(self, claim: int, wanted: Wanted, driver: str, device: Device) -> Constraint | None:
        """The first constraint that keeps a device out at present."""
        for index in wanted.constraints:
            constraint = self._demand.claims[claim].constraints[index]
            if constraint.joined(self._constraint_state.get((claim, index)), driver, device) is REFUSED:
                return constraint
        return None

    def _reserve(self, claim: int, wanted: Wanted, location: int) -> Refusal:
        pools = self._facts.pools
        device, view = pools.devices[location], pools.views[location]
        consumption = device.consumes_counters
        if consumption:
            tables = self.tables(view.pool)
            if tables.groups is not None:
                if not tables.groups.join(consumption, self.trail):
                    return Refusal.GROUPS
            elif tables.grouped is not None and tables.grouped.closed(consumption) is not None:
                return Refusal.GROUPS
            if not tables.counters.reserve(consumption, self.trail):
                return Refusal.COUNTERS
        for index in wanted.constraints:
            key = (claim, index)
            constraint = self._demand.claims[claim].constraints[index]
            state = constraint.joined(self._constraint_state.get(key), view.pool.pool_id[0], device)
            if state is REFUSED:
                return Refusal.CONSTRAINT
            self.trail.put(self._constraint_state, key, state)
        return Refusal.NONE
