"""A full account of a node for people: for each request, how many devices there are and why it cannot have how many of them.

The survey checks each device by itself beside what is held, before anything is picked for the pod.  Conflicts between the picks of
one pod are in the rejections of `allocate` only.
"""

from collections.abc import Hashable, Iterator
from typing import Final

from dra_extender.allocator.demand.demand import ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.explain.accounts import RequestCheck
from dra_extender.allocator.explain.device_reasons import DeviceSlot
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.rejection import Code
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.api_json import Value
from dra_extender.model.device import Device
from dra_extender.model.node import Node

_MAX_EXPLAINED: Final = 8


class RejectedDevices(Value, frozen=True):
    """Devices of a node that a request cannot have, all for the same reason.

    `example` is the first of them, `detail` the message about it (amounts, groups on both sides, values that were compared).
    """

    code: Code
    devices: int
    example: str
    detail: str


class RequestSurvey(Value, frozen=True):
    """What a request (or one alternative of it, `name/alternative`) finds on a node.

    `wanted` is the number of devices, -1 for all that match.  `seen` is the sum of `free` and all refused devices; `skipped` counts
    the devices beyond the limit of the survey.
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

    Within each request the reason of most devices comes first.  A `Budget` as deadline is charged for all evaluations and
    explanations.

    Args:
        demand: What the pod asks for.
        node: The node.
        pools: Its pools.
        usage: What is held there.
        deadline: Returns True once the time is up.
        only: (claim, request) as in the account; without it, all.
        most: The limit of devices for each request.
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
        self._most = most
        self._state = SearchState(demand, node_view)

    def request(self, index: int, position: int, claim: ClaimDemand, wanted: SearchableRequest) -> RequestSurvey:
        check = RequestCheck(self._node_view, self._state, DeviceSlot(index, position, 0, wanted), claim.label)
        reasons = _Tally()
        devices, unmet = self._node_view.pools.devices, _Unmet(self._node_view, wanted)
        seen = len(devices) if self._most is None else min(len(devices), self._most)
        for location, device in enumerate(devices[:seen]):
            code, detail = _reason(check, location, unmet)
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
            seen=seen + self._node_view.pools.hidden,
            free=seen - reasons.visible,
            refused=tuple(reasons.sorted()),
            skipped=len(devices) - seen,
        )


def _reason(check: RequestCheck, location: int, unmet: "_Unmet") -> tuple[Code | None, str | None]:
    """The code and the sentence; without code the device is free, without sentence that of the first such device counts."""
    try:
        code, verdict = check.code(location)
        if code is Code.NO_MATCH:
            return code, unmet.of(location)
    except SearchEndedError as fatal:
        return fatal.rejection.code, fatal.rejection.detail
    return code, None if code in (None, Code.OTHER_NODE) else check.detail(code, location, verdict)


class _Tally:
    """Counts devices by reason: by code, and for selectors and pools by message too."""

    def __init__(self) -> None:
        self.visible = 0
        self._found: dict[tuple[Code, str | None], tuple[int, str, str]] = {}

    def add(self, code: Code, detail: str | None, example: str, devices: int | None = None) -> None:
        by_message = code in (Code.NO_MATCH, Code.POOL_INCOMPLETE, Code.POOL_INVALID) or devices is not None
        key = (code, detail if by_message else None)
        count, first, text = self._found.get(key, (0, example, detail or ""))
        if devices is None:
            self.visible += 1
        self._found[key] = (count + (1 if devices is None else devices), first, text)

    def sorted(self) -> Iterator[RejectedDevices]:
        entries = sorted(self._found.items(), key=lambda entry: -entry[1][0])
        for (code, _), (count, example, text) in entries:
            yield RejectedDevices(code=code, devices=count, example=example, detail=text)


class _Unmet:
    """Explanations of false selectors: one for all devices of equal content, and only for the first few contents."""

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
