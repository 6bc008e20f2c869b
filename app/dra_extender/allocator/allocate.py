"""The entrance of the search: one demand on one node, answered with a placement or with the reasons why there is none."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from dra_extender.allocator.demand.demand import ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.placement import claim_placement
from dra_extender.allocator.pools.pools import DeviceOrder, NodePools
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeDevices
from dra_extender.allocator.search.preference import PreferringSearch, preference
from dra_extender.allocator.search.pruner import NodePruner
from dra_extender.allocator.search.search import Search
from dra_extender.allocator.search_state import NewSearchState, SearchState
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.release_rules import OWN, Rules
from dra_extender.allocator.state.result import DEFAULT_MAX_STEPS, NoFit, SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.allocation import ClaimPlacement, Placement
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice


def allocate(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Callable[[], bool] | None = None,
    new_share_id: Callable[[], str] | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    rules: Rules = OWN,
) -> Placement | NoFit:
    """The first solution for all claims of a pod on one node, or why there is none.

    The order is upstream's, except that the devices of a pool that are ready come first (`Rules.ready_devices_first`).

    Pure and deterministic; the arguments stay as they are.  `demand` and `pools` must have been made with the same features,
    `usage` must not change meanwhile.  `deadline` returns True once the time is up; it and `max_steps` end a search with
    SEARCH_LIMIT.  `new_share_id` names shares; a placement that is written to a cluster needs names that are unique there, without
    it they are `share-0`, `share-1`, ... of this placement.  `rules` other than the default give the answer of another release.
    """
    allocation = Allocation(demand, node, pools, usage, new_share_id=new_share_id, max_steps=max_steps, rules=rules)
    return allocation.run(deadline)


class Allocation:
    """One call of `allocate` that may be paused; `allocate` documents the arguments and the result."""

    __slots__ = (
        "_all_mode_devices",
        "_demand",
        "_found",
        "_max_steps",
        "_new_share_id",
        "_new_state",
        "_node_view",
        "_pools",
        "_search",
    )

    def __init__(
        self,
        demand: Demand,
        node: Node,
        pools: NodePools,
        usage: Usage,
        *,
        new_share_id: Callable[[], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        rules: Rules = OWN,
        new_state: NewSearchState = SearchState,
    ) -> None:
        """The arguments may not change until `run` returns, pauses included."""
        self._demand = demand
        self._pools = pools
        self._node_view = NodeView(node, pools, usage, None, rules)
        self._new_share_id = new_share_id
        self._new_state = new_state
        self._max_steps = max_steps
        self._all_mode_devices = AllModeDevices(demand, self._node_view)
        self._search: Search | PreferringSearch | None = None
        self._found: bool | None = None

    def run(self, deadline: Callable[[], bool] | None) -> Placement | NoFit:
        """The result of `allocate`; once.

        Raises:
            SearchPaused: the deadline raised it.  A further `run` goes on, and ends as it would have without the pause.
        """
        self._node_view.deadline = deadline
        try:
            if self._search is None:
                self._search = self._begin()
            if self._found is None:
                self._found = self._search.run()
            search = self._decisive(self._search)
            if not self._found:
                return _no_fit(search, self._pools, self._demand, deadline, self.steps)
            return Placement(claims=self._placements(search), steps=self.steps)
        except SearchEndedError as fatal:
            return NoFit(verdict=fatal.verdict, rejections=(fatal.rejection,), steps=self.steps, counted=fatal.counted)

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return 0 if self._search is None else self._search.steps

    @property
    def nogood_count(self) -> int:
        """How many nogoods the search keeps; they take most of the memory of a paused search."""
        return 0 if self._search is None else len(self._decisive(self._search).nogoods)

    def _begin(self) -> Search | PreferringSearch:
        demand, node_view, all_mode = self._demand, self._node_view, self._all_mode_devices.run()

        def new_search(max_steps: int, order: DeviceOrder | None = None) -> Search:
            return Search(demand, self._new_state(demand, node_view), all_mode, NodePruner, max_steps, order)

        order = preference(demand, node_view)
        return new_search(self._max_steps) if order is None else PreferringSearch(new_search, self._max_steps, order)

    @staticmethod
    def _decisive(search: Search | PreferringSearch) -> Search:
        return search if isinstance(search, Search) else search.search

    def _placements(self, search: Search) -> tuple[ClaimPlacement, ...]:
        numbers = itertools.count()
        new_share_id = self._new_share_id or (lambda: f"share-{next(numbers)}")
        return _placements(self._demand, search, self._node_view, new_share_id)


def _placements(
    demand: Demand, search: Search, node_view: NodeView, new_share_id: Callable[[], str]
) -> tuple[ClaimPlacement, ...]:
    features, rules = search.node_view.features, search.node_view.rules
    binds = features.device_binding_and_status or not rules.unready_devices_while_off
    return tuple(
        claim_placement(
            claim,
            _chosen(claim, index, search),
            [pick for pick in search.state.picks if pick.claim == index],
            node_view,
            new_share_id,
            binds=binds,
        )
        for index, claim in enumerate(demand.claims)
    )


def _chosen(claim: ClaimDemand, index: int, search: Search) -> list[SearchableRequest]:
    return [request.options[search.chosen.get((index, position), 0)] for position, request in enumerate(claim.requests)]


def _no_fit(search: Search, pools: NodePools, demand: Demand, deadline: Deadline | None, steps: int) -> NoFit:
    """Invalid pools come first; incomplete ones before "no match", which they may explain.

    Pools are named if they may have devices for the request that gets none.
    """
    found = search.shortfall.rejections or (Rejection(code=Code.COMBINATION),)
    place = found[0].claim, found[0].request
    options = demand.alternatives(*place)

    def named(code: Code, detail: str, withheld: Sequence[ResourceSlice]) -> Iterator[Rejection]:
        if any(may_serve(code, withheld, each, deadline) for each in options):
            yield Rejection(code=code, claim=place[0], request=place[1], detail=detail)

    unusable = [
        each for pool in pools.unusable if pool.problem for each in named(pool.problem, pool.detail, pool.withheld)
    ]
    invalid = [each for each in unusable if each.code is Code.POOL_INVALID]
    incomplete = [each for each in unusable if each.code is not Code.POOL_INVALID]
    incomplete += [
        each for ignored in pools.ignored for each in named(Code.GROUPS_OFF, ignored.detail, ignored.withheld)
    ]
    if found[0].code is Code.NO_DEVICES and pools.hidden and not (invalid or incomplete):
        found = (msgspec.structs.replace(found[0], code=Code.NO_MATCH),)
    if found[0].code in (Code.NO_MATCH, Code.NO_DEVICES):
        rejections = (*invalid, *incomplete, *found)
    else:
        rejections = (*invalid, *found, *incomplete)
    broken = any(pool.problem is Code.POOL_INVALID for pool in pools.unusable)
    return NoFit(verdict="node" if broken else "no", rejections=rejections, steps=steps)
