"""Depth-first search for the first solution, in upstream's order.

Claims, requests and alternatives are tried as written, devices by location unless another order is given.  The recursion of
upstream's allocator is a stack of frames here, so that no demand is too deep.  Each call of upstream's recursive function is one
step.  For two claims, the first with alternatives for its request, the stack grows downwards:

    Alternatives   claim 0, request 0     which alternative of the request
    DeviceLoop     claim 0, request 0, 0  which device for the first slot
    DeviceLoop     claim 0, request 0, 1  which device for the second slot
    ClaimEnd       claim 0
    NogoodFrame    claim 1, request 0     records the state as a nogood if all below fails (after many dead ends)
    AllModeFrame   claim 1, request 0, 0  the one device that mode All has for this slot

A round of `Search.solve` either makes the next call, which may push a frame, or passes a result to the top frame.  Three results
travel up: FOUND, FAILED, and TOO_MANY (more devices than a claim may have).  TOO_MANY passes the device loops.  Alternatives answer
it with the next alternative; at the end of an earlier claim it becomes FAILED.
"""

import sys
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from typing import Final

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.explain.shortfall import Shortfall
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.search.all_mode import AllModeLocations, OptionKey
from dra_extender.allocator.search.feasibility import Feasibility
from dra_extender.allocator.search.pruning import Mask, Nogoods, PruningIndex
from dra_extender.allocator.search_state import DeviceSlot, SearchState
from dra_extender.allocator.state.reasons import Code, Rejection, SearchEndedError, SearchPaused, time_is_up

NOT_CHOSEN: Final = -1
"""Option index of a call if no alternative is chosen: the request has none, or they are not tried yet."""
_POLL: Final = 15
_DEAD_ENDS_BEFORE_PRUNING: Final = 64
_EXCLUSIONS_PER_DEAD_END: Final = 4
_MANY_DEVICES: Final = 256
_MAX_STEPS_PER_CLAIM: Final = 2_000
_NEVER: Final = sys.maxsize


class FrameResult(IntEnum):
    """The result of a call; GOES_ON means that another call comes first."""

    GOES_ON = 0
    FOUND = 1
    FAILED = 2
    TOO_MANY = 3


