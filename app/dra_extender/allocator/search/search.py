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
from dra_extender.allocator.search.error_safety import is_never_too_large, may_break_off, unfailing
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
from dra_extender.allocator.search.other_releases import begin
from dra_extender.allocator.search.pruning import ExactStateIndex, PruningIndex
from dra_extender.allocator.search_state import Exclusion
from dra_extender.allocator.state.result import SearchEndedError, SearchPaused
from dra_extender.model.rejection import Code, Rejection

Option = tuple[int, int, int]
"""(claim, request, option of the request)."""

_POLL: Final = 15
_VAIN_BEFORE_LOOKOUT: Final = 64
_REFUSALS_LIKE_A_DEAD_END: Final = 4
_STEPS_ALONE: Final = 2_000
_MANY_DEVICES: Final = 256


class _Lookout(NamedTuple):
    """What a look at the whole node found: how many claims of the demand cannot fail, and what can be taken, if that is known."""

    demand: Demand
    calm: int
    outlook: PruningIndex | None


class Search:
    """One search on one node; `run` until it returns, then read `attempt`, `chosen`, `steps` and `shortfall`."""

    __slots__ = (
        "_alone",
        "_claim",
        "_demand",
        "_eligibilities",
        "_finding",
        "_frames",
        "_gathered",
        "_looked_out",
        "_lookout",
        "_max_steps",
        "_memory",
        "_met",
        "_option",
        "_outcome",
        "_picked",
        "_poll",
        "_request",
        "_start",
        "_vain",
        "attempt",
        "chosen",
        "facts",
        "failed_states",
        "order",
        "outlook",
        "shortfall",
        "steps",
    )

    def __init__(
        self,
        demand: Demand,
        facts: NodeView,
        gathered: Mapping[Option, tuple[int, ...]],
        max_steps: int,
        order: DeviceOrder | None = None,
    ) -> None:
        """Try the devices of a request by location, or in this order."""
        self.facts = facts
        self.order = order
        self.attempt, may_skip = begin(demand, facts)
        self.steps = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self.shortfall = Shortfall(demand, facts, self.attempt)
        self.outlook: PruningIndex | None = None
        self._memory: PruningIndex | ExactStateIndex | None = None
        self.failed_states: set[Hashable] = set()
        self._vain = 0
        self._looked_out = not may_skip
        self._demand = demand
        self._gathered = gathered
        self._max_steps = max_steps
        self._frames: list[SearchFrame] = []
        self._eligibilities: dict[Option, Eligibility] = {}
        # The call that comes next.
        self._claim = self._request = self._picked = self._start = 0
        self._option = NOT_CHOSEN
        # What `run` goes on with: the outcome that the frame on top has still to judge, or the next call.
        self._outcome = FrameResult.GOES_ON
        self._lookout: _Lookout | None = None
        self._finding: PruningIndex | None = None
        self._alone: dict[int, Search] = {}
        self._met: bool | None = None
        self._poll = _POLL if len(facts.pools.devices) < _MANY_DEVICES else 0

    def run(self) -> bool:
        """Whether there is a solution; the picks of the first one are then in `attempt`.

        Raises:
            Fatal: a selector failed, mode All met a constraint, or the search was stopped at its limit.
            Paused: the deadline raised it; a further `run` goes on, and takes the same steps as if there had been no pause.
        """
        frames, outcome = self._frames, self._outcome
        depth, steps = len(frames), self.steps
        try:
            while not self._is_hopeless():
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
        every = self._gathered.get((claim, request, option)) if wanted.count == ALL else None
        count = wanted.count if every is None else len(every)
        if wanted.count == ALL and not every:
            self.shortfall.note(place, self.eligibility(claim, request, option, wanted), {})
            return FrameResult.FAILED
        if place.picked >= count:
            return self.call(claim, request + 1)
        total = self.attempt.size(claim) + count - place.picked
        if total > MAX_RESULTS:
            self.shortfall.note_too_many(place, total)
            return FrameResult.TOO_MANY
        eligibility, mark = self.eligibility(claim, request, option, wanted), self.attempt.trail.mark()
        frame: AllModeFrame | DeviceLoop
        if every is not None:
            frame = AllModeFrame(mark)
            outcome = self._take_gathered(place, every[place.picked], eligibility)
        else:
            frame = DeviceLoop(place, self._option, self._start, eligibility, mark)
            outcome = frame.advance(self)
        if outcome is FrameResult.GOES_ON:
            self._frames.append(frame)
        return outcome

    def _take_gathered(self, place: DeviceSlot, location: int, eligibility: Eligibility) -> FrameResult:
        """Take the next device of mode All; no other candidate exists."""
        claim, request, picked, wanted = place
        refusals: dict[int, Exclusion] = {}
        if eligibility.of(location) == DeviceVerdict.ELIGIBLE:
            refusal = self.attempt.take(claim, wanted, location)
            if not refusal:
                return self.call(claim, request, self._option, picked + 1)
            if refusal is Exclusion.CONSTRAINT:
                raise SearchEndedError(self.shortfall.constraint_refuses(claim, wanted, location))
            refusals[location] = refusal
        self.shortfall.note(place, eligibility, refusals, only=location)
        return FrameResult.FAILED

    def eligibility(self, claim: int, request: int, option: int, wanted: SearchableRequest) -> Eligibility:
        """The standings of the devices for one request option, shared by all its frames."""
        key = (claim, request, option)
        found = self._eligibilities.get(key)
        if found is None:
            label = self._demand.claims[claim].label
            found = self._eligibilities[key] = Eligibility(wanted, label, self.facts)
        return found

    def dead_end(self, refused: int) -> None:
        """Count a place that no device could fill; many of them make the search look at the whole node once."""
        self._vain += 1 + refused // _REFUSALS_LIKE_A_DEAD_END

    def _is_hopeless(self) -> bool:
        if self._vain < _VAIN_BEFORE_LOOKOUT or self._looked_out:
            return False
        if self._lookout is None:
            self._lookout = self._look_out()
        demand, calm, outlook = self._lookout
        hopeless = outlook is not None and (
            outlook.is_hopeless(calm) or (outlook.more_is_less and self._has_a_hopeless_claim(demand, calm))
        )
        self._looked_out, self._lookout = True, None
        self._alone.clear()
        return hopeless

    def _look_out(self) -> "_Lookout":
        self._memory = ExactStateIndex(self._demand, len(self.facts.pools.devices))
        demand = unfailing(self._demand, self.facts, self.eligibility)
        calm = next((index for index, each in enumerate(demand.claims) if may_break_off(each)), len(demand.claims))
        if self._finding is None:
            self._finding = PruningIndex(demand, self.facts, self._gathered, self.eligibility)
        outlook = self._finding
        try:
            outlook.find()
        except SearchEndedError:
            return _Lookout(demand, calm, None)  # the time is up
        if demand is self._demand and calm == len(demand.claims):
            self.outlook = self._memory = outlook
        return _Lookout(demand, calm, outlook)

    def _has_a_hopeless_claim(self, demand: Demand, calm: int) -> bool:
        """Whether some claim of several could not even be met if it were the only one.

        Of those that may end in an error only the first can tell, after `calm` claims: if it ends without one when it is alone,
        it does so with others beside it, too.
        """
        claims = demand.claims[: calm + 1] if len(self._demand.claims) > 1 else ()
        for index, claim in enumerate(claims):
            if index == calm and not is_never_too_large(index, claim, self._gathered):
                continue
            alone = self._alone.get(index)
            if alone is None:
                gathered = {(0, *key[1:]): found for key, found in self._gathered.items() if key[0] == index}
                alone = Search(replace(demand, claims=(claim,)), self.facts, gathered, _STEPS_ALONE)
                self._alone[index] = alone
            if not alone.met():
                return True
        return False

    def met(self) -> bool:
        """Whether there is a solution, as far as can be found out; may be asked again, also after a pause."""
        if self._met is None:
            try:
                self._met = self.run()
            except SearchEndedError:
                self._met = True
        return self._met

    def _is_known_failure(self, memory: PruningIndex | ExactStateIndex) -> bool:
        """Whether this request failed before with equal devices picked; if not, its failure will be remembered."""
        state = self._state(memory)
        if state in self.failed_states:
            return True
        self._frames.append(NogoodFrame(state))
        return False

    def _state(self, memory: PruningIndex | ExactStateIndex) -> Hashable:
        """Everything that decides whether the requests from here on can be met, up to interchangeable devices."""
        attempt, claim = self.attempt, self._claim
        rest, alike = memory.rest(claim, self._request), memory.alike
        whole = sorted(
            (alike[location], claims.bit_count(), claims >> claim & 1)
            for location, claims in attempt.marks()
            if rest.devices >> location & 1
        )
        shared = sorted(
            (alike[location], total) for location, total in attempt.shares() if rest.devices >> location & 1
        )
        states = attempt.constraint_states(claim)
        bound = tuple(states[index] for index in rest.constraints)
        return claim, self._request, attempt.size(claim), bound, tuple(whole), tuple(shared)

    def _check_limits(self) -> None:
        if self.steps > self._max_steps:
            raise SearchEndedError(
                Rejection(code=Code.SEARCH_LIMIT, detail=f"no result after {self._max_steps} steps"), counted=True
            )
        deadline = self.facts.deadline
        # The first step asks too: a deadline that has passed before ends the shortest search.
        if deadline is not None and not (self.steps - 1) & self._poll and deadline():
            raise SearchEndedError(Rejection(code=Code.SEARCH_LIMIT, detail=f"time was up after {self.steps} steps"))
