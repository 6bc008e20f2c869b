"""Shortfall of a search: the rejections at the deepest slot that it reached, and pools that may have the missing devices."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline, SelectionTimeoutError, SelectorError
from dra_extender.allocator.explain.device_messages import DeviceMessages, taker_text
from dra_extender.allocator.rules.eligibility import VERDICT_CODES, DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import DeviceSlot, SearchState
from dra_extender.allocator.state.reasons import NEAREST_MISS_FIRST, Code, Rejection, SearchEndedError
from dra_extender.model.api_json import listed
from dra_extender.model.resource_slice import ResourceSlice


class Shortfall:
    """Keeps why the deepest slot that the search reached could not be filled, as it was when the search reached it first."""

    __slots__ = ("_deepest", "_demand", "_messages", "_node_view", "_state", "rejections")

    def __init__(self, demand: Demand, node_view: NodeView, state: SearchState) -> None:
        self._demand = demand
        self._node_view = node_view
        self._state = state
        self._messages = DeviceMessages(node_view, state)
        self._deepest = (-1, 0, 0)
        self.rejections: tuple[Rejection, ...] = ()

    def record_shortfall(
        self, slot: DeviceSlot, eligibility: Eligibility, exclusions: Mapping[int, Code], only: int | None = None
    ) -> None:
        """Record that no device fills this slot; `exclusions` has the reasons of the devices that were just tried.

        With `only`, no device but the one at that location was allowed.
        """
        if slot[:3] <= self._deepest:
            return
        devices = self._node_view.pools.devices
        # By code: the locations that it excludes, and the message about the first of them.
        misses: dict[Code, tuple[list[int], str]] = {}
        for location in range(len(devices)) if only is None else (only,):
            code, verdict, message = self._judge(slot, location, eligibility, exclusions.get(location))
            if code is None:
                continue
            if code not in misses:
                if message is None:
                    message = self._messages.message(code, slot, location, verdict)
                misses[code] = ([], message)
            misses[code][0].append(location)
        # Not before: a pause may come in the loop, and then the slot is recorded again.
        self._deepest = slot[:3]
        if not misses:
            self.rejections = (self._no_match(slot),)
            return
        option, picked = slot.option, slot.picked
        progress = f"{picked} of {option.count} devices found; " if picked and option.count > 0 else ""
        self.rejections = tuple(
            Rejection(
                code=code,
                claim=self._demand.claims[slot.claim].label,
                request=option.name,
                device=devices[misses[code][0][0]].name,
                detail=progress + misses[code][1] if misses[code][1] else self._named(code, slot, misses[code][0]),
            )
            for code in NEAREST_MISS_FIRST
            if code in misses
        )

    def _named(self, code: Code, slot: DeviceSlot, locations: Sequence[int]) -> str:
        """Return the devices at these locations; those that are picked with the requests that have them."""
        devices = self._node_view.pools.devices
        if code is not Code.COMBINATION:
            return listed([devices[location].name for location in locations])
        devices_by_taker = dict[str, list[str]]()
        for pick in self._state.picks:
            if pick.location in locations:
                taker = taker_text(self._demand, pick, slot)
                devices_by_taker.setdefault(taker, []).append(devices[pick.location].name)
        return "; ".join(
            f"{listed(device_names)} taken for {taker}" for taker, device_names in devices_by_taker.items()
        )

    def record_too_many(self, slot: DeviceSlot, total: int) -> None:
        """Record that the claim would get `total` devices."""
        if slot[:3] > self._deepest:
            self._deepest = slot[:3]
            detail = f"the claim would have {total} devices, it may have {MAX_RESULTS}"
            label = self._demand.claims[slot.claim].label
            self.rejections = (
                Rejection(code=Code.TOO_MANY_DEVICES, claim=label, request=slot.option.name, detail=detail),
            )

    def constraint_rejection(self, claim: int, option: SearchableRequest, location: int) -> Rejection:
        return Rejection(
            code=Code.CONSTRAINT,
            claim=self._demand.claims[claim].label,
            request=option.name,
            device=self._node_view.pools.devices[location].name,
            detail=self._messages.constraint(claim, option, location),
        )

    def _judge(
        self, slot: DeviceSlot, location: int, eligibility: Eligibility, exclusion: Code | None
    ) -> tuple[Code | None, DeviceVerdict, str | None]:
        """Return (code, verdict, message) of why the device cannot be picked now.

        No code: it is not selected, is picked for this request, or could be picked.  No message: `DeviceMessages` has it.
        """
        state = self._state
        try:
            verdict = DeviceVerdict(eligibility.verdict(location))
        except SearchEndedError:
            verdict = DeviceVerdict.UNKNOWN  # a selector fails
        if verdict in (DeviceVerdict.TAKEN, DeviceVerdict.GROUPS_OFF):
            # Whether the request selects the device was not asked for; a selector that fails tells nothing about hidden devices.
            code = VERDICT_CODES[verdict]
            try:
                return code if eligibility.selects(location) else None, verdict, None
            except SearchEndedError as fatal:
                if verdict is DeviceVerdict.GROUPS_OFF or fatal.rejection.code is Code.SEARCH_LIMIT:
                    return code, verdict, None
                name = self._node_view.pools.devices[location].name
                return fatal.rejection.code, verdict, f"{fatal.rejection.detail}; {name} is in use"
        if verdict is not DeviceVerdict.ELIGIBLE:
            return VERDICT_CODES.get(verdict), verdict, None
        if state.is_picked(slot.claim, slot.option, location):
            own = any(pick.location == location and pick.option is slot.option for pick in state.picks)
            return None if own else Code.COMBINATION, verdict, None
        if exclusion is None:
            # The search did not evaluate this device, so that no error counts.
            with suppress(SearchEndedError):
                exclusion = state.exclusion(slot.claim, slot.option, location)
        return exclusion, verdict, None

    def _no_match(self, slot: DeviceSlot) -> Rejection:
        option, picked = slot.option, slot.picked
        count = len(self._node_view.pools.devices)
        label = self._demand.claims[slot.claim].label
        if not count:
            return Rejection(code=Code.NO_DEVICES, claim=label, request=option.name)
        criteria = f"match class {option.device_class.name} and the selectors of the request"
        if picked:
            detail = f"{option.count} devices wanted, {picked} of {count} {criteria}"
            return Rejection(code=Code.COMBINATION, claim=label, request=option.name, detail=detail)
        detail = f"none of {count} devices {criteria}"
        return Rejection(code=Code.NO_MATCH, claim=label, request=option.name, detail=detail)


def may_serve(
    problem: Code, withheld: Sequence[ResourceSlice], request: SearchableRequest, deadline: Deadline | None
) -> bool:
    """Return whether the request could take devices of the pool that has these slices and this problem.

    The devices that are there tell.  Where others may follow, the selectors tell as far as they are about the driver.
    """
    if not withheld or request.selectors.is_empty:
        return True
    if not request.selectors.may_select(withheld[0].driver):
        return False
    if problem is Code.POOL_INCOMPLETE or not any(published.devices for published in withheld):
        return True
    for published in withheld:
        for position in range(len(published.devices)):
            try:
                if request.selectors.row(published).matches(published, position, deadline):
                    return True
            except SelectorError:
                continue
            except SelectionTimeoutError:
                return True
    return False
