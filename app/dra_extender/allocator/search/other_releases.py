"""Searches by rules of other releases (see `Rules`) that change what an attempt keeps of its picks.

Where such a rule has a say, nothing may be skipped: what a device that was given up leaves behind decides about the next ones.
"""

from collections.abc import Iterator, Sequence
from typing import SupportsIndex

from dra_extender.allocator.demand.constraints import REFUSED, Constraint, ConstraintConflict, conflict_of, differs
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.counters import CounterKey, CounterTable
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, PoolTables, SearchState
from dra_extender.model.device import Attribute, CounterConsumption


def new_search_state(demand: Demand, node_view: NodeView) -> tuple[SearchState, bool]:
    """An empty attempt by the rules of this search, and whether the search may skip what cannot succeed."""
    rules = node_view.rules
    shared_names = not rules.counters_by_driver and _has_pools_of_one_name(node_view)
    by_request = not rules.distinct_from_every_device and _has_distinct(demand)
    free_admin = not rules.admin_access_pays_counters and _has_admin_access(demand)
    if shared_names or by_request or free_admin:
        return ReleaseSearchState(demand, node_view), False
    return SearchState(demand, node_view), True


def _has_pools_of_one_name(node_view: NodeView) -> bool:
    names = [pool.pool_id[1] for pool in node_view.pools.pools]
    return len(set(names)) < len(names)


def _has_distinct(demand: Demand) -> bool:
    return any(each.distinct for claim in demand.claims for each in claim.constraints)


def _has_admin_access(demand: Demand) -> bool:
    return any(wanted.admin for claim in demand.claims for each in claim.requests for wanted in each.options)


class LastOfEachRequest(list[tuple[str, Attribute]]):
    """Those that joined a distinctAttribute, as (request, attribute); `seen` is what newcomers are compared with.

    Taking one back forgets whatever its request has in `seen`, also what others of the request brought.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Attribute] = {}

    def append(self, entry: tuple[str, Attribute]) -> None:
        """Let a device in."""
        super().append(entry)
        self.seen[entry[0]] = entry[1]

    def pop(self, index: SupportsIndex = -1) -> tuple[str, Attribute]:
        """Take a device back."""
        entry = super().pop(index)
        self.seen.pop(entry[0], None)
        return entry

    def admits(self, constraint: Constraint, attribute: Attribute | None) -> bool:
        """Whether a device with this attribute may join; the first one always may, if it has the attribute at all."""
        if attribute is None:
            return False
        return not self or differs(attribute, self.seen.values(), lists=constraint.lists)


class LooseCounterTable(CounterTable):
    """Counters of all pools of one name, of which only those that the first pool declares have a limit."""

    __slots__ = ()

    def _draws(self, consumption: Sequence[CounterConsumption]) -> list[tuple[CounterKey, int]]:
        return [draw for draw in super()._draws(consumption) if draw[0] in self._remaining]


class ReleaseSearchState(SearchState):
    """An attempt whose undo may leave something behind; `exclusion` still changes nothing."""

    __slots__ = ("_by_name", "_joined", "_paid")

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        super().__init__(demand, node_view)
        self._by_name: dict[str, CounterTable] = {}
        self._joined: dict[tuple[int, int], LastOfEachRequest] = {}
        self._paid: dict[int, bool] = {}
        if not node_view.rules.distinct_from_every_device:
            for claim, each in enumerate(demand.claims):
                for index, constraint in enumerate(each.constraints):
                    if constraint.distinct:
                        self._joined[claim, index] = LastOfEachRequest()

    def tables(self, pool: Pool) -> PoolTables:
        """See `SearchState`; the first pool of a name that is asked for makes the counters of them all."""
        new = id(pool) not in self._tables
        found = super().tables(pool)
        if new and not self._node_view.rules.counters_by_driver:
            name = pool.pool_id[1]
            if name not in self._by_name:
                self._by_name[name] = LooseCounterTable(pool.totals, found.held)
            found.counters = self._by_name[name]
        return found

    def exclusion(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        """See `SearchState`."""
        tables, by_name = dict(self._tables), dict(self._by_name)
        seen = {key: dict(each.seen) for key, each in self._joined.items()}
        found = super().exclusion(claim, wanted, location)
        self._tables, self._by_name = tables, by_name
        for key, each in self._joined.items():
            each.seen = seen[key]
        return found

    def refusing_constraint(self, claim: int, wanted: SearchableRequest, location: int) -> ConstraintConflict | None:
        """See `SearchState`."""
        for index, constraint, attribute in self._constraints(claim, wanted, location):
            joined = self._joined.get((claim, index))
            state = self._constraint_state.get((claim, index)) if joined is None else tuple(joined.seen.values())
            refused = joined is None and constraint.joined(state, attribute) is REFUSED
            refused = refused or (joined is not None and not joined.admits(constraint, attribute))
            if refused:
                return conflict_of(constraint, attribute, state)
        return None

    def _constrain(self, claim: int, wanted: SearchableRequest, location: int) -> Exclusion:
        for index, constraint, attribute in self._constraints(claim, wanted, location):
            joined, key = self._joined.get((claim, index)), (claim, index)
            if joined is not None:
                if not joined.admits(constraint, attribute):
                    return Exclusion.CONSTRAINT
                self.trail.append(joined, (wanted.main, attribute))
                continue
            state = constraint.joined(self._constraint_state.get(key), attribute)
            if state is REFUSED:
                return Exclusion.CONSTRAINT
            self.trail.put(self._constraint_state, key, state)
        return Exclusion.NONE

    def _constraints(
        self, claim: int, wanted: SearchableRequest, location: int
    ) -> Iterator[tuple[int, Constraint, Attribute | None]]:
        for index in wanted.constraints:
            constraint = self._demand.claims[claim].constraints[index]
            yield index, constraint, self._node_view.attribute(wanted, constraint.attribute, location)

    def _draw(self, wanted: SearchableRequest, location: int, *, pays: bool = True) -> Exclusion:
        if self._node_view.rules.admin_access_pays_counters:
            return super()._draw(wanted, location, pays=pays)
        exclusion = super()._draw(wanted, location, pays=False)
        consumption = self._node_view.pools.devices[location].consumes_counters
        if exclusion or wanted.admin or not consumption:
            return exclusion
        # A share with admin access that came before has not paid for this one.
        sharing = self._node_view.sharing
        if sharing.is_shareable(location) and (location in self._paid or sharing.is_shared(location)):
            return Exclusion.NONE
        if not self.tables(self._node_view.pools.views[location].pool).counters.reserve(consumption, self.trail):
            return Exclusion.COUNTERS
        self.trail.put(self._paid, location, True)
        return Exclusion.NONE
