"""Who uses how much: devices, counters and capacity by namespace, device class and driver."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_extender.allocator.availability import DeviceAvailability
from dra_extender.inspection.audit.requests import requests_by_name
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.free_devices import FreeDevices, counted, free_devices
from dra_extender.inspection.objects import DEVICES, Origin, require, unread
from dra_extender.ledger.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError, Value
from dra_extender.model.device import Device, DeviceId

FORMAT: Final = "dra-extender.io/usage/v1"
UNKNOWN_CLASS: Final = ""
"""The class of a device whose claim does not tell for which request it is."""

_COUNTED: Final = frozenset({"resourceslices", "resourceclaims"})
_Key = tuple[str, str, str]


class UsageRow(Value, frozen=True):
    """What claims of a namespace have of the devices of a class and a driver; amounts in nano-units, by name.

    `devices` are those that a claim has whole, `shares` its parts of others, `observed` those that it sees by administrative
    access alone.  `counters` is what the devices draw; a device with several shares draws once, for the first claim by name.
    `capacity` is what the shares take.
    """

    namespace: str
    device_class: str
    driver: str
    claims: int
    pods: int
    devices: int = 0
    shares: int = 0
    observed: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()


class DriverUse(Value, frozen=True):
    """How many devices a driver publishes, how many of them claims have, wholly or in part, and how many are held for claims.

    `free` splits the others; None if what it depends on could not be read.
    """

    driver: str
    devices: int
    in_use: int
    held: int = 0
    free: FreeDevices | None = None


class UsageReport(Value, frozen=True):
    """The rows by namespace, class and driver, and all drivers."""

    format: str
    origin: Origin
    rows: tuple[UsageRow, ...]
    drivers: tuple[DriverUse, ...]


@dataclass(slots=True)
class _Sums:
    claims: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    devices: int = 0
    shares: int = 0
    observed: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    capacity: Counter[str] = field(default_factory=Counter)


def usage_report(view: ClusterView, namespace: str | None = None) -> UsageReport:
    """Count who uses how much now; pending allocations count, and those of deleted claims that pods still use.

    With a `namespace` the rows are those of this namespace; drivers have none, and are left out if claims of other namespaces could
    not be read.

    Raises:
        UnreadKindsError: objects that the answer depends on could not be read.
    """
    require(view.origin, _COUNTED, namespace)
    published = {
        (*pool_id, device.name): device
        for pool_id in {part.pool_id for part in view.ledger.slices.by_name.values()}
        for part in view.published_pool(pool_id).published
        for device in part.devices
    }
    sums: dict[_Key, _Sums] = {}
    drawn: set[DeviceId] = set()
    in_use: set[DeviceId] = set()
    for record in sorted(view.ledger.claims.counted(), key=lambda record: record.claim.metadata.key):
        classes = list(_classes(record))
        for index, holding in enumerate(record.counted):
            device_class = classes[index] if index < len(classes) else UNKNOWN_CLASS
            key = (record.claim.metadata.namespace, device_class, holding.driver)
            device = holding.device_id
            _add(sums.setdefault(key, _Sums()), record, holding, published.get(device), draws=device not in drawn)
            if not holding.admin:
                drawn.add(device)
                in_use.add(device)
    used = Counter(device[0] for device in in_use if device in published)
    rows = (
        UsageRow(
            namespace=place,
            device_class=device_class,
            driver=driver,
            claims=len(row_sums.claims),
            pods=len(row_sums.pods),
            devices=row_sums.devices,
            shares=row_sums.shares,
            observed=row_sums.observed,
            counters=tuple(sorted(row_sums.counters.items())),
            capacity=tuple(sorted(row_sums.capacity.items())),
        )
        for (place, device_class, driver), row_sums in sorted(sums.items())
        if namespace in (None, place)
    )
    drivers = () if unread(view.origin, _COUNTED) else tuple(_drivers(view, published, used))
    return UsageReport(format=FORMAT, origin=view.origin, rows=tuple(rows), drivers=drivers)


def _drivers(view: ClusterView, published: Mapping[DeviceId, Device], used: Counter[str]) -> Iterator[DriverUse]:
    free: dict[str, list[DeviceAvailability]] = defaultdict(list)
    is_known = not unread(view.origin, DEVICES)
    for device, verdict in free_devices(view, [device_id[:2] for device_id in published]).items() if is_known else ():
        free[device[0]].append(verdict)
    for driver, devices in sorted(Counter(driver for driver, _, _ in published).items()):
        held_count = devices - used[driver] - len(free[driver]) if is_known else 0
        split = counted(free[driver]) if is_known else None
        yield DriverUse(driver=driver, devices=devices, in_use=used[driver], held=held_count, free=split)


def _classes(record: ClaimRecord) -> Iterator[str]:
    """Yield the class for each holding, in their order."""
    pending = None if record.pending is None else record.pending.allocation
    allocation = record.claim.status.allocation or pending
    if allocation is None:
        return
    try:
        requests = dict(requests_by_name(record.spec))
    except (ModelError, SpecNotKeptError):
        return
    for result in allocation.devices.results:
        request = requests.get(result.request)
        yield UNKNOWN_CLASS if request is None else request.device_class_name


def _add(sums: _Sums, record: ClaimRecord, holding: DeviceHolding, device: Device | None, *, draws: bool) -> None:
    sums.claims.add(record.claim.metadata.uid)
    sums.pods.update(consumer.uid for consumer in record.claim.status.reserved_for if consumer.is_pod)
    if holding.admin:
        sums.observed += 1
        return
    if holding.share_id is None:
        sums.devices += 1
    else:
        sums.shares += 1
        sums.capacity.update(dict(holding.consumed_capacity))
    if draws:
        for entry in holding.drawn(device):
            for name, amount in entry.counters:
                sums.counters[name] += amount
