"""The entrance of the search: one demand on one node, answered with a placement or with the reasons why there is none."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.placement import claim_placement
from dra_extender.allocator.pools.pools import DeviceOrder, NodePools
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeDevices
from dra_extender.allocator.search.search import Search
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.reasons import DEFAULT_MAX_STEPS, Code, NoFit, Rejection, SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.allocation import Placement
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

FindDeviceOrder = Callable[[NodeView], DeviceOrder | None]
"""Returns the order in which the devices of a node are preferred; None for no preference."""

_MAX_PREFERRED_STEPS: Final = 2_000
"""Steps in the preferred order: a search that finds a solution nearly always takes about as many steps as there are devices."""


class NodeSearch:
    """A search for the first solution for all claims of a pod on one node, which may be paused.

    The order is that of `find_order`, otherwise upstream's, except that the devices of a pool that are ready come first
    (`ReleaseBehaviour.ready_devices_first`).

    Pure and deterministic; the arguments stay as they are.  `demand` and `pools` must have been made with the same features, and
    nothing may change until `decide` returns, pauses included.  `max_steps` and the deadline of `decide` end a search with
    SEARCH_LIMIT.  `new_share_id` names shares; a placement that is written to a cluster needs names that are unique there, without
    it they are `share-0`, `share-1`, ... of this placement.

    Short searches come first: with the preferences of the claims as constraints, fewer each time, and then with none, in the
    preferred order of devices.  If none of them finds a solution, a search in upstream's order has all steps, so no solution is
    lost.  Nor is a better alternative of a request.
    """

    def __init__(
        self,
        demand: Demand,
        node: Node,
        pools: NodePools,
        usage: Usage,
        *,
        new_share_id: Callable[[], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        find_order: FindDeviceOrder | None = None,
    ) -> None:
        self._demand = demand
        self._pools = pools
        self._node_view = NodeView(node, pools, usage, None)
        self._new_share_id = new_share_id
        self._find_order = find_order
        self._max_steps = max_steps
        self._all_mode_devices = AllModeDevices(demand, self._node_view)
        self._search: Search | None = None
        self._attempts: Iterator[tuple[Demand, DeviceOrder | None]] = iter(())
        self._is_last = False
        # The first solution of a short search in which some request does not have its first alternative.
        self._soft_solution: Search | None = None
        self._earlier_steps = 0
        # The search whose result counts, and whether it found a solution.
        self._conclusion: tuple[Search, bool] | None = None

    def decide(self, deadline: Callable[[], bool] | None) -> Placement | NoFit:
        """Return the first solution or why there is none; once.  `deadline` returns True once the time is up.

        Raises:
            SearchPaused: the deadline raised it.  A further call goes on, and ends as it would have without the pause.
        """
        self._node_view.deadline = deadline
        try:
            while self._conclusion is None:
                search = self._search or self._begin()
                try:
                    solved: bool | None = search.solve()
                except SearchEndedError:
                    if self._is_last and self._soft_solution is None:
                        raise
                    solved = None
                self._conclusion = self._conclude(search, solved)
            search, is_solved = self._conclusion
            return self._placement(search) if is_solved else self._no_fit(search)
        except SearchEndedError as fatal:
            return NoFit(
                verdict="fatal",
                rejections=(fatal.rejection,),
                steps=self.steps,
                at_step_limit=fatal.at_step_limit,
            )

    @property
    def steps(self) -> int:
        """Steps made so far, in both orders."""
        return self._earlier_steps + (0 if self._search is None else self._search.steps)

    @property
    def nogood_count(self) -> int:
        """How many nogoods the search keeps; they take most of the memory of a paused search."""
        nogoods = None if self._search is None else self._search.nogoods
        return 0 if nogoods is None else len(nogoods)

    def _begin(self) -> Search:
        # Whether scalar constraints, which all preferred demands have, can be met depends on the order of devices.
        lists = self._node_view.features.list_type_attributes
        order = self._device_order() if lists or not self._demand.constrained else None
        attempts = [(preferred, order if lists else None) for preferred in self._demand.preferred]
        if order is not None:
            attempts.append((self._demand, order))
        self._attempts = iter([*attempts, (self._demand, None)])
        return self._next_search()

    def _next_search(self) -> Search:
        demand, order = next(self._attempts)
        self._is_last = demand is self._demand and order is None
        limit = self._max_steps if self._is_last else min(self._max_steps, _MAX_PREFERRED_STEPS)
        self._earlier_steps = self.steps
        state, all_mode = SearchState(demand, self._node_view), self._all_mode_devices.find()
        self._search = Search(demand, state, all_mode, limit, order)
        return self._search

    def _device_order(self) -> DeviceOrder | None:
        """Return the preferred order of the devices; None where it changes nothing."""
        view = self._node_view
        order = None if self._find_order is None else self._find_order(view)
        if order is None and view.release.ready_devices_first and view.features.device_binding_and_status:
            order = view.pools.ready_first
        return order

    def _conclude(self, search: Search, solved: bool | None) -> tuple[Search, bool] | None:
        """Return the search whose result counts, and whether it found a solution; None if `_search` is now the next one to run.

        `solved`: the result of `search`, None if it was stopped at a limit or by an error.
        """
        soft = self._soft_solution
        if self._is_last:
            if soft is None or (solved and _alternatives(search) < _alternatives(soft)):
                return search, bool(solved)
            return soft, True
        if solved and not any(search.chosen.values()):
            return search, True
        if solved:
            self._soft_solution = soft or search
        elif solved is False and search.demand is self._demand and soft is None:
            return search, False
        self._next_search()
        return None

    def _placement(self, search: Search) -> Placement:
        numbers = itertools.count()
        new_share_id = self._new_share_id or (lambda: f"share-{next(numbers)}")
        return Placement(
            claims=tuple(
                claim_placement(
                    claim,
                    [
                        request.options[search.chosen.get((index, position), 0)]
                        for position, request in enumerate(claim.requests)
                    ],
                    [pick for pick in search.state.picks if pick.claim == index],
                    self._node_view,
                    new_share_id,
                )
                for index, claim in enumerate(self._demand.claims)
            ),
            steps=self.steps,
        )

    def _no_fit(self, search: Search) -> NoFit:
        """Say why there is no solution.

        Invalid pools come first; incomplete ones before "no match", which they may explain.  Pools are named if they may have
        devices for the request that gets none.
        """
        pools, deadline = self._pools, self._node_view.deadline
        shortfall = search.shortfall.rejections or (Rejection(code=Code.COMBINATION),)
        claim, request = shortfall[0].claim, shortfall[0].request
        options = self._demand.alternatives(claim, request)

        def unusable(code: Code, detail: str, withheld: Sequence[ResourceSlice]) -> Iterator[Rejection]:
            if any(may_serve(code, withheld, alternative, deadline) for alternative in options):
                yield Rejection(code=code, claim=claim, request=request, detail=detail)

        invalid: list[Rejection] = []
        incomplete: list[Rejection] = []
        for pool in pools.unusable:
            if pool.problem is not None:
                pool_rejections = invalid if pool.problem is Code.POOL_INVALID else incomplete
                pool_rejections.extend(unusable(pool.problem, pool.detail, pool.withheld))
        for ignored in pools.ignored:
            incomplete.extend(unusable(Code.GROUPS_OFF, ignored.detail, ignored.withheld))
        if shortfall[0].code is Code.NO_DEVICES and pools.hidden and not (invalid or incomplete):
            shortfall = (msgspec.structs.replace(shortfall[0], code=Code.NO_MATCH),)
        if shortfall[0].code in (Code.NO_MATCH, Code.NO_DEVICES):
            rejections = (*invalid, *incomplete, *shortfall)
        else:
            rejections = (*invalid, *shortfall, *incomplete)
        broken = any(pool.problem is Code.POOL_INVALID for pool in pools.unusable)
        return NoFit(verdict="node" if broken else "no", rejections=rejections, steps=self.steps)


def _alternatives(search: Search) -> tuple[int, ...]:
    return tuple(index for _, index in sorted(search.chosen.items()))
