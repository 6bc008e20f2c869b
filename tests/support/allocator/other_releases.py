"""The allocator by rules of other releases that change what a search keeps of its picks.

Where such a rule decides, the search may skip nothing: a device that was picked and undone leaves something behind, which decides
about the next ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, SupportsIndex

from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.demand.constraints import (
    REFUSED,
    Constraint,
    ConstraintConflict,
    conflict_of,
    differs,
    value_set,
)
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.counter_sets import CounterKey, CounterTable
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, PoolTables, SearchState
from dra_extender.allocator.state.features import ReleaseBehaviour
from dra_extender.allocator.state.reasons import NoFit
from dra_extender.allocator.state.usage import Usage
from dra_extender.cel.device import Attribute
from dra_extender.model.allocation import Placement
from dra_extender.model.device import CounterConsumption
from dra_extender.model.node import Node


@dataclass(frozen=True, slots=True)
class ReleaseRules(ReleaseBehaviour):
    """Further switches of releases; the defaults are what the service does.

    `counters_by_driver`: pools of one name of two drivers have counters of their own; up to 1.36.3 the first pool that the search
    draws on defines the counters of all pools of its name, and sets that it does not have are without limit.
    `distinct_from_every_device`: distinctAttribute compares with all devices that have joined; before 1.37 with the last one of
    each request, and undoing a device forgets what its request had (issue 140438).
    `admin_access_pays_counters`: admin access needs and takes counters as others do, which may change (issue 140729); it joins
    compatibility groups either way.
    """

    counters_by_driver: bool = True
    distinct_from_every_device: bool = True
    admin_access_pays_counters: bool = True


def release_rules(release: ReleaseBehaviour, **changes: bool) -> ReleaseRules:
    """These rules with the further switches."""
    return ReleaseRules(**{each.name: getattr(release, each.name) for each in fields(release)} | changes)


def allocate_as_release(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Callable[[], bool] | None = None,
    **options: Any,
) -> Placement | NoFit:
    return NodeSearch(demand, node, pools, usage, new_state=release_search_state, **options).decide(deadline)


def release_search_state(demand: Demand, node_view: NodeView) -> SearchState:
    """A state without picks by the rules of this search: the service's, unless a switch decides about this demand."""
    release = node_view.release
    if not isinstance(release, ReleaseRules):
        return SearchState(demand, node_view)
    shared_names = not release.counters_by_driver and _has_pools_of_one_name(node_view)
    by_request = not release.distinct_from_every_device and _has_distinct(demand)
    free_admin = not release.admin_access_pays_counters and _has_admin_access(demand)
    if shared_names or by_request or free_admin:
        return ReleaseSearchState(demand, node_view)
    return SearchState(demand, node_view)


def _has_pools_of_one_name(node_view: NodeView) -> bool:
    names = [pool.pool_id[1] for pool in node_view.pools.pools]
    return len(set(names)) < len(names)


def _has_distinct(demand: Demand) -> bool:
    return any(each.distinct for claim in demand.claims for each in claim.constraints)


def _has_admin_access(demand: Demand) -> bool:
    return any(wanted.admin for claim in demand.claims for each in claim.requests for wanted in each.options)


