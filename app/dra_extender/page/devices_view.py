"""How each device of a cluster stands, by pool, driver and device class."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from dra_extender.allocator.availability import Availability
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorList, activation_of
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.published import class_selectors, device_kind
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import DevicesReport, DeviceUse, PoolUse
from dra_extender.inspection.holders import Holder, holder_text
from dra_extender.model.device import DeviceId
from dra_extender.model.resource_slice import ResourceSlice


class DeviceState(Enum):
    """The state of a device, in words: somebody has it, it is wrong or blocked, or it can be had."""

    ALLOCATED = "allocated"
    SHARED = "shared by claims"
    HELD = "held for a pod"
    PENDING = "being allocated"
    ORPHANED = "claim deleted"
    GONE = "allocated, not published"
    COUNTERS = Availability.COUNTERS.value
    GROUPS = Availability.GROUPS.value
    UNUSABLE = Availability.UNUSABLE.value
    USABLE = Availability.USABLE.value

    @property
    def key(self) -> str:
        """Return the name that addresses and style sheets use."""
        return self.name.lower()


IN_USE: Final = frozenset(DeviceState) - frozenset(map(DeviceState, Availability))
"""States of devices that somebody has."""

Devices = Sequence[tuple[DeviceUse, DeviceState]]


class PoolStates(NamedTuple):
    """A pool with its devices, those that are not published any more last, and their states.

    `whole_devices` counts usable devices that draw on no counter set, and counter sets on which nothing draws and from
    which a device is usable.
    """

    pool: PoolUse
    devices: Devices
    counts: Mapping[DeviceState, int]
    whole_devices: int

    @property
    def holders(self) -> Mapping[str, tuple[Holder, ...]]:
        return {device.name: device.holders for device, _ in self.devices}


def pool_states(report: DevicesReport) -> tuple[PoolStates, ...]:
    pools = []
    for pool in report.pools:
        devices = [(device, state_of(device)) for device in pool.devices]
        devices += [(device, DeviceState.GONE) for device in pool.gone]
        pools.append(PoolStates(pool, devices, Counter(state for _, state in devices), _whole_devices(pool, devices)))
    return tuple(pools)


def state_of(device: DeviceUse) -> DeviceState:
    holders = [holder for holder in device.holders if not holder.admin]
    if not holders:
        return DeviceState(Availability(device.availability).value)
    if any(holder.orphaned for holder in holders):
        return DeviceState.ORPHANED
    if all(holder.until is not None for holder in holders):
        return DeviceState.HELD
    if any(holder.pending for holder in holders):
        return DeviceState.PENDING
    return DeviceState.SHARED if device.shared else DeviceState.ALLOCATED


def _whole_devices(pool: PoolUse, devices: Devices) -> int:
    untouched = {counter_set.name for counter_set in pool.counter_sets if not counter_set.members}
    alone, sets = 0, set[str]()
    for device, state in devices:
        if state is DeviceState.USABLE:
            alone += not device.counter_sets
            if untouched.issuperset(device.counter_sets):
                sets.update(device.counter_sets)
    return alone + len(sets)


def device_text(device: DeviceUse, state: DeviceState, now: float) -> str:
    """E.g. `allocated: ml/train 3h; taint example.com/broken:NoSchedule`."""
    names = ", ".join(holder_text(holder, now) for holder in device.holders)
    taints = f"; taint {', '.join(device.taints)}" if device.taints else ""
    return ": ".join(filter(None, (device.availability_text or state.value, names))) + taints


class KindTotal(NamedTuple):
    """The devices of a driver or a device class, by state; `in_use` counts those that somebody has."""

    name: str
    devices: int
    by_state: Mapping[DeviceState, int]

    @property
    def in_use(self) -> int:
        return sum(self.by_state.get(state, 0) for state in IN_USE)


def driver_totals(pools: Sequence[PoolStates]) -> tuple[KindTotal, ...]:
    counts: dict[str, Counter[DeviceState]] = {}
    for states in pools:
        counts.setdefault(states.pool.driver, Counter()).update(states.counts)
    return tuple(KindTotal(driver, count.total(), count) for driver, count in sorted(counts.items()))


def class_totals(pools: Sequence[PoolStates], classes: Mapping[str, Collection[DeviceId]]) -> tuple[KindTotal, ...]:
    """Return the totals of the devices of each class; leave out classes without devices."""
    state_of_device = {
        (states.pool.driver, states.pool.pool, device.name): state
        for states in pools
        for device, state in states.devices
    }
    counts = (
        (name, Counter(state_of_device[device] for device in devices)) for name, devices in sorted(classes.items())
    )
    return tuple(KindTotal(name, count.total(), count) for name, count in counts if count)


def narrowed(states: PoolStates, devices: Collection[DeviceId]) -> PoolStates:
    """Return the pool with only these of its devices."""
    pool = states.pool
    devices_shown = [
        (device, state) for device, state in states.devices if (pool.driver, pool.pool, device.name) in devices
    ]
    return states._replace(devices=devices_shown, counts=Counter(state for _, state in devices_shown))


def by_class(states: PoolStates, classes: Mapping[str, Collection[DeviceId]]) -> Iterator[tuple[str, PoolStates]]:
    """Yield the pool with only the devices of each class that has some, and with those of no class under an empty name."""
    pool_id = states.pool.driver, states.pool.pool
    left = {(*pool_id, device.name) for device, _ in states.devices}
    for name, devices in classes.items():
        of_class = narrowed(states, devices)
        if of_class.devices:
            left.difference_update(devices)
            yield name, of_class
    if left:
        yield "", narrowed(states, left)


MOST_DEVICES: Final = 1000
"""Devices of a pool, and members of a counter set, on one page; the command prints all."""


MOST_JUDGED: Final = 20_000
"""Kinds of devices that are judged for all classes together."""


class ClassDevices:
    """The published devices that each class means.  Devices that expressions cannot tell apart are judged once."""

    def __init__(self, view: ClusterView) -> None:
        self._classes = view.ledger.classes
        self._programs = ProgramCache()
        self._left = MOST_JUDGED
        self._by_class: dict[str, frozenset[DeviceId] | None] = {}
        self._kinds: dict[object, tuple[ResourceSlice, int]] = {}
        self._devices: defaultdict[object, list[DeviceId]] = defaultdict(list)
        for pool_id in {published.pool_id for published in view.ledger.slices.by_name.values()}:
            for published in view.published_pool(pool_id).published:
                for position, device in enumerate(published.devices):
                    kind = device_kind(published, device)
                    self._kinds.setdefault(kind, (published, position))
                    self._devices[kind].append((*pool_id, device.name))

    def of_class(self, name: str) -> frozenset[DeviceId] | None:
        """Return the devices of a class; None if there is no such class, or if too many kinds of devices have been judged."""
        if name not in self._by_class:
            device_class = self._classes.get(name)
            self._left -= len(self._kinds) if device_class is not None and device_class.spec.selectors else 0
            if device_class is None or self._left < 0:
                self._by_class[name] = None
            else:
                selectors = class_selectors(device_class, self._programs)
                self._by_class[name] = frozenset(
                    device
                    for kind, (published, position) in self._kinds.items()
                    if _means(selectors, published, position)
                    for device in self._devices[kind]
                )
        return self._by_class[name]


def _means(selectors: SelectorList, published: ResourceSlice, position: int) -> bool:
    activation = activation_of(published, published.devices[position])
    try:
        return selectors.evaluate(published, position, None, activation)
    except (SelectorError, SelectionTimeoutError):
        return False
