"""Who uses how much: devices, counters and capacity by namespace, device class and driver."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.availability import DeviceAvailability
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

    `devices` are those that a claim has whole, `shares` its parts of others, `observed` those that it sees only by
    administrative access.  `counters` is what the devices draw; a device with several shares draws once, for the first claim by
    name.  `capacity` is what the shares take.
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


class _Held(NamedTuple):
    """What a claim has of a device; a device with several shares `draws` once."""

    record: ClaimRecord
    holding: DeviceHolding
    draws: bool


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
    held: defaultdict[_Key, list[_Held]] = defaultdict(list)
    in_use: set[DeviceId] = set()
    for record in sorted(view.ledger.claims.counted(), key=lambda record: record.claim.metadata.key):
        classes = list(_classes(record))
        for index, holding in enumerate(record.counted):
            device_class = classes[index] if index < len(classes) else UNKNOWN_CLASS
            key = (record.claim.metadata.namespace, device_class, holding.driver)
            held[key].append(_Held(record, holding, draws=holding.device_id not in in_use))
            if not holding.admin:
                in_use.add(holding.device_id)
    used = Counter(device[0] for device in in_use if device in published)
    rows = [_row(key, entries, published) for key, entries in sorted(held.items()) if namespace in (None, key[0])]
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
        requests = dict(record.spec.options)
    except (ModelError, SpecNotKeptError):
        return
    for result in allocation.devices.results:
        request = requests.get(result.request)
        yield UNKNOWN_CLASS if request is None else request.device_class_name


def _row(key: _Key, entries: Sequence[_Held], published: Mapping[DeviceId, Device]) -> UsageRow:
    namespace, device_class, driver = key
    records = {entry.record.claim.metadata.uid: entry.record for entry in entries}
    own = [entry for entry in entries if not entry.holding.admin]
    counters, capacity = Counter[str](), Counter[str]()
    for _, holding, draws in own:
        if holding.share_id is not None:
            capacity.update(dict(holding.consumed_capacity))
        for consumption in holding.drawn(published.get(holding.device_id)) if draws else ():
            counters.update(dict(consumption.counters))
    devices = sum(entry.holding.share_id is None for entry in own)
    consumers = (consumer for record in records.values() for consumer in record.claim.status.reserved_for)
    return UsageRow(
        namespace=namespace,
        device_class=device_class,
        driver=driver,
        claims=len(records),
        pods=len({consumer.uid for consumer in consumers if consumer.is_pod}),
        devices=devices,
        shares=len(own) - devices,
        observed=len(entries) - len(own),
        counters=tuple(sorted(counters.items())),
        capacity=tuple(sorted(capacity.items())),
    )