class Search:
    """One search on one node; `solve` until it returns, then read `state`, `chosen`, `steps` and `shortfall`."""

    def __init__(
        self,
        demand: Demand,
        state: SearchState,
        all_mode: AllModeLocations,
        max_steps: int,
        order: DeviceOrder | None = None,
    ) -> None:
        """`state` has no picks.  The search tries the devices of a request by location, or in this order."""
        self.node_view = node_view = state.node_view
        devices = len(node_view.pools.devices)
        self.order = order
        self.locations: Sequence[int]
        self.ranks: Sequence[int]
        self.locations, self.ranks = order or (range(devices),) * 2
        self.state = state
        self.steps = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self.pruning_index: PruningIndex | None = None
        self.nogoods: Nogoods | None = None
        self._shortfall: Shortfall | None = None
        self._feasibility: Feasibility | None = None
        self._dead_ends = 0
        # The number of dead ends at which the search begins to prune.
        self._prune_at = _DEAD_ENDS_BEFORE_PRUNING
        self.demand = demand
        self._all_mode = all_mode
        self._max_steps = max_steps
        self._frames: list[SearchFrame] = []
        self._eligibilities: dict[OptionKey, Eligibility] = {}
        # The call that comes next.
        self._claim = self._request = self._picked = self._start = 0
        self._option_index = NOT_CHOSEN
        # What `solve` goes on with after a pause: the result for the top frame, or GOES_ON for the next call.
        self._result = FrameResult.GOES_ON
        self._poll = _POLL if devices < _MANY_DEVICES else 0

    @property
    def shortfall(self) -> Shortfall:
        """Why the deepest slot that the search reached could not be filled; a search that fills every slot makes none."""
        if self._shortfall is None:
            self._shortfall = Shortfall(self.demand, self.node_view, self.state)
        return self._shortfall

    def solve(self) -> bool:
        """Return whether there is a solution; the picks of the first one are then in `state`.

        Raises:
            SearchEndedError: a selector failed, mode All met a constraint, or the search was stopped at its limit.
            SearchPaused: the deadline raised it; a further call goes on, and takes the same steps as if there had been no pause.
        """
        frames, result = self._frames, self._result
        depth, steps = len(frames), self.steps
        try:
            while self._dead_ends < self._prune_at or not self._begin_pruning():
                if result is FrameResult.GOES_ON:
                    result = self._step()
                elif not frames:
                    return result is FrameResult.FOUND
                else:
                    result = frames[-1].resume(self, result)
                    if result is not FrameResult.GOES_ON:
                        frames.pop()
                depth, steps = len(frames), self.steps
        except SearchPaused:
            # The interrupted round is repeated; it makes the same changes again.
            del frames[depth:]
            self._result, self.steps = result, steps
            raise
        return False

    def call_next(
        self, claim: int, request: int, option_index: int = NOT_CHOSEN, picked: int = 0, start: int = 0
    ) -> FrameResult:
        """Make this the next call; always returns GOES_ON."""
        self._claim, self._request, self._option_index = claim, request, option_index
        self._picked, self._start = picked, start
        return FrameResult.GOES_ON

    def add_dead_end(self, exclusions: int) -> None:
        """Count a device slot that stayed empty after so many eligible devices were excluded."""
        self._dead_ends += 1 + exclusions // _EXCLUSIONS_PER_DEAD_END

    def eligibility(self, claim: int, request: int, option_index: int, option: SearchableRequest) -> Eligibility:
        """Return the verdicts about devices for one option of a request, shared by all its frames."""
        key = (claim, request, option_index)
        eligibility = self._eligibilities.get(key)
        if eligibility is None:
            label = self.demand.claims[claim].label
            eligibility = self._eligibilities[key] = Eligibility(option, label, self.node_view)
        return eligibility

    def _begin_pruning(self) -> bool:
        """Return whether the demand is found to have no solution; if not, skip from now on the states that are known to fail."""
        if self._feasibility is None:
            self._feasibility = Feasibility(
                self.demand, self.node_view, self._all_mode, self.eligibility, self._search_alone
            )
        infeasible = self._feasibility.is_infeasible()
        self.pruning_index = self._feasibility.pruning_index
        self.nogoods = Nogoods(self.demand, len(self.node_view.pools.devices), self.pruning_index)
        self._prune_at = _NEVER
        return infeasible

    def _search_alone(self, alone: Demand, all_mode: AllModeLocations) -> Callable[[], bool]:
        return Search(alone, SearchState(alone, self.node_view), all_mode, _MAX_STEPS_PER_CLAIM).solve

    def _step(self) -> FrameResult:
        self.steps += 1
        if self.steps > self._max_steps:
            raise SearchEndedError(
                Rejection(code=Code.SEARCH_LIMIT, detail=f"no result after {self._max_steps} steps"), at_step_limit=True
            )
        deadline = self.node_view.deadline
        # The first step asks too: a deadline that has passed before ends the shortest search.
        if deadline is not None and not (self.steps - 1) & self._poll and deadline():
            raise time_is_up("before the search came to an end")
        claim, request, option_index, picked = self._claim, self._request, self._option_index, self._picked
        claims = self.demand.claims
        if claim == len(claims):
            return FrameResult.FOUND
        requests = claims[claim].requests
        if request == len(requests):
            self._frames.append(CLAIM_END)
            return self.call_next(claim + 1, 0)
        if self.nogoods is not None and option_index == NOT_CHOSEN and not picked:
            key = self.nogoods.key(self.state, claim, request)
            if key in self.nogoods:
                return FrameResult.FAILED
            self._frames.append(NogoodFrame(self.nogoods, key))
        requested = requests[request]
        if requested.prioritized and option_index == NOT_CHOSEN:
            self._frames.append(Alternatives(claim, request, requested))
            return self.call_next(claim, request, 0)
        return self._pick(claim, request, picked, requested)

    def _pick(self, claim: int, request: int, picked: int, requested: RequestDemand) -> FrameResult:
        option_index = max(self._option_index, 0)
        option = requested.options[option_index]
        slot = DeviceSlot(claim, request, picked, option)
        locations = self._all_mode.get((claim, request, option_index)) if option.count == ALL else None
        count = option.count if locations is None else len(locations)
        if option.count == ALL and not locations:
            self.shortfall.record_shortfall(slot, self.eligibility(claim, request, option_index, option), {})
            return FrameResult.FAILED
        if picked >= count:
            return self.call_next(claim, request + 1)
        total = self.state.sizes.get(claim, 0) + count - picked
        if total > MAX_RESULTS:
            self.shortfall.record_too_many(slot, total)
            return FrameResult.TOO_MANY
        eligibility, mark = self.eligibility(claim, request, option_index, option), self.state.trail.mark()
        frame: AllModeFrame | DeviceLoop
        if locations is not None:
            frame = AllModeFrame(mark)
            result = self._pick_all_mode(slot, locations[picked], eligibility)
        else:
            frame = DeviceLoop(slot, self._option_index, self._start, eligibility, mark)
            result = frame.pick_next(self)
        if result is FrameResult.GOES_ON:
            self._frames.append(frame)
        return result

    def _pick_all_mode(self, slot: DeviceSlot, location: int, eligibility: Eligibility) -> FrameResult:
        """Pick the next device of mode All; no other candidate exists."""
        claim, request, picked, option = slot
        exclusions: dict[int, Code] = {}
        if eligibility.verdict(location) == DeviceVerdict.ELIGIBLE:
            exclusion = self.state.try_pick(claim, option, location)
            if not exclusion:
                return self.call_next(claim, request, self._option_index, picked + 1)
            if exclusion is Code.CONSTRAINT:
                raise SearchEndedError(self.shortfall.constraint_rejection(claim, option, location))
            exclusions[location] = exclusion
        self.shortfall.record_shortfall(slot, eligibility, exclusions, only=location)
        return FrameResult.FAILED


