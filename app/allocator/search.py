"""Depth-first search for the first solution, in upstream's order.

Claims, requests and alternatives go as written, devices by location.  The recursion of upstream is a stack of frames here, so the
depth of a pod's wishes is no matter.  Each call of upstream's recursive function is one step.  Three outcomes travel up the stack:
FOUND, FAILED, and TOO_MANY (more devices than a claim may have), which skips the device loops and stops at the nearest list of
alternatives, or at the claim's end as FAILED.
"""

from collections.abc import Hashable, Mapping
from enum import IntEnum
from typing import Final, Protocol

from app.allocator.attempt import Attempt, Refusal
from app.allocator.demand import ALL, Demand, RequestDemand, Wanted
from app.allocator.eligibility import Eligibility, NodeFacts, Standing
from app.allocator.explanation import Place, Shortfall
from app.allocator.outcome import Fatal
from app.allocator.outlook import Outlook
from app.allocator.requests import MAX_RESULTS
from app.model.rejection import Code, Rejection

Option = tuple[int, int, int]
"""(claim, request, option of the request)."""

_POLL: Final = 15
_DEAD_ENDS_BEFORE_LOOKOUT: Final = 64
_NOT_CHOSEN: Final = -1
_MAX_FAILED_STATES: Final = 50_000


class Outcome(IntEnum):
    """What a call ended with; GOES_ON means that another call comes first."""

    GOES_ON = 0
    FOUND = 1
    FAILED = 2
    TOO_MANY = 3


class _Frame(Protocol):
    def resume(self, search: "Search", outcome: Outcome) -> Outcome:
        """Judge the outcome of the call this frame made: GOES_ON after making another, else its own outcome; it is then done."""
        ...


