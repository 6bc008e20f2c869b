"""Depth-first search for the first solution, in upstream's order.

Claims, requests and alternatives are tried as written, devices by location unless another order is given.  The recursion of
upstream's allocator is a stack of frames here, so that no demand is too deep.  Each call of upstream's recursive function is one
step.  For two claims, the first with alternatives for its request, the stack grows downwards:

    Alternatives   claim 0, request 0     which alternative of the request
    DeviceLoop     claim 0, request 0, 0  which device for the first slot
    DeviceLoop     claim 0, request 0, 1  which device for the second slot
    ClaimEnd       claim 0
    NogoodFrame    claim 1, request 0     records the state as a nogood if all below fails (once there is a pruner)
    AllModeFrame   claim 1, request 0, 0  the one device that mode All has for this slot

A round of `Search.run` either makes the next call, which may push a frame, or passes a result to the top frame.  Three results
travel up: FOUND, FAILED, and TOO_MANY (more devices than a claim may have), which skips device loops and stops at the nearest
alternatives, or becomes FAILED at the end of the claim before.
"""

import sys
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.explain.device_reasons import DeviceSlot
from dra_extender.allocator.explain.shortfall import Shortfall
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations, Option
from dra_extender.allocator.search.error_safety import FindEligibility
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
from dra_extender.allocator.search.pruning import PruningIndex
from dra_extender.allocator.search_state import Exclusion, SearchState
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import SearchEndedError, SearchPaused

_POLL: Final = 15
_DEAD_ENDS_BEFORE_PRUNING: Final = 64
_EXCLUSIONS_PER_DEAD_END: Final = 4
_MANY_DEVICES: Final = 256
_NEVER: Final = sys.maxsize


class Pruner(Protocol):
    """Knows what a search may skip; a skip never changes the answer.  A search makes one after many dead ends."""

    index: PruningIndex | None
    """Candidates and symmetry classes of the devices, after `is_infeasible`; None if devices may not be skipped by them."""

    def is_infeasible(self) -> bool:
        """Analyse the node; True if the demand certainly has no solution there.

        Raises:
            SearchPaused: the deadline raised it; a further call goes on.
        """
        ...

    def nogood_key(self, state: SearchState, claim: int, request: int) -> Hashable:
        """Equal keys: the requests from this one on fail in the one state as in the other."""
        ...


NewPruner = Callable[[Demand, NodeView, AllModeLocations, FindEligibility], Pruner]


