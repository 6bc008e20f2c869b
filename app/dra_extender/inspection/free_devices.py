"""Which devices without a claim can be allocated now, and what keeps the others: the words that every answer uses for free devices.

The allocator itself judges each device, for a request of one device without selectors and tolerations.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.demand.validate import prepare
from dra_extender.allocator.explain.accounts import DeviceAccount
from dra_extender.allocator.rules.verdict import published_pool
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.audit.inventory import slice_finding
from dra_extender.cel.program_cache import ProgramCache
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.model.api_json import Value
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ClaimSpec, DeviceClaim, DeviceRequest, DeviceRequestBody, ResourceClaim

_ANY: Final = "any"


class Availability(StrEnum):
    """What becomes of a device that no claim has."""

    USABLE = "usable"
    COUNTERS = "blocked by counters"
    GROUPS = "blocked by groups"
    UNUSABLE = "unusable"


class FreeDevice(NamedTuple):
    """Whether a device that no claim has can be allocated; `reason` says why it is unusable, otherwise it is empty."""

    availability: Availability
    reason: str = ""


class FreeDevices(Value, frozen=True):
    """How many devices without a claim can be allocated, and how many are kept by what."""

    usable: int = 0
    blocked_by_counters: int = 0
    blocked_by_groups: int = 0
    unusable: int = 0


_BY_CODE: Final = {
    None: FreeDevice(Availability.USABLE),
    Code.COUNTERS: FreeDevice(Availability.COUNTERS),
    Code.GROUPS: FreeDevice(Availability.GROUPS),
    Code.GROUPS_OFF: FreeDevice(Availability.GROUPS),
    Code.NEIGHBOURS: FreeDevice(Availability.GROUPS),
    Code.TAINTED: FreeDevice(Availability.UNUSABLE, "tainted"),
}
_ON_THIS_NODE: Final = frozenset({Code.OTHER_NODE, Code.NODE_OPERATIONS, Code.NEIGHBOURS})
"""Codes against a device that another node may not have."""


def free_devices(view: ClusterView, pools: Iterable[PoolId]) -> Mapping[DeviceId, FreeDevice]:
    """Return the verdict about each published device of these pools that neither a claim nor a hold has."""
    search = _Search(view, dict.fromkeys(pools))
    return {device: search.verdict(device) for device in search.free}


def counted(devices: Iterable[FreeDevice]) -> FreeDevices:
    """Return the number of devices by availability."""
    numbers = dict.fromkeys(Availability, 0)
    for each in devices:
        numbers[each.availability] += 1
    return FreeDevices(
        usable=numbers[Availability.USABLE],
        blocked_by_counters=numbers[Availability.COUNTERS],
        blocked_by_groups=numbers[Availability.GROUPS],
        unusable=numbers[Availability.UNUSABLE],
    )


def free_parts(free: FreeDevices) -> list[str]:
    """E.g. `8 usable`, `60 blocked by counters`; nothing for what there is none of."""
    numbers = (free.usable, free.blocked_by_counters, free.blocked_by_groups, free.unusable)
    return [f"{number} {word}" for number, word in zip(numbers, Availability, strict=True) if number]


class _Search:
    """Asks the allocator on each open node about the devices whose verdict another node may change."""

    def __init__(self, view: ClusterView, pools: Collection[PoolId]) -> None:
        self._view = view
        self._found: dict[DeviceId, FreeDevice] = {}
        self._open: dict[PoolId, set[DeviceId]] = defaultdict(set)
        self.free = tuple(device for pool_id in pools for device in _untaken(view, pool_id))
        for device in self.free:
            self._open[device[:2]].add(device)
        self._problems: dict[PoolId, str] = {}
        demand = _demand(view)
        for node in self._nodes():
            self._visit(demand, node)

    def verdict(self, device: DeviceId) -> FreeDevice:
        """Return whether the device is usable; where no open node offers it, why none does."""
        found = self._found.get(device)
        if found is not None:
            return found
        return FreeDevice(Availability.UNUSABLE, self._problem(device[:2]))

    def _nodes(self) -> Sequence[Node]:
        """The nodes that are open and may reach one of the devices."""
        ledger, names = self._view.ledger, set[str]()
        for pool_id in self._open:
            reaching = ledger.slices.nodes_of(pool_id)
            if reaching is None:
                names = set(ledger.nodes)
                break
            names.update(reaching)
        return [ledger.nodes[name] for name in sorted(names & set(ledger.nodes) - set(self._view.closed_nodes))]

    def _visit(self, demand: Demand, node: Node) -> None:
        slices = self._view.ledger.slices
        if not any(self._open.get(each.pool_id) for each in (*slices.local(node.name), *slices.near(node))):
            return
        accounts = self._view.extender.accounts(demand, node, (_ANY, _ANY), explains_selectors=False)
        for account in accounts:
            self._note(account)

    def _note(self, account: DeviceAccount) -> None:
        device, code = account.device_id, account.code
        waiting = self._open.get(device[:2])
        if waiting is None or device not in waiting or code is Code.OTHER_NODE:
            return
        reason = "" if code is None else code.value
        self._found[device] = _BY_CODE.get(code, FreeDevice(Availability.UNUSABLE, reason))
        if code not in _ON_THIS_NODE:
            waiting.discard(device)

    def _problem(self, pool_id: PoolId) -> str:
        if pool_id not in self._problems:
            finding = slice_finding(pool_id, self._view.ledger.slices.of_pool(pool_id))
            self._problems[pool_id] = self._closed(pool_id) if finding is None else finding.detail
        return self._problems[pool_id]

    def _closed(self, pool_id: PoolId) -> str:
        reaching = self._view.ledger.slices.nodes_of(pool_id) or ()
        if len(reaching) != 1:
            return "no node that reaches it is open"
        (name,) = reaching
        state = self._view.closed_nodes.get(name)
        return f"node {name} is {state}" if state else f"node {name} does not offer it"


def _untaken(view: ClusterView, pool_id: PoolId) -> Iterable[DeviceId]:
    usage = view.ledger.usage().pool(pool_id)
    taken = {name for name, holdings in usage.items() if any(not each.admin for each in holdings)}
    published = published_pool(pool_id, view.ledger.slices.of_pool(pool_id)).published
    names = dict.fromkeys(device.name for part in published for device in part.devices)
    return ((*pool_id, name) for name in names if name not in taken)


def _demand(view: ClusterView) -> Demand:
    """Return the demand of a claim for one device, whichever it is."""
    asked = DeviceRequestBody(device_class_name=_ANY, allocation_mode="ExactCount", count=1)
    devices = DeviceClaim(requests=(DeviceRequest(name=_ANY, exactly=asked),))
    claim = NamedClaim(_ANY, ResourceClaim(spec=ClaimSpec(devices=devices)))
    demand = prepare((claim,), {_ANY: DeviceClass()}, ProgramCache(), view.features)
    if isinstance(demand, Rejection):
        raise TypeError(demand.text)
    return demand
