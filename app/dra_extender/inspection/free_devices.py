"""Free devices of a cluster: `allocator.availability` says of each one, on the nodes that are open, whether a claim can have it."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dra_extender.allocator.availability import (
    ANY_DEVICE,
    Availability,
    DeviceAvailability,
    any_device_demand,
    availability,
    taken_devices,
)
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.audit.published import slice_finding
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import Value
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.scheduling.extender import Extender


class FreeDevices(Value, frozen=True):
    """How many devices without a claim can be allocated, and how many are kept by what."""

    usable: int = 0
    blocked_by_counters: int = 0
    blocked_by_groups: int = 0
    unusable: int = 0


def judge_steps(
    ledger: Ledger, extender: Extender, features: Features, pools: Iterable[PoolId], most_repeated: int | None = None
) -> Iterator[tuple[DeviceId, DeviceAvailability | None] | None]:
    """Yield each published device of these pools that neither a claim nor a hold has, and None after each part of the work.

    The verdict is what the allocator says of the device on the nodes that are open; a device that one node may have and another may
    not is judged on several nodes.  `most_repeated` bounds the devices that are looked at again for this; a device that is
    undecided then has no verdict.  The ledger may change between two steps.
    """
    search = _Search(ledger, extender, any_device_demand(features), most_repeated)
    yield from search.steps(tuple(dict.fromkeys(pools)))
    for device in search.free:
        yield device, search.verdict(device)


def free_devices(view: ClusterView, pools: Iterable[PoolId]) -> Mapping[DeviceId, DeviceAvailability]:
    """Return the verdict about each published device of these pools that neither a claim nor a hold has."""
    steps = judge_steps(view.ledger, view.extender, view.features, pools)
    verdicts = (step for step in steps if step is not None)
    return {device: verdict for device, verdict in verdicts if verdict is not None}


def counted(devices: Iterable[DeviceAvailability]) -> FreeDevices:
    numbers = dict.fromkeys(Availability, 0)
    for device in devices:
        numbers[device.availability] += 1
    return FreeDevices(
        usable=numbers[Availability.USABLE],
        blocked_by_counters=numbers[Availability.COUNTERS],
        blocked_by_groups=numbers[Availability.GROUPS],
        unusable=numbers[Availability.UNUSABLE],
    )


def published_names(ledger: Ledger, pool_id: PoolId) -> Collection[str]:
    """Return the devices of the newest generation of a pool, each once."""
    published = published_pool(pool_id, ledger.slices.of_pool(pool_id)).published
    return dict.fromkeys(device.name for part in published for device in part.devices)


class _Search:
    """Asks the allocator on each open node about the devices whose verdict another node may change."""

    def __init__(self, ledger: Ledger, extender: Extender, demand: Demand, most_repeated: int | None) -> None:
        self._ledger = ledger
        self._extender = extender
        self._demand = demand
        self._left = most_repeated
        self._found: dict[DeviceId, DeviceAvailability] = {}
        self._open: dict[PoolId, set[DeviceId]] = {}
        self._visited: set[PoolId] = set()
        self._undecided: set[DeviceId] = set()
        self._problems: dict[PoolId, str] = {}
        self.free: list[DeviceId] = []

    def steps(self, pools: Sequence[PoolId]) -> Iterator[None]:
        for pool_id in pools:
            names, in_use = published_names(self._ledger, pool_id), taken_devices(self._ledger.usage().pool(pool_id))
            free = [(*pool_id, name) for name in names if name not in in_use]
            self.free += free
            self._open[pool_id] = set(free)
            yield None
        for name in self._nodes():
            yield from self._visit(name)

    def verdict(self, device: DeviceId) -> DeviceAvailability | None:
        """Return whether the device is usable; where no open node offers it, why none does; None if the bound came first."""
        if device in self._undecided:
            return None
        verdict = self._found.get(device)
        if verdict is not None:
            return verdict
        pool_id = device[:2]
        if pool_id not in self._problems:
            self._problems[pool_id] = self._problem(pool_id)
        return DeviceAvailability(Availability.UNUSABLE, self._problems[pool_id])

    def _nodes(self) -> Sequence[str]:
        ledger, names = self._ledger, set[str]()
        for pool_id in self._open:
            reaching = ledger.slices.nodes_of(pool_id)
            if reaching is None:
                return sorted(ledger.nodes)
            names.update(reaching)
        return sorted(names)

    def _visit(self, name: str) -> Iterator[None]:
        node, slices = self._ledger.nodes.get(name), self._ledger.slices
        if node is None or self._ledger.member_fit.closed(name):
            return
        sizes = Counter[PoolId]()
        for published in (*slices.local(name), *slices.near(node)):
            if self._open.get(published.pool_id):
                sizes[published.pool_id] += len(published.devices)
        for pool_id, size in tuple(sizes.items()):
            # Devices that are looked at on a further node count; beyond the bound the open ones stay undecided.
            if self._left is not None and pool_id in self._visited:
                self._left -= size
                if self._left < 0:
                    self._undecided |= self._open.pop(pool_id)
                    del sizes[pool_id]
                    continue
            self._visited.add(pool_id)
        if sizes:
            for diagnosis in self._extender.allocator.diagnose_devices(
                self._demand, node, ANY_DEVICE, explains_selectors=False, among=self._open
            ):
                device, code = diagnosis.device_id, diagnosis.code
                waiting = self._open.get(device[:2], ())
                if device in waiting and code is not Code.OTHER_NODE:
                    verdict = self._found[device] = availability(code)
                    if not verdict.depends_on_node:
                        self._open[device[:2]].discard(device)
                yield None
        yield None

    def _problem(self, pool_id: PoolId) -> str:
        """Return why no open node offers the devices of the pool."""
        finding = slice_finding(pool_id, self._ledger.slices.of_pool(pool_id))
        if finding is not None:
            return finding.detail
        reaching = self._ledger.slices.nodes_of(pool_id) or ()
        if len(reaching) != 1:
            return "no node that reaches it is open"
        (name,) = reaching
        state = self._ledger.member_fit.closed(name)
        return f"node {name} is {state}" if state else f"node {name} does not offer it"
