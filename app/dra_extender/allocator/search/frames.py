"""The frames on the stack of a search: the loops of upstream's recursive function, one class for each place it calls itself."""

from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Protocol

from dra_extender.allocator.demand.demand import RequestDemand
from dra_extender.allocator.explain.device_reasons import DeviceSlot
from dra_extender.allocator.explain.shortfall import Shortfall
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.bounds import Mask
from dra_extender.allocator.search.pruning import PruningIndex
from dra_extender.allocator.search_state import Exclusion, SearchState

NOT_CHOSEN: Final = -1
"""Option of a call that has not entered the alternatives of a request, or of a request that has none."""

_MAX_NOGOODS: Final = 12_000
"""A nogood of twelve picks takes 1.4 KB, so that a search keeps about 16 MiB; it searches further states again."""


class FrameResult(IntEnum):
    """How a call ended; GOES_ON means that another call comes first."""

    GOES_ON = 0
    FOUND = 1
    FAILED = 2
    TOO_MANY = 3


class SearchContext(Protocol):
    """The parts of a search that its frames use."""

    state: SearchState
    chosen: dict[tuple[int, int], int]
    node_view: NodeView
    nogoods: set[Hashable]
    order: DeviceOrder | None
    pruning_index: PruningIndex | None

    @property
    def shortfall(self) -> Shortfall:
        """Why the deepest slot could not be filled."""
        ...

    def call(self, claim: int, request: int, option: int = NOT_CHOSEN, picked: int = 0, start: int = 0) -> FrameResult:
        """Make this the next call; always GOES_ON."""
        ...

    def add_dead_end(self, exclusions: int) -> None:
        """Count a device slot that stayed empty after so many eligible devices were excluded."""
        ...


class SearchFrame(Protocol):
    """Waits for the result of a call that it made."""

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:
        """The result of this frame, which is then done; GOES_ON after making another call."""
        ...


class ClaimEnd:
    """Turns TOO_MANY of a later claim into FAILED for the claims before it."""

    __slots__ = ()

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:  # noqa: ARG002 - as every frame
        """See `SearchFrame`."""
        return FrameResult.FAILED if result is FrameResult.TOO_MANY else result


CLAIM_END: Final = ClaimEnd()


class NogoodFrame:
    """Records a nogood when a request fails; TOO_MANY does not depend on the state alone and is not recorded."""

    __slots__ = ("_key",)

    def __init__(self, key: Hashable) -> None:
        self._key = key

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if result is FrameResult.FAILED and len(search.nogoods) < _MAX_NOGOODS:
            search.nogoods.add(self._key)
        return result


class Alternatives:
    """Tries the alternatives of a request in order of preference."""

    __slots__ = ("_claim", "_only_too_many", "_option", "_options", "_request")

    def __init__(self, claim: int, request: int, requested: RequestDemand) -> None:
        self._claim = claim
        self._request = request
        self._options = len(requested.options)
        self._option = 0
        self._only_too_many = True

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if result is not FrameResult.TOO_MANY:
            self._only_too_many = False
        if result is FrameResult.FOUND:
            search.chosen[self._claim, self._request] = self._option
            return result
        self._option += 1
        if self._option < self._options:
            return search.call(self._claim, self._request, self._option)
        return FrameResult.TOO_MANY if self._only_too_many else FrameResult.FAILED


class AllModeFrame:
    """One picked device of mode All; undoes the pick if the rest fails."""

    __slots__ = ("_mark",)

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
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
        "_option",
        "_place",
    )

    def __init__(self, place: DeviceSlot, option: int, start: int, eligibility: Eligibility, mark: int) -> None:
        """Try the devices from rank `start` on (without an order of its own, rank is location); undo to `mark` between them."""
        self._place = place
        self._option = option
        self._next = start
        self._eligibility = eligibility
        self._mark = mark
        self._has_picked = False
        self._candidates: Mask | None = None
        self._failed: set[Hashable] = set()
        self._exclusions: dict[int, Exclusion] = {}

    def advance(self, search: SearchContext) -> FrameResult:
        """Pick the next device that can be picked and make the call for the next slot, or fail."""
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
                # An interchangeable device would be excluded, too.
                self._failed.add(_interchange_key(pruning_index, state, location))
        if not self._has_picked:
            search.shortfall.record_shortfall(self._place, self._eligibility, self._exclusions)
        search.add_dead_end(len(self._exclusions))
        return FrameResult.FAILED

    def resume(self, search: SearchContext, result: FrameResult) -> FrameResult:
        """See `SearchFrame`."""
        if result is FrameResult.FOUND:
            return result
        search.state.trail.undo_to(self._mark)
        if result is FrameResult.TOO_MANY:
            return result
        if search.pruning_index is not None:
            # An interchangeable device in the same slot would fail in the same way.
            last = self._next - 1
            location = last if search.order is None else search.order.locations[last]
            self._failed.add(_interchange_key(search.pruning_index, search.state, location))
        return self.advance(search)

    def _can_still_fill(
        self, pruning_index: PruningIndex, state: SearchState, rank: int, order: DeviceOrder | None
    ) -> bool:
        """Whether the candidates from this rank on suffice for the slots that are still empty."""
        claim, request, picked, wanted = self._place
        if self._candidates is None:
            # Whenever this frame tries a device, picks and constraints are those with which it began.
            found = pruning_index.candidates((claim, request, max(self._option, 0)), state)
            self._candidates = found if order is None else order.ranked(found)
        return (self._candidates >> rank).bit_count() >= wanted.count - picked


def _interchange_key(pruning_index: PruningIndex, state: SearchState, location: int) -> Hashable:
    """Equal for devices that are interchangeable beside the picks so far."""
    symmetry_class = pruning_index.symmetry_class[location]
    return symmetry_class, state.mark(location), state.shared(location), state.is_member(location)
