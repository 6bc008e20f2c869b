"""Diagnoses of the devices of a node for one request: each device by itself beside what is held, before anything is picked.

`diagnose_devices` gives every device, `survey` the number of devices by reason.  Conflicts between the picks of one pod are in the
rejections of `NodeSearch` only.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.explain.device_messages import DeviceMessages
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.capacity import CapacityMismatch, CapacityShortage
from dra_extender.allocator.rules.compatibility_groups import GroupState
from dra_extender.allocator.rules.counter_sets import CounterBalance
from dra_extender.allocator.rules.eligibility import VERDICT_CODES, DeviceVerdict, Eligibility, untolerated_taints
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import DeviceSlot, SearchState
from dra_extender.allocator.state.reasons import Code, SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.api_json import Value
from dra_extender.model.device import CounterConsumption, DeviceId, DeviceTaint, PoolId
from dra_extender.model.node import Node

Among = Mapping[PoolId, Collection[DeviceId]]
"""The devices that are asked about, by pool."""

_MAX_EXPLAINED: Final = 8


class GroupConflict(NamedTuple):
    """The groups that a device declares on a counter set, and those in force there (None: members without groups).

    `counters` has what remains of each counter of the set, `shortage` the first counter of any set that does not suffice either.
    """

    entry: CounterConsumption
    state: GroupState
    counters: tuple[CounterBalance, ...] = ()
    shortage: CounterBalance | None = None


class DeviceDiagnosis(NamedTuple):
    """One device: why the request cannot have it now, or that it can (`code` None).

    `detail` is a sentence, empty where the code says it all.  `distance` tells how far a device is that no selector means (see
    `cel.explain.nearness`), 0 for any other.  `shortage`, `capacities`, `conflict` and `taints` have the amounts, groups and taints
    behind the codes COUNTERS, CAPACITY, GROUPS and TAINTED, `further_shortages` the other counters that do not suffice.  `also`
    says what keeps a tainted device away besides.
    """

    device_id: DeviceId
    code: Code | None
    detail: str = ""
    distance: float = 0.0
    shortage: CounterBalance | None = None
    capacities: tuple[CapacityShortage, ...] = ()
    conflict: GroupConflict | None = None
    taints: tuple[DeviceTaint, ...] = ()
    also: str = ""
    further_shortages: tuple[CounterBalance, ...] = ()


class RejectedDevices(Value, frozen=True):
    """Devices of a node that a request cannot have, all for the same reason.

    `example` is the first of them, `detail` the message about it (amounts, groups on both sides, values that were compared).
    """

    code: Code
    devices: int
    example: str
    detail: str


class RequestSurvey(Value, frozen=True):
    """The devices of a node as one request, or one alternative of it (`name/alternative`), finds them.

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


def diagnose_devices(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    only: tuple[str, str],
    deadline: Deadline | None = None,
    *,
    explains_selectors: bool = True,
    among: Among | None = None,
) -> Iterator[DeviceDiagnosis]:
    """Yield every device of the node for one request, (claim, request or `request/alternative`), in the order of the search.

    `among`: only these devices, as far as they are in there when their turn comes.

    A `Budget` as deadline is charged for what is evaluated and explained.  Without `explains_selectors`, devices that no selector
    means have neither detail nor distance.
    """
    view = NodeView(node, pools, usage, deadline)
    state = SearchState(demand, view)
    for check in _checks(demand, view, state, only):
        unmet = UnmetSelectors(check.slot.option.selectors, deadline) if explains_selectors else None
        location = 0
        while location < len(pools.devices):
            published, pool_id = pools.views[location].published, pools.views[location].pool.pool_id
            if among is None or among.get(pool_id):
                for place, device in enumerate(published.devices, location):
                    device_id = (*pool_id, device.name)
                    if among is None or device_id in among.get(pool_id, ()):
                        yield check.diagnose(place, device_id, unmet)
            location += len(published.devices)


