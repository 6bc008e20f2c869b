"""A full account of a node for people: per request, how many devices there are and what keeps how many of them away.

Each device is judged by itself against what is held, before anything is picked for the pod; what goes wrong only between the
picks of one pod is told by the rejections of `allocate`.
"""

from collections.abc import Hashable, Iterator
from typing import Final

from dra_extender.allocator.demand.demand import ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.explain.device_reasons import EXCLUSION_CODES, VERDICT_CODES, DeviceReasons, DeviceSlot
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.api_json import Value
from dra_extender.model.device import Device
from dra_extender.model.node import Node
from dra_extender.model.rejection import Code

_MAX_EXPLAINED: Final = 8


class RejectedDevices(Value, frozen=True):
    """Devices of a node that a request cannot have, all for the same reason.

    `example` is the first of them, `detail` the words about it (amounts, groups on both sides, values that were compared).
    """

    code: Code
    devices: int
    example: str
    detail: str


class RequestSurvey(Value, frozen=True):
    """What a request (or one alternative of it, `name/alternative`) finds on a node.

    `wanted` is the number of devices, -1 for all that match.  `seen` is the sum of `free` and all refused devices; `skipped` are
    devices that were not looked at because there are too many.
    """

    claim: str
    request: str
    wanted: int
    seen: int
    free: int
    refused: tuple[RejectedDevices, ...]
    skipped: int = 0


def survey(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Deadline | None = None,
    only: tuple[str, str] | None = None,
    most: int | None = None,
) -> tuple[RequestSurvey, ...]:
    """The account of every request of the pod on one node; changes nothing and raises nothing.

    Within each request the reason that holds for most devices comes first.  A `Budget` as deadline is charged for everything
    that is evaluated and explained.

    Args:
        demand: What the pod wants.
        node: The node.
        pools: Its pools.
        usage: What is held there.
        deadline: Says whether time is up.
        only: Claim and request that are meant, as in the account; all without it.
        most: Devices to look at for each request.
    """
    node_view = NodeView(node, pools, usage, deadline)
    surveyor = _Surveyor(demand, node_view, most)
    return tuple(
        surveyor.request(index, position, claim, wanted)
        for index, claim in enumerate(demand.claims)
        for position, request in enumerate(claim.requests)
        for wanted in request.options
        if only is None or only == (claim.label, wanted.name)
    )


class _Surveyor:
    def __init__(self, demand: Demand, node_view: NodeView, most: int | None) -> None:
        self._node_view = node_view
        self._upper_bound = most
        self._state = SearchState(demand, node_view)
        self._message = DeviceReasons(node_view, self._state)

    def request(self, index: int, position: int, claim: ClaimDemand, wanted: SearchableRequest) -> RequestSurvey:
        eligibility = Eligibility(wanted, claim.label, self._node_view)
        place = DeviceSlot(index, position, 0, wanted)
        reasons = _Tally()
        devices, unmet = self._node_view.pools.devices, _Unmet(self._node_view, wanted)
        looked_at = len(devices) if self._upper_bound is None else min(len(devices), self._upper_bound)
        for location, device in enumerate(devices[:looked_at]):
            code, detail = self._verdict(place, eligibility, location, unmet)
            if code is not None:
                reasons.add(code, detail, device.name)
        for pool in self._node_view.pools.unusable:
            if pool.problem is not None:
                reasons.add(pool.problem, pool.detail, "", pool.hidden)
        for each in self._node_view.pools.ignored:
            reasons.add(Code.GROUPS_OFF, each.detail, "", each.hidden)
        return RequestSurvey(
            claim=claim.label,
            request=wanted.name,
            wanted=wanted.count,
            seen=looked_at + self._node_view.pools.hidden,
            free=looked_at - reasons.visible,
            refused=tuple(reasons.sorted()),
            skipped=len(devices) - looked_at,
        )

    def _verdict(
        self, place: DeviceSlot, eligibility: Eligibility, location: int, unmet: "_Unmet"
    ) -> tuple[Code | None, str | None]:
        """The code and the words; without code the device is free, without words those of the first such device do."""
        try:
            verdict = DeviceVerdict(eligibility.of(location))
            if verdict in (DeviceVerdict.TAKEN, DeviceVerdict.GROUPS_OFF) and not eligibility.selects(location):
                verdict = DeviceVerdict.NO_MATCH
            if verdict is DeviceVerdict.NO_MATCH:
                return Code.NO_MATCH, unmet.of(location)
            if verdict is DeviceVerdict.OTHER_NODE:
                return Code.OTHER_NODE, None
            if verdict is DeviceVerdict.ELIGIBLE:
                code = EXCLUSION_CODES[self._state.exclusion(place.claim, place.wanted, location)]
            else:
                code = VERDICT_CODES.get(verdict)
        except SearchEndedError as fatal:
            return fatal.rejection.code, fatal.rejection.detail
        return code, None if code is None else self._message.of(code, place, location, verdict)


class _Tally:
    """Counts devices by reason.  Selectors are told apart by their words, other reasons are one each."""

    def __init__(self) -> None:
        self.visible = 0
        self._found: dict[tuple[Code, str | None], tuple[int, str, str]] = {}

    def add(self, code: Code, detail: str | None, example: str, devices: int | None = None) -> None:
        by_words = code in (Code.NO_MATCH, Code.POOL_INCOMPLETE, Code.POOL_INVALID) or devices is not None
        key = (code, detail if by_words else None)
        count, first, text = self._found.get(key, (0, example, detail or ""))
        if devices is None:
            self.visible += 1
        self._found[key] = (count + (1 if devices is None else devices), first, text)

    def sorted(self) -> Iterator[RejectedDevices]:
        entries = sorted(self._found.items(), key=lambda entry: -entry[1][0])
        for (code, _), (count, example, text) in entries:
            yield RejectedDevices(code=code, devices=count, example=example, detail=text)


class _Unmet:
    """Explanations of false selectors, one for devices that look alike and only for the first few kinds of device."""

    def __init__(self, node_view: NodeView, wanted: SearchableRequest) -> None:
        self._node_view = node_view
        self._unmet = UnmetSelectors(wanted.selectors, node_view.deadline)
        self._known: dict[Hashable, str] = {}

    def of(self, location: int) -> str:
        view = self._node_view.pools.views[location]
        key = (view.published.driver, *_content(self._node_view.pools.devices[location]))
        if key not in self._known:
            if len(self._known) == _MAX_EXPLAINED:
                return ""
            self._known[key] = self._unmet.of(view.published, location - view.base)
        return self._known[key]


def _content(device: Device) -> tuple[Hashable, ...]:
    return device.attributes, device.capacity, device.allow_multiple_allocations
