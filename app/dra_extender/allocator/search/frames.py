"""What waits on the stack of a search: the loops of upstream's recursive function, one class for each place it calls itself."""

from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Protocol

from dra_extender.allocator.demand.demand import RequestDemand
from dra_extender.allocator.explain.device_reasons import DeviceSlot
from dra_extender.allocator.explain.shortfall import Shortfall
from dra_extender.allocator.pools.device_order import DeviceOrder
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.rules.shared_capacity import Amounts
from dra_extender.allocator.search.bounds import Mask
from dra_extender.allocator.search.pruning import PruningIndex
from dra_extender.allocator.search_state import Exclusion, SearchState

NOT_CHOSEN: Final = -1
"""Option of a call that has not entered the alternatives of a request, or of a request that has none."""

_MAX_NOGOODS: Final = 12_000
"""A state of twelve picks takes 1.4 KB, so a search keeps about 16 MiB; states beyond that are searched again."""


class FrameResult(IntEnum):
    """What a call ended with; GOES_ON means that another call comes first."""

    GOES_ON = 0
    FOUND = 1
    FAILED = 2
    TOO_MANY = 3


class SearchContext(Protocol):
    """What frames use of the search they are part of."""

    state: SearchState
    chosen: dict[tuple[int, int], int]
    node_view: NodeView
    nogoods: set[Hashable]
    order: DeviceOrder | None
    pruning_index: PruningIndex | None
    shortfall: Shortfall

    def call(self, claim: int, request: int, option: int = NOT_CHOSEN, picked: int = 0, start: int = 0) -> FrameResult:
        """Make this the next call; always GOES_ON."""
        ...

    def dead_end(self, refused: int) -> None:
        """Count a device slot that stayed empty after so many eligible devices were excluded."""
        ...


class SearchFrame(Protocol):
    """Waits for the outcome of a call it made."""

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:
        """Judge the outcome: GOES_ON after making another call, else the outcome of this frame, which is then done."""
        ...


class ClaimEnd:
    """Too many devices in a later claim is an ordinary failure for the claims before."""

    __slots__ = ()

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:  # noqa: ARG002 - as every frame
        """See `SearchFrame`."""
        return FrameResult.FAILED if outcome is FrameResult.TOO_MANY else outcome


CLAIM_END: Final = ClaimEnd()


class NogoodFrame:
    """Remembers that a request failed in a state; too many devices is no failure of the state."""

    __slots__ = ("_state",)

    def __init__(self, state: Hashable) -> None:
        self._state = state

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if outcome is FrameResult.FAILED and len(search.nogoods) < _MAX_NOGOODS:
            search.nogoods.add(self._state)
        return outcome


class Alternatives:
    """Tries the alternatives of a request in order of preference."""

    __slots__ = ("_claim", "_index", "_only_too_many", "_request", "_wish")

    def __init__(self, claim: int, request: int, wish: RequestDemand) -> None:
        self._claim = claim
        self._request = request
        self._wish = wish
        self._index = 0
        self._only_too_many = True

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if outcome is not FrameResult.TOO_MANY:
            self._only_too_many = False
        if outcome is FrameResult.FOUND:
            search.chosen[self._claim, self._request] = self._index
            return outcome
        self._index += 1
        if self._index < len(self._wish.options):
            return search.call(self._claim, self._request, self._index)
        return FrameResult.TOO_MANY if self._only_too_many else FrameResult.FAILED


class AllModeFrame:
    """Holds one device of mode All."""

    __slots__ = ("_mark",)

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if outcome is not FrameResult.FOUND:
            search.state.trail.undo_to(self._mark)
        return outcome


class DeviceLoop:
    """Tries one device after the other for one place of a request with mode ExactCount."""

    __slots__ = (
        "_candidates",
        "_eligibility",
        "_exclusions",
        "_failed",
        "_has_picked",
        "_mark",
        "_next",
        "_option",
        "_place",
    )

    def __init__(self, place: DeviceSlot, option: int, start: int, eligibility: Eligibility, mark: int) -> None:
        """Fill this place from rank `start` on (without an order: location); `option` as called, `mark` to come back to."""
        self._place = place
        self._option = option
        self._next = start
        self._eligibility = eligibility
        self._mark = mark
        self._has_picked = False
        self._candidates: Mask | None = None
        self._failed: set[tuple[int, int, Amounts | None]] = set()
        self._exclusions: dict[int, Exclusion] = {}

    def advance(self, search: SearchContext) -> FrameResult:
        """Take the next device that can be taken and call on, or fail."""
        state, verdict, (claim, request, picked, wanted) = search.state, self._eligibility.of, self._place
        pruning_index, order = search.pruning_index, search.order
        rest = (
            range(self._next, len(search.node_view.pools.devices)) if order is None else order.locations[self._next :]
        )
        for location in rest:
            if state.is_picked(claim, wanted, location) or verdict(location) != DeviceVerdict.ELIGIBLE:
                continue
            if pruning_index is not None:
                if _interchange_key(pruning_index, state, location) in self._failed:
                    continue
                if not self._can_still_fill(
                    pruning_index, state, location if order is None else order.ranks[location], order
                ):
                    break
            exclusion = state.try_pick(claim, wanted, location)
            if not exclusion:
                self._next = 1 + (location if order is None else order.ranks[location])
                self._has_picked = True
                return search.call(claim, request, self._option, picked + 1, self._next)
            self._exclusions[location] = exclusion
            if pruning_index is not None:
                # An interchangeable device would be refused, too.
                self._failed.add(_interchange_key(pruning_index, state, location))
        if not self._has_picked:
            search.shortfall.record_shortfall(self._place, self._eligibility, self._exclusions)
        search.dead_end(len(self._exclusions))
        return FrameResult.FAILED

    def resume(self, search: SearchContext, outcome: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if outcome is FrameResult.FOUND:
            return outcome
        search.state.trail.undo_to(self._mark)
        if outcome is FrameResult.TOO_MANY:
            return outcome
        if search.pruning_index is not None:
            # An interchangeable device in the same place would fail in the same way.
            last = self._next - 1
            location = last if search.order is None else search.order.locations[last]
            self._failed.add(_interchange_key(search.pruning_index, search.state, location))
        return self.advance(search)

    def _can_still_fill(
        self, pruning_index: PruningIndex, state: SearchState, rank: int, order: DeviceOrder | None
    ) -> bool:
        """Whether the devices from here on are enough for what is still to be picked."""
        claim, request, picked, wanted = self._place
        if self._candidates is None:
            # Whenever this frame looks for a device, the picks and constraints are those it began with.
            found = pruning_index.candidates((claim, request, max(self._option, 0)), state)
            self._candidates = found if order is None else order.ranked(found)
        return (self._candidates >> rank).bit_count() >= wanted.count - picked


def _interchange_key(pruning_index: PruningIndex, state: SearchState, location: int) -> tuple[int, int, Amounts | None]:
    """Equal for devices that the same picks make no difference between."""
    return pruning_index.symmetry_class[location], state.mark(location), state.shared(location)
