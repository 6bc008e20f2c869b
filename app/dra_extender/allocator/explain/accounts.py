"""What keeps each device of a node from a request, one device at a time, before anything is picked for the pod."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.explain.device_reasons import EXCLUSION_CODES, DeviceReasons, DeviceSlot
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.pools.pools import NodePools, SliceView
from dra_extender.allocator.rules.compatibility import GroupState
from dra_extender.allocator.rules.counters import Shortage
from dra_extender.allocator.rules.eligibility import VERDICT_CODES, DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.rules.shared_capacity import CapacityShortage
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.rejection import Code
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.device import CounterConsumption, DeviceId, PoolId
from dra_extender.model.node import Node

Among = Mapping[PoolId, Collection[DeviceId]]
"""The devices that are asked about, by pool."""


class GroupConflict(NamedTuple):
    """What a device declares on a counter set, and which groups are in force there (None: members without groups).

    `counters` has what remains of each counter of the set; `suffice`: of all that the device draws on enough remains.
    """

    entry: CounterConsumption
    state: GroupState
    counters: tuple[Shortage, ...] = ()
    suffice: bool = False


class DeviceAccount(NamedTuple):
    """One device: why the request cannot have it now, or that it can (`code` None).

    `detail` is a sentence, empty where the code says it all.  `distance` tells how far a device is that no selector means (see
    `cel.explain.nearness`), 0 for any other.  `shortage`, `capacity` and `conflict` have the amounts and groups behind the codes
    COUNTERS, CAPACITY and GROUPS.
    """

    device_id: DeviceId
    code: Code | None
    detail: str = ""
    distance: float = 0.0
    shortage: Shortage | None = None
    capacity: CapacityShortage | None = None
    conflict: GroupConflict | None = None


def device_accounts(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    only: tuple[str, str],
    deadline: Deadline | None = None,
    *,
    explains_selectors: bool = True,
    among: Among | None = None,
) -> Iterator[DeviceAccount]:
    """Every device of the node for one request, (claim, request or `request/alternative`), in the order of the search.

    `among`: these devices alone, as far as they are in there when their turn comes.

    A `Budget` as deadline is charged for what is evaluated and explained.  Without `explains_selectors`, devices that no selector
    means have neither detail nor distance.
    """
    view = NodeView(node, pools, usage, deadline)
    state = SearchState(demand, view)
    for index, claim in enumerate(demand.claims):
        for position, request in enumerate(claim.requests):
            for wanted in request.options:
                if (claim.label, wanted.name) == only:
                    slot = DeviceSlot(index, position, 0, wanted)
                    yield from _Accounts(view, state, slot, claim.label, among, explains_selectors=explains_selectors)


class RequestCheck:
    """Finds out for one request what speaks against each device of a node, taken by itself."""

    def __init__(self, view: NodeView, state: SearchState, slot: DeviceSlot, label: str) -> None:
        self._view = view
        self._state = state
        self._slot = slot
        self._eligibility = Eligibility(slot.wanted, label, view)
        self._reasons = DeviceReasons(view, state)

    def code(self, location: int) -> tuple[Code | None, DeviceVerdict]:
        """The code that speaks against the device, None if it is free, and the verdict behind it.

        A device that is taken, and that no selector means, counts as one that no selector means.

        Raises:
            SearchEndedError: nobody can tell, because a selector fails on the device.
        """
        verdict = DeviceVerdict(self._eligibility.of(location))
        if verdict in (DeviceVerdict.TAKEN, DeviceVerdict.GROUPS_OFF) and not self._eligibility.selects(location):
            verdict = DeviceVerdict.NO_MATCH
        if verdict is DeviceVerdict.NO_MATCH:
            return Code.NO_MATCH, verdict
        if verdict is DeviceVerdict.OTHER_NODE:
            return Code.OTHER_NODE, verdict
        if verdict is DeviceVerdict.ELIGIBLE:
            return EXCLUSION_CODES[self._state.exclusion(self._slot.claim, self._slot.wanted, location)], verdict
        return VERDICT_CODES.get(verdict), verdict

    def detail(self, code: Code, location: int, verdict: DeviceVerdict) -> str:
        """A sentence about a device that the selectors mean; empty where the code says it all."""
        return "" if code is Code.OTHER_NODE else self._reasons.of(code, self._slot, location, verdict)


class _Accounts:
    def __init__(
        self,
        view: NodeView,
        state: SearchState,
        slot: DeviceSlot,
        label: str,
        among: Among | None,
        *,
        explains_selectors: bool,
    ) -> None:
        self._view = view
        self._state = state
        self._slot = slot
        self._among = among
        self._check = RequestCheck(view, state, slot, label)
        self._unmet = UnmetSelectors(slot.wanted.selectors, view.deadline) if explains_selectors else None

    def __iter__(self) -> Iterator[DeviceAccount]:
        pools, location = self._view.pools, 0
        while location < len(pools.devices):
            view = pools.views[location]
            if self._among is None or self._among.get(view.pool.pool_id):
                yield from self._of_slice(view)
            location = view.base + len(view.published.devices)

    def _of_slice(self, view: SliceView) -> Iterator[DeviceAccount]:
        pool_id, among = view.pool.pool_id, self._among
        for location, device in enumerate(view.published.devices, view.base):
            device_id = (*pool_id, device.name)
            if among is None or device_id in among.get(pool_id, ()):
                yield self._of(location, device_id)

    def _of(self, location: int, device_id: DeviceId) -> DeviceAccount:
        view = self._view.pools.views[location]
        try:
            code, verdict = self._check.code(location)
        except SearchEndedError as fatal:
            return DeviceAccount(device_id, fatal.rejection.code, fatal.rejection.detail)
        if code is None:
            return DeviceAccount(device_id, None)
        if code is Code.NO_MATCH:
            if self._unmet is None:
                return DeviceAccount(device_id, code)
            position = location - view.base
            text, distance = (
                self._unmet.of(view.published, position),
                self._unmet.distance(view.published, position),
            )
            return DeviceAccount(device_id, code, text, distance)
        return DeviceAccount(
            device_id,
            code,
            self._check.detail(code, location, verdict),
            shortage=self._shortage(location) if code is Code.COUNTERS else None,
            capacity=self._capacity(location) if code is Code.CAPACITY else None,
            conflict=self._conflict(location) if code is Code.GROUPS else None,
        )

    def _shortage(self, location: int) -> Shortage | None:
        pools = self._view.pools
        tables = self._state.tables(pools.views[location].pool)
        return tables.counters.shortage(pools.devices[location].consumes_counters)

    def _capacity(self, location: int) -> CapacityShortage | None:
        return self._view.sharing.exhausted(self._slot.wanted, location)

    def _conflict(self, location: int) -> GroupConflict | None:
        pools = self._view.pools
        tables, drawn = self._state.tables(pools.views[location].pool), pools.devices[location].consumes_counters
        found = None if tables.groups is None else tables.groups.conflict(drawn, admin=self._slot.wanted.admin)
        if found is None:
            return None
        left = tuple(each for each in tables.counters.left(drawn) if each.counter_set == found[0].counter_set)
        return GroupConflict(*found, left, tables.counters.shortage(drawn) is None)