class ClaimEnd:
    """Turns TOO_MANY of a later claim into FAILED for the claims before it.

    `resume` of a frame returns the result of the frame, which is then removed, or GOES_ON if it has made another call.
    """

    __slots__ = ()

    def resume(self, search: Search, result: FrameResult) -> FrameResult:  # noqa: ARG002 - as every frame
        return FrameResult.FAILED if result is FrameResult.TOO_MANY else result


CLAIM_END: Final = ClaimEnd()


class NogoodFrame:
    """Records a nogood when a request fails; TOO_MANY does not depend only on the state and is not recorded."""

    __slots__ = ("_key", "_nogoods")

    def __init__(self, nogoods: Nogoods, key: Hashable) -> None:
        self._nogoods = nogoods
        self._key = key

    def resume(self, search: Search, result: FrameResult) -> FrameResult:  # noqa: ARG002 - as every frame
        if result is FrameResult.FAILED:
            self._nogoods.add(self._key)
        return result


class Alternatives:
    """Tries the alternatives of a request in order of preference."""

    __slots__ = ("_claim", "_only_too_many", "_option_index", "_options", "_request")

    def __init__(self, claim: int, request: int, requested: RequestDemand) -> None:
        self._claim = claim
        self._request = request
        self._options = len(requested.options)
        self._option_index = 0
        self._only_too_many = True

    def resume(self, search: Search, result: FrameResult) -> FrameResult:
        if result is not FrameResult.TOO_MANY:
            self._only_too_many = False
        if result is FrameResult.FOUND:
            search.chosen[self._claim, self._request] = self._option_index
            return result
        self._option_index += 1
        if self._option_index < self._options:
            return search.call_next(self._claim, self._request, self._option_index)
        return FrameResult.TOO_MANY if self._only_too_many else FrameResult.FAILED


