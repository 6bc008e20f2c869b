"""Depth-first search for the first solution, in upstream's order.

Claims, requests and alternatives go as written, devices by location unless another order is given.  The recursion of upstream is
a stack of frames here, so the depth of a pod's wishes is no matter.  Each call of upstream's recursive function is one step.
Three outcomes travel up the stack: FOUND, FAILED, and TOO_MANY (more devices than a claim may have), which skips the device loops
and stops at the nearest list of alternatives, or at the claim's end as FAILED.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.explain.device_reasons import DeviceSlot
from dra_extender.allocator.explain.shortfall import Shortfall
from dra_extender.allocator.pools.device_order import DeviceOrder
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.error_safety import error_free_prefix, may_end_in_error, never_exceeds_max_results
from dra_extender.allocator.search.frames import (
    CLAIM_END,
    NOT_CHOSEN,
    AllModeFrame,
    Alternatives,
    DeviceLoop,
    FrameResult,
    NogoodFrame,
    SearchFrame,
)
from dra_extender.allocator.search.other_releases import new_search_state
from dra_extender.allocator.search.pruning import ExactStateIndex, PruningIndex
from dra_extender.allocator.search_state import Exclusion
from dra_extender.allocator.state.result import SearchEndedError, SearchPaused
from dra_extender.model.rejection import Code, Rejection

Option = tuple[int, int, int]
"""(claim, request, option of the request)."""

_POLL: Final = 15
_DEAD_ENDS_BEFORE_PRUNING: Final = 64
_EXCLUSIONS_PER_DEAD_END: Final = 4
_MAX_STEPS_PER_CLAIM: Final = 2_000
_MANY_DEVICES: Final = 256


class _NodeAnalysis(NamedTuple):
    """How many claims of `demand` end without an error, and what the node has for them; None if the time was up."""

    demand: Demand
    error_free_claims: int
    pruning_index: PruningIndex | None


class Search:
    """One search on one node; `run` until it returns, then read `state`, `chosen`, `steps` and `shortfall`."""

    __slots__ = (
        "_all_mode",
        "_claim",
        "_claim_searches",
        "_dead_ends",
        "_demand",
        "_eligibilities",
        "_frames",
        "_is_analysed",
        "_max_steps",
        "_may_be_feasible",
        "_memory",
        "_node_analysis",
        "_option",
        "_outcome",
        "_picked",
        "_poll",
        "_pruning_index",
        "_request",
        "_start",
        "chosen",
        "node_view",
        "nogoods",
        "order",
        "pruning_index",
        "shortfall",
        "state",
        "steps",
    )

    def __init__(
        self,
        demand: Demand,
        node_view: NodeView,
        all_mode: Mapping[Option, tuple[int, ...]],
        max_steps: int,
        order: DeviceOrder | None = None,
    ) -> None:
        """Try the devices of a request by location, or in this order."""
        self.node_view = node_view
        self.order = order
        self.state, may_skip = new_search_state(demand, node_view)
        self.steps = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self.shortfall = Shortfall(demand, node_view, self.state)
        self.pruning_index: PruningIndex | None = None
        self._memory: PruningIndex | ExactStateIndex | None = None
        self.nogoods: set[Hashable] = set()
        self._dead_ends = 0
        self._is_analysed = not may_skip
        self._demand = demand
        self._all_mode = all_mode
        self._max_steps = max_steps
        self._frames: list[SearchFrame] = []
        self._eligibilities: dict[Option, Eligibility] = {}
        # The call that comes next.
        self._claim = self._request = self._picked = self._start = 0
        self._option = NOT_CHOSEN
        # What `run` goes on with: the outcome that the frame on top has still to judge, or the next call.
        self._outcome = FrameResult.GOES_ON
        self._node_analysis: _NodeAnalysis | None = None
        self._pruning_index: PruningIndex | None = None
        self._claim_searches: dict[int, Search] = {}
        self._may_be_feasible: bool | None = None
        self._poll = _POLL if len(node_view.pools.devices) < _MANY_DEVICES else 0

    def run(self) -> bool:
        """Whether there is a solution; the picks of the first one are then in `state`.

        Raises:
            SearchEndedError: a selector failed, mode All met a constraint, or the search was stopped at its limit.
            SearchPaused: the deadline raised it; a further `run` goes on, and takes the same steps as if there had been no pause.
        """
        frames, outcome = self._frames, self._outcome
        depth, steps = len(frames), self.steps
        try:
            while not self._is_infeasible():
                if outcome is FrameResult.GOES_ON:
                    outcome = self._enter()
                elif not frames:
                    return outcome is FrameResult.FOUND
                else:
                    outcome = frames[-1].resume(self, outcome)
                    if outcome is not FrameResult.GOES_ON:
                        frames.pop()
                depth, steps = len(frames), self.steps
        except SearchPaused:
            # The round that was interrupted is made again, and changes again what it changed so far.
            del frames[depth:]
            self._outcome, self.steps = outcome, steps
            raise
        return False

    def call(self, claim: int, request: int, option: int = NOT_CHOSEN, picked: int = 0, start: int = 0) -> FrameResult:
        """Make this the next call."""
        self._claim, self._request, self._option, self._picked, self._start = claim, request, option, picked, start
        return FrameResult.GOES_ON

    def _enter(self) -> FrameResult:
        self.steps += 1
        self._check_limits()
        claim, request = self._claim, self._request
        claims = self._demand.claims
        if claim == len(claims):
            return FrameResult.FOUND
        requests = claims[claim].requests
        if request == len(requests):
            self._frames.append(CLAIM_END)
            return self.call(claim + 1, 0)
        fresh = self._option == NOT_CHOSEN and not self._picked
        if fresh and self._memory is not None and self._is_known_failure(self._memory):
            return FrameResult.FAILED
        wish = requests[request]
        if wish.prioritized and self._option == NOT_CHOSEN:
            self._frames.append(Alternatives(claim, request, wish))
            return self.call(claim, request, 0)
        return self._pick(claim, request, wish)

    def _pick(self, claim: int, request: int, wish: RequestDemand) -> FrameResult:
        option = max(self._option, 0)
        wanted = wish.options[option]
        place = DeviceSlot(claim, request, self._picked, wanted)
        every = self._all_mode.get((claim, request, option)) if wanted.count == ALL else None
        count = wanted.count if every is None else len(every)
        if wanted.count == ALL and not every:
            self.shortfall.record_shortfall(place, self.eligibility(claim, request, option, wanted), {})
            return FrameResult.FAILED
        if place.picked >= count:
            return self.call(claim, request + 1)
        total = self.state.size(claim) + count - place.picked
        if total > MAX_RESULTS:
            self.shortfall.record_too_many(place, total)
            return FrameResult.TOO_MANY
        eligibility, mark = self.eligibility(claim, request, option, wanted), self.state.trail.mark()
        frame: AllModeFrame | DeviceLoop
        if every is not None:
            frame = AllModeFrame(mark)
            outcome = self._pick_all_mode(place, every[place.picked], eligibility)
        else:
            frame = DeviceLoop(place, self._option, self._start, eligibility, mark)
            outcome = frame.advance(self)
        if outcome is FrameResult.GOES_ON:
            self._frames.append(frame)
        return outcome

    def _pick_all_mode(self, place: DeviceSlot, location: int, eligibility: Eligibility) -> FrameResult:
        """Take the next device of mode All; no other candidate exists."""
        claim, request, picked, wanted = place
        exclusions: dict[int, Exclusion] = {}
        if eligibility.of(location) == DeviceVerdict.ELIGIBLE:
            exclusion = self.state.try_pick(claim, wanted, location)
            if not exclusion:
                return self.call(claim, request, self._option, picked + 1)
            if exclusion is Exclusion.CONSTRAINT:
                raise SearchEndedError(self.shortfall.constraint_rejection(claim, wanted, location))
            exclusions[location] = exclusion
        self.shortfall.record_shortfall(place, eligibility, exclusions, only=location)
        return FrameResult.FAILED

    def eligibility(self, claim: int, request: int, option: int, wanted: SearchableRequest) -> Eligibility:
        """The verdicts about devices for one request option, shared by all its frames."""
        key = (claim, request, option)
        found = self._eligibilities.get(key)
        if found is None:
            label = self._demand.claims[claim].label
            found = self._eligibilities[key] = Eligibility(wanted, label, self.node_view)
        return found

    def dead_end(self, refused: int) -> None:
        """Count a device slot that stayed empty; many of them make the search analyse the whole node once."""
        self._dead_ends += 1 + refused // _EXCLUSIONS_PER_DEAD_END

    def _is_infeasible(self) -> bool:
        if self._dead_ends < _DEAD_ENDS_BEFORE_PRUNING or self._is_analysed:
            return False
        if self._node_analysis is None:
            self._node_analysis = self._analyse_node()
        demand, error_free_claims, pruning_index = self._node_analysis
        infeasible = pruning_index is not None and (
            pruning_index.is_infeasible(error_free_claims)
            or (pruning_index.is_monotone and self._has_infeasible_claim(demand, error_free_claims))
        )
        self._is_analysed, self._node_analysis = True, None
        self._claim_searches.clear()
        return infeasible

    def _analyse_node(self) -> "_NodeAnalysis":
        self._memory = ExactStateIndex(self._demand, len(self.node_view.pools.devices))
        demand = error_free_prefix(self._demand, self.node_view, self.eligibility)
        error_free_claims = next(
            (index for index, each in enumerate(demand.claims) if may_end_in_error(each)), len(demand.claims)
        )
        if self._pruning_index is None:
            self._pruning_index = PruningIndex(demand, self.node_view, self._all_mode, self.eligibility)
        pruning_index = self._pruning_index
        try:
            pruning_index.find()
        except SearchEndedError:
            return _NodeAnalysis(demand, error_free_claims, None)  # the time is up
        if demand is self._demand and error_free_claims == len(demand.claims):
            self.pruning_index = self._memory = pruning_index
        return _NodeAnalysis(demand, error_free_claims, pruning_index)

    def _has_infeasible_claim(self, demand: Demand, error_free_claims: int) -> bool:
        """Whether some claim of several could not even be met if it were the only one.

        Of the claims that may end in an error, only the first one (number `error_free_claims`) is asked: if a search for this claim
        alone ends without an error, a search for all claims does too.
        """
        claims = demand.claims[: error_free_claims + 1] if len(self._demand.claims) > 1 else ()
        for index, claim in enumerate(claims):
            if index == error_free_claims and not never_exceeds_max_results(index, claim, self._all_mode):
                continue
            alone = self._claim_searches.get(index)
            if alone is None:
                all_mode = {(0, *key[1:]): found for key, found in self._all_mode.items() if key[0] == index}
                alone = Search(replace(demand, claims=(claim,)), self.node_view, all_mode, _MAX_STEPS_PER_CLAIM)
                self._claim_searches[index] = alone
            if not alone.may_be_feasible():
                return True
        return False

    def may_be_feasible(self) -> bool:
        """Whether there is a solution, as far as can be found out; may be asked again, also after a pause."""
        if self._may_be_feasible is None:
            try:
                self._may_be_feasible = self.run()
            except SearchEndedError:
                self._may_be_feasible = True
        return self._may_be_feasible

    def _is_known_failure(self, memory: PruningIndex | ExactStateIndex) -> bool:
        """Whether this request failed before with equal devices picked; if not, its failure will be remembered."""
        state = self._state(memory)
        if state in self.nogoods:
            return True
        self._frames.append(NogoodFrame(state))
        return False

    def _state(self, memory: PruningIndex | ExactStateIndex) -> Hashable:
        """Everything that decides whether the requests from here on can be met, up to interchangeable devices."""
        state, claim = self.state, self._claim
        rest, symmetry_class = memory.remaining_requests(claim, self._request), memory.symmetry_class
        whole = sorted(
            (symmetry_class[location], claims.bit_count(), claims >> claim & 1)
            for location, claims in state.picked_devices()
            if rest.devices >> location & 1
        )
        shared = sorted(
            (symmetry_class[location], total)
            for location, total in state.shared_devices()
            if rest.devices >> location & 1
        )
        states = state.constraint_states(claim)
        bound = tuple(states[index] for index in rest.constraints)
        return claim, self._request, state.size(claim), bound, tuple(whole), tuple(shared)

    def _check_limits(self) -> None:
        if self.steps > self._max_steps:
            raise SearchEndedError(
                Rejection(code=Code.SEARCH_LIMIT, detail=f"no result after {self._max_steps} steps"), counted=True
            )
        deadline = self.node_view.deadline
        # The first step asks too: a deadline that has passed before ends the shortest search.
        if deadline is not None and not (self.steps - 1) & self._poll and deadline():
            raise SearchEndedError(Rejection(code=Code.SEARCH_LIMIT, detail=f"time was up after {self.steps} steps"))
