"""Why a demand does not fit: the rejections at the deepest slot that the search reached, and pools that may have its devices."""

from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline, SelectionTimeoutError, SelectorError
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.explain.device_reasons import (
    EXCLUSION_CODES,
    DeviceReasons,
    DeviceSlot,
)
from dra_extender.allocator.rules.eligibility import VERDICT_CODES, DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, SearchState
from dra_extender.allocator.state.rejection import NEAREST_MISS_FIRST, Code, Rejection
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.api_json import listed
from dra_extender.model.resource_slice import ResourceSlice

_PREFIXES: Final = {Code.COMBINATION: "wanted by other requests of the pod: "}


_Misses = tuple[list[str], str]
"""The devices that one reason excludes, and the message about the first of them."""


class Shortfall:
    """Keeps why the deepest slot that the search reached could not be filled, as it was when the search reached it first."""

    __slots__ = ("_deepest", "_demand", "_node_view", "_reasons", "_state", "rejections")

    def __init__(self, demand: Demand, node_view: NodeView, state: SearchState) -> None:
        self._demand = demand
        self._node_view = node_view
        self._state = state
        self._reasons = DeviceReasons(node_view, state)
        self._deepest = (-1, 0, 0)
        self.rejections: tuple[Rejection, ...] = ()

    def record_shortfall(
        self, place: DeviceSlot, eligibility: Eligibility, exclusions: Mapping[int, Exclusion], only: int | None = None
    ) -> None:
        """No device fills this slot; `exclusions` has the reasons of the devices that were just tried.

        With `only`, no device but the one at that location was allowed.
        """
        if place[:3] <= self._deepest:
            return
        devices = self._node_view.pools.devices
        locations = range(len(devices)) if only is None else (only,)
        found: dict[Code, _Misses] = {}
        for location in locations:
            verdict = eligibility.verdict_or_unknown(location)
            if verdict is DeviceVerdict.TAKEN:
                code, message = self._of_taken(eligibility, location)
            else:
                code, message = self._code(place, location, verdict, eligibility, exclusions.get(location)), None
            if code is None:
                continue
            misses = found.get(code)
            if misses is None:
                message = self._reasons.of(code, place, location, verdict) if message is None else message
                misses = found[code] = ([], message)
            misses[0].append(devices[location].name)
        # Not before: a pause may come in the loop, and then the slot is recorded again.
        self._deepest = place[:3]
        self.rejections = self._rejections(place, found) if found else (self._no_match(place),)

    def _rejections(self, place: DeviceSlot, found: Mapping[Code, _Misses]) -> tuple[Rejection, ...]:
        wanted, picked = place.wanted, place.picked
        progress = f"{picked} of {wanted.count} devices found; " if picked and wanted.count > 0 else ""
        rejections: list[Rejection] = []
        for code in NEAREST_MISS_FIRST:
            if code in found:
                devices, message = found[code]
                rejections.append(
                    Rejection(
                        code=code,
                        claim=self._demand.claims[place.claim].label,
                        request=wanted.name,
                        device=devices[0],
                        detail=progress + (message or _PREFIXES.get(code, "") + listed(devices)),
                    )
                )
        return tuple(rejections)

    def record_too_many(self, place: DeviceSlot, total: int) -> None:
        """The claim would get `total` devices."""
        if place[:3] > self._deepest:
            self._deepest = place[:3]
            detail = f"the claim would have {total} devices, it may have {MAX_RESULTS}"
            label = self._demand.claims[place.claim].label
            self.rejections = (
                Rejection(code=Code.TOO_MANY_DEVICES, claim=label, request=place.wanted.name, detail=detail),
            )

    def constraint_rejection(self, claim: int, wanted: SearchableRequest, location: int) -> Rejection:
        """Mode All needs a device that a constraint excludes."""
        return Rejection(
            code=Code.CONSTRAINT,
            claim=self._demand.claims[claim].label,
            request=wanted.name,
            device=self._node_view.pools.devices[location].name,
            detail=self._reasons.constraint_message_for(claim, wanted, location),
        )

    def _of_taken(self, eligibility: Eligibility, location: int) -> tuple[Code | None, str | None]:
        """(IN_USE, None) if the request selects the taken device; the selector's error if it fails there."""
        try:
            return (Code.IN_USE, None) if eligibility.selects(location) else (None, None)
        except SearchEndedError as fatal:
            if fatal.rejection.code is Code.SEARCH_LIMIT:
                return Code.IN_USE, None
            return (
                fatal.rejection.code,
                f"{fatal.rejection.detail}; {self._node_view.pools.devices[location].name} is in use",
            )

    @staticmethod
    def _of_hidden(eligibility: Eligibility, location: int) -> Code | None:
        """GROUPS_OFF if the request may select the device, which was skipped before its selectors."""
        try:
            return Code.GROUPS_OFF if eligibility.selects(location) else None
        except SearchEndedError:
            return Code.GROUPS_OFF

    def _code(
        self,
        place: DeviceSlot,
        location: int,
        verdict: DeviceVerdict,
        eligibility: Eligibility,
        exclusion: Exclusion | None,
    ) -> Code | None:
        """Why the device cannot be picked now; None if it is not selected, is picked for this request, or could be picked."""
        if verdict is DeviceVerdict.GROUPS_OFF:
            return self._of_hidden(eligibility, location)
        if verdict is not DeviceVerdict.ELIGIBLE:
            return VERDICT_CODES.get(verdict)
        if self._state.is_picked(place.claim, place.wanted, location):
            own = any(pick.location == location and pick.wanted is place.wanted for pick in self._state.picks)
            return None if own else Code.COMBINATION
        return EXCLUSION_CODES[self._exclusion(place, location) if exclusion is None else exclusion]

    def _exclusion(self, place: DeviceSlot, location: int) -> Exclusion:
        try:
            return self._state.exclusion(place.claim, place.wanted, location)
        except SearchEndedError:
            # The search did not evaluate this device, so that this is no error.
            return Exclusion.NONE

    def _no_match(self, place: DeviceSlot) -> Rejection:
        wanted, picked = place.wanted, place.picked
        count = len(self._node_view.pools.devices)
        label = self._demand.claims[place.claim].label
        if not count:
            return Rejection(code=Code.NO_DEVICES, claim=label, request=wanted.name)
        criteria = f"match class {wanted.device_class.name} and the selectors of the request"
        if picked:
            detail = f"{wanted.count} devices wanted, {picked} of {count} {criteria}"
            return Rejection(code=Code.COMBINATION, claim=label, request=wanted.name, detail=detail)
        detail = f"none of {count} devices {criteria}"
        return Rejection(code=Code.NO_MATCH, claim=label, request=wanted.name, detail=detail)


def may_serve(
    problem: Code, withheld: Sequence[ResourceSlice], wanted: SearchableRequest, deadline: Deadline | None
) -> bool:
    """Return whether the request could take devices of the pool that has these slices and this problem.

    The devices that are there tell.  Where others may follow, the selectors tell as far as they are about the driver.
    """
    if not withheld or wanted.selectors.is_empty:
        return True
    if not wanted.selectors.may_select(withheld[0].driver):
        return False
    places = [(published, position) for published in withheld for position in range(len(published.devices))]
    return problem is Code.POOL_INCOMPLETE or not places or any(_selects(wanted, *each, deadline) for each in places)


def _selects(wanted: SearchableRequest, published: ResourceSlice, position: int, deadline: Deadline | None) -> bool:
    try:
        return wanted.selectors.row(published).matches(published, position, deadline)
    except SelectorError:
        return False
    except SelectionTimeoutError:
        return True