class AllModeFrame:
    """One picked device of mode All; undoes the pick if the rest fails."""

    __slots__ = ("_mark",)

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def resume(self, search: Search, result: FrameResult) -> FrameResult:
        if result is not FrameResult.FOUND:
            search.state.trail.undo_to(self._mark)
        return result


class DeviceLoop:
    """Tries one device after the other for one slot of a request with mode ExactCount."""

    __slots__ = (
        "_candidates",
        "_eligibility",
        "_exclusions",
        "_failed",
        "_has_picked",
        "_mark",
        "_next",
        "_option_index",
        "_slot",
    )

    def __init__(self, slot: DeviceSlot, option_index: int, start: int, eligibility: Eligibility, mark: int) -> None:
        """Try the devices from rank `start` on; undo to `mark` between them."""
        self._slot = slot
        self._option_index = option_index
        self._next = start
        self._eligibility = eligibility
        self._mark = mark
        self._has_picked = False
        self._candidates: Mask | None = None
        self._failed: set[Hashable] = set()
        self._exclusions: dict[int, Code] = {}

    def pick_next(self, search: Search) -> FrameResult:
        """Pick the next device that can be picked and make the call for the next slot, or fail."""
        state, verdict, (claim, request, picked, option) = search.state, self._eligibility.verdict, self._slot
        index = search.pruning_index
        for location in search.locations[self._next :]:
            if state.is_picked(claim, option, location) or verdict(location) != DeviceVerdict.ELIGIBLE:
                continue
            if index is not None:
                if _interchange_key(index, state, location) in self._failed:
                    continue
                if not self._can_still_fill(search, index, search.ranks[location]):
                    break
            exclusion = state.try_pick(claim, option, location)
            if not exclusion:
                self._next = 1 + search.ranks[location]
                self._has_picked = True
                return search.call_next(claim, request, self._option_index, picked + 1, self._next)
            self._exclusions[location] = exclusion
            if index is not None:
                # An interchangeable device would be excluded, too.
                self._failed.add(_interchange_key(index, state, location))
        if not self._has_picked:
            search.shortfall.record_shortfall(self._slot, self._eligibility, self._exclusions)
        search.add_dead_end(len(self._exclusions))
        return FrameResult.FAILED

    def resume(self, search: Search, result: FrameResult) -> FrameResult:
        if result is FrameResult.FOUND:
            return result
        search.state.trail.undo_to(self._mark)
        if result is FrameResult.TOO_MANY:
            return result
        if search.pruning_index is not None:
            # An interchangeable device in the same slot would fail in the same way.
            location = search.locations[self._next - 1]
            self._failed.add(_interchange_key(search.pruning_index, search.state, location))
        return self.pick_next(search)

    def _can_still_fill(self, search: Search, index: PruningIndex, rank: int) -> bool:
        """Return whether the candidates from this rank on suffice for the slots that are still empty."""
        claim, request, picked, option = self._slot
        if self._candidates is None:
            # Whenever this frame tries a device, picks and constraints are those with which it began.
            candidates = index.candidates((claim, request, max(self._option_index, 0)), search.state)
            self._candidates = candidates if search.order is None else search.order.ranked(candidates)
        return (self._candidates >> rank).bit_count() >= option.count - picked


SearchFrame = ClaimEnd | NogoodFrame | Alternatives | AllModeFrame | DeviceLoop
"""Waits for the result of a call that it made."""


def _interchange_key(index: PruningIndex, state: SearchState, location: int) -> Hashable:
    """Return a key that is equal for devices that are interchangeable beside the picks so far."""
    claims, share = state.claims_by_device.get(location, 0), state.shares.get(location)
    return index.symmetry_class[location], claims, share, state.is_member(location)