def survey(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Deadline | None = None,
    only: tuple[str, str] | None = None,
    limit: int | None = None,
) -> tuple[RequestSurvey, ...]:
    """Return for each request of the pod how many devices of the node it can have and why not the others; raises nothing.

    Within each request the reason of most devices comes first.  A `Budget` as deadline is charged for all evaluations and
    explanations.  `only` is one (claim, request) as in the diagnosis; `limit` is the number of devices looked at for each request.
    """
    view = NodeView(node, pools, usage, deadline)
    return tuple(check.survey(limit) for check in _checks(demand, view, SearchState(demand, view), only))


def _checks(
    demand: Demand, view: NodeView, state: SearchState, only: tuple[str, str] | None
) -> "Iterator[_RequestCheck]":
    for index, claim in enumerate(demand.claims):
        for position, request in enumerate(claim.requests):
            for option in request.options:
                if only is None or only == (claim.label, option.name):
                    yield _RequestCheck(view, state, DeviceSlot(index, position, 0, option), claim.label)


class _RequestCheck:
    """Finds out for one request what speaks against each device of a node, taken by itself."""

    def __init__(self, view: NodeView, state: SearchState, slot: DeviceSlot, label: str) -> None:
        self.slot = slot
        self._label = label
        self._view = view
        self._state = state
        self._eligibility = Eligibility(slot.option, label, view)
        self._messages = DeviceMessages(view, state)

    def diagnose(self, location: int, device_id: DeviceId, unmet: UnmetSelectors | None) -> DeviceDiagnosis:
        view = self._view.pools.views[location]
        try:
            code, verdict = self._judge(location)
        except SearchEndedError as fatal:
            return DeviceDiagnosis(device_id, fatal.rejection.code, fatal.rejection.detail)
        position = location - view.base
        if code is Code.NO_MATCH and unmet is not None:
            text = unmet.message(view.published, position)
            return DeviceDiagnosis(device_id, code, text, unmet.distance(view.published, position))
        if code is None or code is Code.NO_MATCH:
            return DeviceDiagnosis(device_id, code)
        option, device = self.slot.option, view.published.devices[position]
        counters = self._state.tables(view.pool).counters if code is Code.COUNTERS else None
        shortage = None if counters is None else counters.shortage(device.consumes_counters)
        balances = () if counters is None else counters.balances(device.consumes_counters)
        return DeviceDiagnosis(
            device_id,
            code,
            self._message(code, location, verdict),
            shortage=shortage,
            further_shortages=tuple(
                balance for balance in balances if balance.remaining < balance.requested and balance != shortage
            ),
            capacities=tuple(self._view.sharing.shortages(option, location)) if code is Code.CAPACITY else (),
            conflict=self._conflict(location) if code is Code.GROUPS else None,
            taints=tuple(untolerated_taints(device.taints, option.tolerations)) if code is Code.TAINTED else (),
            also=self._beside_taints(location) if code is Code.TAINTED else "",
        )

    def _beside_taints(self, location: int) -> str:
        """Say what would keep a tainted device away if its taints were tolerated; empty if nothing would."""
        option, sharing = self.slot.option, self._view.sharing
        needs = sharing.needs(option, location)
        if isinstance(needs, CapacityMismatch) or sharing.exhausted(option, location) is not None:
            code: Code | None = Code.CAPACITY
        else:
            try:
                code = self._state.exclusion(self.slot.claim, option, location)
            except SearchEndedError as fatal:
                return f"{fatal.rejection.code.value}: {fatal.rejection.detail}"
        detail = "" if code is None else self._message(code, location, DeviceVerdict.ELIGIBLE)
        return f"{code.value}: {detail}" if code is not None and detail else ""

    def survey(self, limit: int | None) -> RequestSurvey:
        pools, option = self._view.pools, self.slot.option
        surveyed = len(pools.devices) if limit is None else min(len(pools.devices), limit)
        unmet = _UnmetByContent(self._view, option)
        # By code, and by message where that says more than the code: (devices, the first of them, the message about it).
        refused: dict[tuple[Code, str | None], tuple[int, str, str]] = {}
        visible = 0
        for location, device in enumerate(pools.devices[:surveyed]):
            try:
                code, verdict = self._judge(location)
                if code is None:
                    continue
                detail = unmet.message(location) if code is Code.NO_MATCH else self._message(code, location, verdict)
            except SearchEndedError as fatal:
                code, detail = fatal.rejection.code, fatal.rejection.detail
            visible += 1
            by_message = code in (Code.NO_MATCH, Code.POOL_INCOMPLETE, Code.POOL_INVALID)
            key = (code, detail if by_message else None)
            count, example, text = refused.get(key, (0, device.name, detail))
            refused[key] = (count + 1, example, text)
        hidden = [(pool.problem, pool.detail, pool.hidden) for pool in pools.unusable if pool.problem is not None]
        hidden += [(Code.GROUPS_OFF, ignored.detail, ignored.hidden) for ignored in pools.ignored]
        for code, detail, devices in hidden:
            count, example, text = refused.get((code, detail), (0, "", detail))
            refused[code, detail] = (count + devices, example, text)
        return RequestSurvey(
            claim=self._label,
            request=option.name,
            wanted=option.count,
            seen=surveyed + pools.hidden,
            free=surveyed - visible,
            refused=tuple(
                RejectedDevices(code=code, devices=count, example=example, detail=text)
                for (code, _), (count, example, text) in sorted(refused.items(), key=lambda entry: -entry[1][0])
            ),
            skipped=len(pools.devices) - surveyed,
        )

    def _judge(self, location: int) -> tuple[Code | None, DeviceVerdict]:
        """Return the code that speaks against the device, None if it is free, and the verdict behind it.

        A device that is taken, and that no selector means, counts as one that no selector means.
        """
        verdict = DeviceVerdict(self._eligibility.verdict(location))
        if verdict in (DeviceVerdict.TAKEN, DeviceVerdict.GROUPS_OFF) and not self._eligibility.selects(location):
            verdict = DeviceVerdict.NO_MATCH
        if verdict is DeviceVerdict.NO_MATCH:
            return Code.NO_MATCH, verdict
        if verdict is DeviceVerdict.OTHER_NODE:
            return Code.OTHER_NODE, verdict
        if verdict is DeviceVerdict.ELIGIBLE:
            return self._state.exclusion(self.slot.claim, self.slot.option, location), verdict
        return VERDICT_CODES.get(verdict), verdict

    def _message(self, code: Code, location: int, verdict: DeviceVerdict) -> str:
        return "" if code is Code.OTHER_NODE else self._messages.message(code, self.slot, location, verdict)

    def _conflict(self, location: int) -> GroupConflict | None:
        pools = self._view.pools
        tables, drawn = self._state.tables(pools.views[location].pool), pools.devices[location].consumes_counters
        conflict = tables.groups.conflict(drawn, admin=self.slot.option.admin)
        if conflict is None or not self._view.features.compatibility_groups:
            return None
        counter_set = conflict[0].counter_set
        remaining = tuple(counter for counter in tables.counters.balances(drawn) if counter.counter_set == counter_set)
        return GroupConflict(*conflict, remaining, tables.counters.shortage(drawn))


class _UnmetByContent:
    """Explanations of false selectors: one for all devices of equal content, and only for the first few contents."""

    def __init__(self, view: NodeView, option: SearchableRequest) -> None:
        self._view = view
        self._unmet = UnmetSelectors(option.selectors, view.deadline)
        self._messages: dict[Hashable, str] = {}

    def message(self, location: int) -> str:
        view, device = self._view.pools.views[location], self._view.pools.devices[location]
        key = (view.published.driver, device.attributes, device.capacity, device.allow_multiple_allocations)
        if key not in self._messages:
            if len(self._messages) == _MAX_EXPLAINED:
                return ""
            self._messages[key] = self._unmet.message(view.published, location - view.base)
        return self._messages[key]