class Search:
    """One search on one node; `run` once, then read `attempt`, `chosen`, `steps` and `shortfall`."""

    __slots__ = (
        "_claim",
        "_dead_ends",
        "_demand",
        "_eligibilities",
        "_frames",
        "_gathered",
        "_max_steps",
        "_option",
        "_picked",
        "_request",
        "_start",
        "attempt",
        "chosen",
        "facts",
        "failed_states",
        "outlook",
        "shortfall",
        "steps",
    )

    def __init__(
        self, demand: Demand, facts: NodeFacts, gathered: Mapping[Option, tuple[int, ...]], max_steps: int
    ) -> None:
        self.facts = facts
        self.attempt = Attempt(demand, facts)
        self.steps = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self.shortfall = Shortfall(demand, facts, self.attempt)
        self.outlook: Outlook | None = None
        self.failed_states: set[Hashable] = set()
        self._dead_ends = 0
        self._demand = demand
        self._gathered = gathered
        self._max_steps = max_steps
        self._frames: list[_Frame] = []
        self._eligibilities: dict[Option, Eligibility] = {}
        # The call that comes next.
        self._claim = self._request = self._picked = self._start = 0
        self._option = _NOT_CHOSEN

    def run(self) -> bool:
        """Whether there is a solution; the picks of the first one are then in `attempt`.

        Raises:
            Fatal: a selector failed, mode All met a constraint, or the search was stopped at its limit.
        """
        frames = self._frames
        outcome = self._enter()
        while not self._is_hopeless():
            if outcome is Outcome.GOES_ON:
                outcome = self._enter()
            elif not frames:
                return outcome is Outcome.FOUND
            else:
                outcome = frames[-1].resume(self, outcome)
                if outcome is not Outcome.GOES_ON:
                    frames.pop()
        return False

    def call(self, claim: int, request: int, option: int = _NOT_CHOSEN, picked: int = 0, start: int = 0) -> Outcome:
        """Make this the next call."""
        self._claim, self._request, self._option, self._picked, self._start = claim, request, option, picked, start
        return Outcome.GOES_ON

    def _enter(self) -> Outcome:
        self.steps += 1
        self._check_limits()
        claim, request = self._claim, self._request
        claims = self._demand.claims
        if claim == len(claims):
            return Outcome.FOUND
        requests = claims[claim].requests
        if request == len(requests):
            self._frames.append(_CLAIM_END)
            return self.call(claim + 1, 0)
        if self.outlook is not None and self._option == _NOT_CHOSEN and not self._picked and self._is_known_failure():
            return Outcome.FAILED
        wish = requests[request]
        if wish.prioritized and self._option == _NOT_CHOSEN:
            self._frames.append(_Alternatives(claim, request, wish))
            return self.call(claim, request, 0)
        return self._pick(claim, request, wish)

    def _pick(self, claim: int, request: int, wish: RequestDemand) -> Outcome:
        option = max(self._option, 0)
        wanted = wish.options[option]
        every = self._gathered.get((claim, request, option)) if wanted.count == ALL else None
        count = wanted.count if every is None else len(every)
        if wanted.count == ALL and not every:
            self.shortfall.note(Place(claim, request, 0, wanted), self.eligibility(claim, request, option, wanted), {})
            return Outcome.FAILED
        picked = self._picked
        if picked >= count:
            return self.call(claim, request + 1)
        if self.attempt.size(claim) + count - picked > MAX_RESULTS:
            total = self.attempt.size(claim) + count - picked
            self.shortfall.note_too_many(Place(claim, request, picked, wanted), total)
            return Outcome.TOO_MANY
        frame: _Every | _DeviceLoop
        if every is not None:
            frame = _Every(self.attempt.trail.mark())
            outcome = self._take_gathered(claim, request, option, wanted, every)
        else:
            frame = _DeviceLoop(self, claim, request, option, wanted)
            outcome = frame.advance(self)
        if outcome is Outcome.GOES_ON:
            self._frames.append(frame)
        return outcome

    def _take_gathered(self, claim: int, request: int, option: int, wanted: Wanted, every: tuple[int, ...]) -> Outcome:
        """Take the next device of mode All; no other candidate exists."""
        picked = self._picked
        location = every[picked]
        eligibility = self.eligibility(claim, request, option, wanted)
        refusal = None
        if eligibility.of(location) == Standing.ELIGIBLE:
            refusal = self.attempt.take(claim, wanted, location)
            if refusal is Refusal.NONE:
                return self.call(claim, request, self._option, picked + 1)
        if refusal is Refusal.CONSTRAINT:
            raise Fatal(self.shortfall.constraint_refuses(claim, wanted, location))
        refusals = {} if refusal is None else {location: refusal}
        self.shortfall.note(Place(claim, request, picked, wanted), eligibility, refusals, only=location)
        return Outcome.FAILED

    def eligibility(self, claim: int, request: int, option: int, wanted: Wanted) -> Eligibility:
        """The standings of the devices for one request option, shared by all its frames."""
        key = (claim, request, option)
        found = self._eligibilities.get(key)
        if found is None:
            label = self._demand.claims[claim].label
            found = self._eligibilities[key] = Eligibility(wanted, label, self.facts)
        return found

    def dead_end(self) -> None:
        """Count a place that no device could fill; many of them make the search look at the whole node once."""
        self._dead_ends += 1

    def _is_hopeless(self) -> bool:
        if self._dead_ends != _DEAD_ENDS_BEFORE_LOOKOUT:
            return False
        self._dead_ends += 1
        if self._demand.may_break_off:
            return False
        try:
            outlook = Outlook(self._demand, self.facts, self._gathered, self.eligibility)
        except Fatal:
            return False  # where the search would get to it, it finds out by itself
        if outlook.is_hopeless():
            return True
        if not self._demand.asks_for_admin_access:
            self.outlook = outlook
        return False

    def _is_known_failure(self) -> bool:
        """Whether this request failed before with equal devices picked; if not, its failure will be remembered."""
        state = self._state()
        if state in self.failed_states:
            return True
        self._frames.append(_Remember(state))
        return False

    def _state(self) -> Hashable:
        """Everything that decides whether the requests from here on can be met, up to interchangeable devices."""
        attempt, claim = self.attempt, self._claim
        alike = self.outlook.alike if self.outlook is not None else []
        picked = tuple(sorted(alike[pick.location] for pick in attempt.picks))
        return claim, self._request, attempt.size(claim), attempt.constraint_states(claim), picked

    def where(self) -> tuple[int, int, int]:
        """(option as called, devices picked for the request, first location) of the current call."""
        return self._option, self._picked, self._start

    def _check_limits(self) -> None:
        if self.steps > self._max_steps:
            raise Fatal(Rejection(code=Code.SEARCH_LIMIT, detail=f"no result after {self._max_steps} steps"))
        deadline = self.facts.deadline
        if deadline is not None and not self.steps & _POLL and deadline():
            raise Fatal(Rejection(code=Code.SEARCH_LIMIT, detail=f"time was up after {self.steps} steps"))


