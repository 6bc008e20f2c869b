"""Words for "does not fit": what stood in the way where the search got furthest."""

from collections.abc import Mapping
from typing import Final

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.explain.device_reasons import (
    EXCLUSION_CODES,
    NEAREST_MISS_FIRST,
    VERDICT_CODES,
    DeviceReasons,
    DeviceSlot,
)
from dra_extender.allocator.explain.messages import listed
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, SearchState
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.rejection import Code, Rejection

_PREFIXES: Final = {Code.COMBINATION: "wanted by other requests of the pod: "}


class Shortfall:
    """Remembers why the place that the search reached last could not be filled, the first time it was reached."""

    __slots__ = ("_deepest", "_demand", "_message", "_node_view", "_state", "rejections")

    def __init__(self, demand: Demand, node_view: NodeView, state: SearchState) -> None:
        self._demand = demand
        self._node_view = node_view
        self._state = state
        self._message = DeviceReasons(node_view, state)
        self._deepest = (-1, 0, 0)
        self.rejections: tuple[Rejection, ...] = ()

    def record_shortfall(
        self, place: DeviceSlot, eligibility: Eligibility, exclusions: Mapping[int, Exclusion], only: int | None = None
    ) -> None:
        """No device fills this place; `exclusions` says what refused devices just now, as far as they were tried.

        With `only`, no device but the one at that location was allowed.
        """
        if place[:3] <= self._deepest:
            return
        wanted, picked = place.wanted, place.picked
        locations = range(len(self._node_view.pools.devices)) if only is None else (only,)
        found: dict[Code, tuple[list[str], str]] = {}
        for location in locations:
            verdict = eligibility.verdict_or_unknown(location)
            if verdict is DeviceVerdict.TAKEN:
                code, text = self._of_taken(eligibility, location)
            elif verdict is DeviceVerdict.GROUPS_OFF:
                code, text = self._of_hidden(eligibility, location), None
            else:
                code, text = self._code(place, location, verdict, exclusions.get(location)), None
            if code is not None:
                if code not in found:
                    found[code] = ([], self._message.of(code, place, location, verdict) if text is None else text)
                found[code][0].append(self._node_view.pools.devices[location].name)
        # Not before: a pause may come while the devices are looked at, and then all of this comes again.
        self._deepest = place[:3]
        if not found:
            self.rejections = (self._no_match(place),)
            return
        progress = f"{picked} of {wanted.count} devices found; " if picked and wanted.count > 0 else ""
        self.rejections = tuple(
            Rejection(
                code=code,
                claim=self._demand.claims[place.claim].label,
                request=wanted.name,
                device=found[code][0][0],
                detail=progress + (found[code][1] or _PREFIXES.get(code, "") + listed(found[code][0])),
            )
            for code in NEAREST_MISS_FIRST
            if code in found
        )

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
        """Mode All has to take a device that a constraint refuses."""
        return Rejection(
            code=Code.CONSTRAINT,
            claim=self._demand.claims[claim].label,
            request=wanted.name,
            device=self._node_view.pools.devices[location].name,
            detail=self._message.constraint_message_for(claim, wanted, location),
        )

    def _of_taken(self, eligibility: Eligibility, location: int) -> tuple[Code | None, str | None]:
        """Of a taken device: that it is in use, if the request means it; and if nobody can tell whether it does, why not."""
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
        """Of a device that is skipped unseen: that it is, if the request may mean it."""
        try:
            return Code.GROUPS_OFF if eligibility.selects(location) else None
        except SearchEndedError:
            return Code.GROUPS_OFF

    def _code(
        self, place: DeviceSlot, location: int, verdict: DeviceVerdict, exclusion: Exclusion | None
    ) -> Code | None:
        """What speaks against a device now; None if it is not meant, is picked here, or only comes too early in the order."""
        if verdict is not DeviceVerdict.ELIGIBLE:
            return VERDICT_CODES.get(verdict)
        if self._state.is_picked(place.claim, place.wanted, location):
            mine = any(pick.location == location and pick.wanted is place.wanted for pick in self._state.picks)
            return None if mine else Code.COMBINATION
        return EXCLUSION_CODES[self._exclusion(place, location) if exclusion is None else exclusion]

    def _exclusion(self, place: DeviceSlot, location: int) -> Exclusion:
        try:
            return self._state.exclusion(place.claim, place.wanted, location)
        except SearchEndedError:
            # The search did not get there, so this is no error.
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