class Search:
    """One search on one node; `run` until it returns, then read `state`, `chosen`, `steps` and `shortfall`."""

    __slots__ = (
        "_all_mode",
        "_claim",
        "_dead_ends",
        "_demand",
        "_eligibilities",
        "_frames",
        "_max_steps",
        "_new_pruner",
        "_option",
        "_picked",
        "_poll",
        "_prune_at",
        "_pruner",
        "_request",
        "_result",
        "_shortfall",
        "_start",
        "chosen",
        "node_view",
        "nogoods",
        "order",
        "pruning_index",
        "state",
        "steps",
    )

    def __init__(
        self,
        demand: Demand,
        state: SearchState,
        all_mode: AllModeLocations,
        new_pruner: NewPruner,
        max_steps: int,
        order: DeviceOrder | None = None,
    ) -> None:
        """`state` has no picks.  The search tries the devices of a request by location, or in this order."""
        self.node_view = node_view = state.node_view
        self.order = order
        self.state = state
        self.steps = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self._shortfall: Shortfall | None = None
        self.nogoods: set[Hashable] = set()
        self.pruning_index: PruningIndex | None = None
        self._new_pruner = new_pruner
        self._pruner: Pruner | None = None
        self._dead_ends = 0
        # The number of dead ends at which the search asks the pruner, once.
        self._prune_at = _DEAD_ENDS_BEFORE_PRUNING if state.undo_is_exact else _NEVER
        self._demand = demand
        self._all_mode = all_mode
        self._max_steps = max_steps
        self._frames: list[SearchFrame] = []
        self._eligibilities: dict[Option, Eligibility] = {}
        # The call that comes next.
        self._claim = self._request = self._picked = self._start = 0
        self._option = NOT_CHOSEN
        # What `run` goes on with after a pause: the result for the top frame, or GOES_ON for the next call.
        self._result = FrameResult.GOES_ON
        self._poll = _POLL if len(node_view.pools.devices) < _MANY_DEVICES else 0

    @property
    def shortfall(self) -> Shortfall:
        """Why the deepest slot that the search reached could not be filled; a search that fills every slot makes none."""
        if self._shortfall is None:
            self._shortfall = Shortfall(self._demand, self.node_view, self.state)
        return self._shortfall

    def run(self) -> bool:
        """Whether there is a solution; the picks of the first one are then in `state`.

        Raises:
            SearchEndedError: a selector failed, mode All met a constraint, or the search was stopped at its limit.
            SearchPaused: the deadline raised it; a further `run` goes on, and takes the same steps as if there had been no pause.
        """
        frames, result = self._frames, self._result
        depth, steps = len(frames), self.steps
        try:
            while self._dead_ends < self._prune_at or not self._is_infeasible():
                if result is FrameResult.GOES_ON:
                    result = self._enter()
                elif not frames:
                    return result is FrameResult.FOUND
                else:
                    result = frames[-1].resume(self, result)
                    if result is not FrameResult.GOES_ON:
                        frames.pop()
                depth, steps = len(frames), self.steps
        except SearchPaused:
            # The round that was interrupted is made again, and changes again what it changed so far.
            del frames[depth:]
            self._result, self.steps = result, steps
            raise
        return False

    def call(self, claim: int, request: int, option: int = NOT_CHOSEN, picked: int = 0, start: int = 0) -> FrameResult:
        """Make this the next call."""
        self._claim, self._request, self._option, self._picked, self._start = claim, request, option, picked, start
        return FrameResult.GOES_ON

    def add_dead_end(self, exclusions: int) -> None:
        """Count a device slot that stayed empty after so many eligible devices were excluded."""
        self._dead_ends += 1 + exclusions // _EXCLUSIONS_PER_DEAD_END

    def eligibility(self, claim: int, request: int, option: int, wanted: SearchableRequest) -> Eligibility:
        """The verdicts about devices for one request option, shared by all its frames."""
        key = (claim, request, option)
        found = self._eligibilities.get(key)
        if found is None:
            label = self._demand.claims[claim].label
            found = self._eligibilities[key] = Eligibility(wanted, label, self.node_view)
        return found

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
        pruner = self._pruner
        if pruner is not None and self._option == NOT_CHOSEN and not self._picked and self._is_nogood(pruner):
            return FrameResult.FAILED
        requested = requests[request]
        if requested.prioritized and self._option == NOT_CHOSEN:
            self._frames.append(Alternatives(claim, request, requested))
            return self.call(claim, request, 0)
        return self._pick(claim, request, requested)

    def _pick(self, claim: int, request: int, requested: RequestDemand) -> FrameResult:
        option = max(self._option, 0)
        wanted = requested.options[option]
        place = DeviceSlot(claim, request, self._picked, wanted)
        locations = self._all_mode.get((claim, request, option)) if wanted.count == ALL else None
        count = wanted.count if locations is None else len(locations)
        if wanted.count == ALL and not locations:
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
        if locations is not None:
            frame = AllModeFrame(mark)
            result = self._pick_all_mode(place, locations[place.picked], eligibility)
        else:
            frame = DeviceLoop(place, self._option, self._start, eligibility, mark)
            result = frame.advance(self)
        if result is FrameResult.GOES_ON:
            self._frames.append(frame)
        return result

    def _pick_all_mode(self, place: DeviceSlot, location: int, eligibility: Eligibility) -> FrameResult:
        """Pick the next device of mode All; no other candidate exists."""
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

    def _is_infeasible(self) -> bool:
        """Whether the pruner, asked once, rules out every solution; afterwards the search prunes by what the pruner found."""
        if self._pruner is None:
            self._pruner = self._new_pruner(self._demand, self.node_view, self._all_mode, self.eligibility)
        infeasible = self._pruner.is_infeasible()
        self.pruning_index = self._pruner.index
        self._prune_at = _NEVER
        return infeasible

    def _is_nogood(self, pruner: Pruner) -> bool:
        """Whether this request failed in an equal state before; if not, a frame waits to record that it does."""
        key = pruner.nogood_key(self.state, self._claim, self._request)
        if key in self.nogoods:
            return True
        self._frames.append(NogoodFrame(key))
        return False

    def _check_limits(self) -> None:
        if self.steps > self._max_steps:
            raise SearchEndedError(
                Rejection(code=Code.SEARCH_LIMIT, detail=f"no result after {self._max_steps} steps"), counted=True
            )
        deadline = self.node_view.deadline
        # The first step asks too: a deadline that has passed before ends the shortest search.
        if deadline is not None and not (self.steps - 1) & self._poll and deadline():
            raise SearchEndedError(
                Rejection(code=Code.SEARCH_LIMIT, detail="time was up before the search came to an end")
            )