class _ClaimEnd:
    """Too many devices in a later claim is an ordinary failure for the claims before."""

    __slots__ = ()

    def resume(self, _search: Search, outcome: Outcome) -> Outcome:
        return Outcome.FAILED if outcome is Outcome.TOO_MANY else outcome


_CLAIM_END: Final = _ClaimEnd()


class _Remember:
    """Remembers that a request failed in a state; too many devices is no failure of the state."""

    __slots__ = ("_state",)

    def __init__(self, state: Hashable) -> None:
        self._state = state

    def resume(self, search: Search, outcome: Outcome) -> Outcome:
        if outcome is Outcome.FAILED and len(search.failed_states) < _MAX_FAILED_STATES:
            search.failed_states.add(self._state)
        return outcome


class _Alternatives:
    """Tries the alternatives of a request in order of preference."""

    __slots__ = ("_claim", "_index", "_only_too_many", "_request", "_wish")

    def __init__(self, claim: int, request: int, wish: RequestDemand) -> None:
        self._claim = claim
        self._request = request
        self._wish = wish
        self._index = 0
        self._only_too_many = True

    def resume(self, search: Search, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.TOO_MANY:
            self._only_too_many = False
        if outcome is Outcome.FOUND:
            search.chosen[self._claim, self._request] = self._index
            return outcome
        self._index += 1
        if self._index < len(self._wish.options):
            return search.call(self._claim, self._request, self._index)
        return Outcome.TOO_MANY if self._only_too_many else Outcome.FAILED


class _Every:
    """Holds one device of mode All."""

    __slots__ = ("_mark",)

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def resume(self, search: Search, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.FOUND:
            search.attempt.trail.back_to(self._mark)
        return outcome


class _DeviceLoop:
    """Tries one device after the other for one place of a request with mode ExactCount."""

    __slots__ = (
        "_claim",
        "_eligibility",
        "_failed",
        "_key",
        "_mark",
        "_next",
        "_option",
        "_picked",
        "_refusals",
        "_request",
        "_took",
        "_wanted",
    )

    def __init__(self, search: Search, claim: int, request: int, option: int, wanted: Wanted) -> None:
        self._key = (claim, request, option)
        self._failed: set[int] | None = None
        self._refusals: dict[int, Refusal] = {}
        self._claim = claim
        self._request = request
        self._wanted = wanted
        self._option, self._picked, self._next = search.where()
        self._eligibility = search.eligibility(claim, request, option, wanted)
        self._mark = search.attempt.trail.mark()
        self._took = False

    def advance(self, search: Search) -> Outcome:
        """Take the next device that can be taken and call on, or fail."""
        attempt, standing, claim, wanted = search.attempt, self._eligibility.of, self._claim, self._wanted
        for location in range(self._next, len(search.facts.pools.devices)):
            if attempt.is_picked(claim, wanted, location) or standing(location) != Standing.ELIGIBLE:
                continue
            if search.outlook is not None:
                if self._failed and search.outlook.alike[location] in self._failed:
                    continue
                needed, picked = wanted.count - self._picked, (pick.location for pick in attempt.picks)
                if not search.outlook.enough(self._key, location, needed, picked):
                    break
            refusal = attempt.take(claim, wanted, location)
            if refusal:
                self._refusals[location] = refusal
            else:
                self._next = location + 1
                self._took = True
                return search.call(claim, self._request, self._option, self._picked + 1, location + 1)
        search.dead_end()
        if not self._took:
            place = Place(claim, self._request, self._picked, wanted)
            search.shortfall.note(place, self._eligibility, self._refusals)
        return Outcome.FAILED

    def resume(self, search: Search, outcome: Outcome) -> Outcome:
        if outcome is Outcome.FOUND:
            return outcome
        search.attempt.trail.back_to(self._mark)
        if outcome is Outcome.TOO_MANY:
            return outcome
        if search.outlook is not None:
            # An interchangeable device in the same place would fail in the same way.
            self._failed = self._failed or set()
            self._failed.add(search.outlook.alike[self._next - 1])
        return self.advance(search)