class LastOfEachRequest(list[tuple[str, Attribute]]):
    """The devices that joined a distinctAttribute, as (request, attribute); a further device is compared with `seen`.

    Undoing one forgets the entry of its request in `seen`, also where another device of the request made it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Attribute] = {}

    def append(self, entry: tuple[str, Attribute]) -> None:
        """Add a device."""
        super().append(entry)
        self.seen[entry[0]] = entry[1]

    def pop(self, index: SupportsIndex = -1) -> tuple[str, Attribute]:
        """Undo a device."""
        entry = super().pop(index)
        self.seen.pop(entry[0], None)
        return entry

    def admits(self, constraint: Constraint, attribute: Attribute | None) -> bool:
        """Whether a device with this attribute may join; the first one always may, if it has the attribute at all."""
        if attribute is None:
            return False
        if not self or not constraint.lists:
            return not self or differs(attribute, self.seen.values())
        values = value_set(attribute)
        return bool(values) and all(values.isdisjoint(value_set(each)) for each in self.seen.values())


class LooseCounterTable(CounterTable):
    """Counters of all pools of one name; only those that the first pool declares have a limit."""

    __slots__ = ()

    @property
    def remaining(self) -> dict[CounterKey, int]:
        """What remains of each counter, in nano-units."""
        return dict(self._remaining)

    def _draws(self, consumption: Sequence[CounterConsumption]) -> list[tuple[CounterKey, int]]:
        return [draw for draw in super()._draws(consumption) if draw[0] in self._remaining]


class ReleaseSearchState(SearchState):
    """A state whose undo may leave something behind; `exclusion` still changes nothing."""

    __slots__ = ("_by_name", "_joined", "_paid", "_release")
    undo_is_exact: ClassVar[bool] = False

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        super().__init__(demand, node_view)
        release = node_view.release
        self._release = release if isinstance(release, ReleaseRules) else release_rules(release)
        self._by_name: dict[str, LooseCounterTable] = {}
        self._joined: dict[tuple[int, int], LastOfEachRequest] = {}
        self._paid: dict[int, bool] = {}
        if not self._release.distinct_from_every_device:
            for claim, each in enumerate(demand.claims):
                for index, constraint in enumerate(each.constraints):
                    if constraint.distinct:
                        self._joined[claim, index] = LastOfEachRequest()

    def snapshot(self) -> tuple[Any, ...]:
        """Copies of all that a pick may change."""
        seen = {key: (list(each), dict(each.seen)) for key, each in self._joined.items()}
        counters = {name: each.remaining for name, each in self._by_name.items()}
        devices, shares = dict(self.claims_by_device), dict(self.shares)
        return seen, counters, dict(self._paid), list(self.picks), devices, shares

    def tables(self, pool: Pool) -> PoolTables:
        """See `SearchState`; the first pool of a name that is asked for makes the counters of them all."""
        new = id(pool) not in self._tables
        found = super().tables(pool)
        if new and not self._release.counters_by_driver:
            name = pool.pool_id[1]
            if name not in self._by_name:
                self._by_name[name] = LooseCounterTable(pool.totals, found.held_entries)
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
            refused = joined is None and constraint.state_with(state, attribute) is REFUSED
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
            state = constraint.state_with(self._constraint_state.get(key), attribute)
            if state is REFUSED:
                return Exclusion.CONSTRAINT
            self.trail.put(self._constraint_state, key, state)
        return Exclusion.NONE

    def _constraints(
        self, claim: int, wanted: SearchableRequest, location: int
    ) -> Iterator[tuple[int, Constraint, Attribute | None]]:
        for index in wanted.constraints:
            constraint = self.demand.claims[claim].constraints[index]
            yield index, constraint, self.node_view.attribute(wanted, constraint.attribute, location)

    def _join_sets(self, pool: Pool, consumption: Sequence[CounterConsumption], *, admin: bool) -> Exclusion:
        if self._release.admin_access_pays_counters:
            return super()._join_sets(pool, consumption, admin=admin)
        # `_join` pays.
        return self._join_groups(pool, consumption, admin=admin)

    def _join(self, wanted: SearchableRequest, location: int) -> Exclusion:
        exclusion = super()._join(wanted, location)
        consumption = self.node_view.pools.devices[location].consumes_counters
        if self._release.admin_access_pays_counters or exclusion or wanted.admin or not consumption:
            return exclusion
        # A share with admin access that came before has not paid for this one.
        sharing = self.node_view.sharing
        if sharing.is_shareable(location) and (location in self._paid or sharing.is_shared(location)):
            return Exclusion.NONE
        if not self.tables(self.node_view.pools.views[location].pool).counters.draw(consumption, self.trail):
            return Exclusion.COUNTERS
        self.trail.put(self._paid, location, True)
        return Exclusion.NONE
