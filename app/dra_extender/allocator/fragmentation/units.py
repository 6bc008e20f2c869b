"""The units of a node's devices: devices that share counters with each other, or a single device; and what still fits on them.

What fits on a unit depends only on its state, and equal units in equal states are one `UnitRoom`, so that nodes share the work.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.fragmentation.kinds import WholeDevice
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.capacity import Amounts, CapacityError, CapacityMismatch
from dra_extender.allocator.rules.compatibility_groups import GroupState, admits, state_with
from dra_extender.allocator.rules.counter_sets import CounterKey, amounts_drawn
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.reasons import SearchEndedError
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.cel.budget import Budget
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption, PoolId
from dra_extender.model.node import Node

MOST_FITS: Final = 1_000
"""A unit counts no more pods of a kind than this: devices that are shared without limit have room for any number."""
_MOST_ROOMS: Final = 20_000
_HALF: Final = 0.5
_SELECTOR_COST: Final = 200
"""Cost units for the selectors of a shape, by device of a node; an ordinary list of selectors takes a tenth."""


class UnitDevice(NamedTuple):
    """A device of a unit: what it draws, its capacities if several claims may share it, and what each shape takes of them.

    `shares` has None for a shape that the device does not serve, and no amounts where the device is taken whole.
    """

    draws: tuple[CounterConsumption, ...]
    shareable: bool
    capacity: tuple[tuple[str, int], ...]
    shares: tuple[Amounts | None, ...]

    @property
    def amounts(self) -> Amounts:
        return tuple(amount for _, amount in self.capacity)


class DeviceUnit:
    """Devices that share counters, or one device; two units with equal devices and counters are one object."""

    __slots__ = (
        "__weakref__",
        "counters",
        "device_sizes",
        "devices",
        "empty",
        "leftovers",
        "serving_places",
        "sizes",
        "totals",
    )
    empty: "UnitRoom"
    leftovers: tuple[float, ...]
    """By shape, what is left of the unit when it is full of devices of the shape; none if not even one fits."""

    def __init__(self, devices: Sequence[UnitDevice], totals: Mapping[CounterKey, int]) -> None:
        self.devices = tuple(devices)
        self.counters = tuple(totals)
        self.totals = totals
        # By place, what the whole device takes of the unit.
        self.device_sizes = tuple(self._size(place, device.amounts) for place, device in enumerate(self.devices))
        shapes = range(len(devices[0].shares))
        # By shape, the places of the devices that serve it, those that take least first.
        self.serving_places = tuple(self._serving(shape) for shape in shapes)
        # By shape, what one device of it takes of the unit.
        self.sizes = tuple(
            self._size(places[0], self.devices[places[0]].shares[shape]) if places else 0.0
            for shape, places in enumerate(self.serving_places)
        )

    def _serving(self, shape: int) -> tuple[int, ...]:
        serving = (place for place, device in enumerate(self.devices) if device.shares[shape] is not None)
        return tuple(sorted(serving, key=lambda place: (self._size(place, self.devices[place].shares[shape]), place)))

    def _size(self, place: int, share: Amounts | None) -> float:
        """Return the part of the unit that this share of a device takes."""
        device = self.devices[place]
        part = 1.0
        if device.shareable:
            parts = [
                amount / capacity for amount, capacity in zip(share or (), device.amounts, strict=False) if capacity
            ]
            part = max(parts, default=0.0) or 1 / MOST_FITS
        return part * _drawn_part(device, self.totals)


class UnitRoom:
    """A unit in one state: what is free, and how many devices of each shape still fit.

    `takeable_size` adds up what the devices that can still be taken are of the unit: placements that cost little of it come first
    if nothing is known of what is expected.  `_taken_shares` has by place the amounts that are taken of a shareable device, or
    None for a device that is taken whole.  `worth` is valid for the prices `worth_prices`.
    """

    __slots__ = (
        "_after",
        "_groups",
        "_remaining",
        "_rooms",
        "_taken_shares",
        "fits",
        "free",
        "number",
        "takeable_size",
        "unit",
        "worth",
        "worth_prices",
    )

    def __init__(
        self,
        rooms: "Rooms",
        unit: DeviceUnit,
        remaining: tuple[int, ...],
        taken_shares: Mapping[int, Amounts | None],
        groups: Mapping[str, GroupState],
    ) -> None:
        self._rooms = rooms
        self.unit = unit
        self._remaining = remaining
        self._taken_shares = taken_shares
        self._groups = groups
        self._after: dict[tuple[int, Amounts | None], UnitRoom] = {}
        self.number = rooms.next_number()
        self.free = self._free()
        self.takeable_size = (
            sum(size for place, size in enumerate(unit.device_sizes) if self.admits(place, None))
            if unit.counters
            else 0.0
        )
        self.fits = tuple(self._count(shape) for shape in range(len(unit.serving_places)))
        self.worth = 0.0
        self.worth_prices: object = None

    def admits(self, place: int, share: Amounts | None) -> bool:
        """Return whether the device can be taken, whole or in this share."""
        device = self.unit.devices[place]
        if place in self._taken_shares:
            used_amounts = self._taken_shares[place]
            if used_amounts is None or not device.shareable:
                return False
            return all(
                capacity - used >= amount
                for capacity, used, amount in zip(device.amounts, used_amounts, share or (), strict=False)
            )
        if any(capacity < amount for capacity, amount in zip(device.amounts, share or (), strict=False)):
            return False
        if not device.draws:
            return True
        remaining = dict(zip(self.unit.counters, self._remaining, strict=True))
        return all(admits(self._groups, entry) for entry in device.draws) and all(
            remaining.get(key, amount) >= amount for key, amount in amounts_drawn(device.draws)
        )

    def after(self, place: int, share: Amounts | None) -> "UnitRoom":
        """Return the room once the device is taken, whole or in this share."""
        key = place, share
        room_after = self._after.get(key)
        if room_after is None:
            room_after = self._after[key] = self._rooms.find(self.unit, *self.state_after(place, share))
        return room_after

    def useless(self, shapes: Sequence[int]) -> float:
        """Return how much of what is free is useless to these shapes, of which no device fits.

        What is left of the unit when it is full of devices of one of these shapes is none's fault.
        """
        left_when_full = min(
            (self.unit.leftovers[shape] for shape in shapes if self.unit.serving_places[shape]), default=0.0
        )
        return max(0.0, self.free - left_when_full)

    def forget_successors(self) -> None:
        self._after.clear()

    def state_after(
        self, place: int, share: Amounts | None
    ) -> tuple[tuple[int, ...], Mapping[int, Amounts | None], Mapping[str, GroupState]]:
        """Return what is left of the counters, what is taken, and the groups, once the device is taken."""
        device, counters, groups = self.unit.devices[place], self._remaining, self._groups
        before, is_taken = self._taken_shares.get(place), place in self._taken_shares
        now: Amounts | None = None
        if device.shareable and share is not None and not (is_taken and before is None):
            now = share if before is None else tuple(map(sum, zip(before, share, strict=True)))
        if device.draws and not is_taken:
            remaining, joined = dict(zip(self.unit.counters, counters, strict=True)), dict(groups)
            for entry in device.draws:
                joined[entry.counter_set] = state_with(joined, entry)
            for key, amount in amounts_drawn(device.draws):
                if key in remaining:
                    remaining[key] -= amount
            counters, groups = tuple(remaining.values()), joined
        return counters, {**self._taken_shares, place: now}, groups

    def _free(self) -> float:
        if self.unit.counters:
            parts = [
                max(0, amount) / self.unit.totals[key]
                for key, amount in zip(self.unit.counters, self._remaining, strict=True)
                if self.unit.totals[key]
            ]
            return sum(parts) / len(self.unit.totals)
        if 0 not in self._taken_shares:
            return 1.0
        used_amounts = self._taken_shares[0]
        if used_amounts is None:
            return 0.0
        amounts = self.unit.devices[0].amounts
        return min(
            (
                max(0, capacity - used) / capacity
                for capacity, used in zip(amounts, used_amounts, strict=False)
                if capacity
            ),
            default=1.0,
        )

    def _count(self, shape: int) -> int:
        """Return how many devices of the shape fit beside each other, taking those first that take least."""
        room, count = self, 0
        for place in self.unit.serving_places[shape]:
            device = self.unit.devices[place]
            share = device.shares[shape]
            if share is None or not room.admits(place, share):
                continue
            count += room._shares_left(place, share)
            if not device.draws:
                # No other device of the unit is there.
                break
            room = _Trial(room, place, share)
        return min(count, MOST_FITS)

    def _shares_left(self, place: int, share: Amounts) -> int:
        device = self.unit.devices[place]
        if not device.shareable:
            return 1
        used_amounts = self._taken_shares.get(place) or (0,) * len(device.capacity)
        counts = [
            (capacity - used) // amount
            for capacity, used, amount in zip(device.amounts, used_amounts, share, strict=False)
            if amount
        ]
        return min(counts, default=MOST_FITS)


class _Trial(UnitRoom):
    """A room in the middle of a count: it has no counts of its own, and `Rooms` does not keep it."""

    __slots__ = ()

    def __init__(self, room: UnitRoom, place: int, share: Amounts | None) -> None:
        self.unit = room.unit
        self._remaining, self._taken_shares, self._groups = room.state_after(place, share)


class Rooms:
    """All rooms that were met, so that equal ones are one object; begins anew when there are too many.

    A unit is kept as long as a layout or a room has it.
    """

    def __init__(self) -> None:
        self._units: WeakValueDictionary[Hashable, DeviceUnit] = WeakValueDictionary()
        self._rooms: dict[Hashable, UnitRoom] = {}
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def unit(self, devices: Sequence[UnitDevice], totals: Mapping[CounterKey, int]) -> DeviceUnit:
        key = tuple(devices), tuple(totals.items())
        unit = self._units.get(key)
        if unit is None:
            unit = DeviceUnit(devices, totals)
            unit.empty = empty = self.find(unit, tuple(totals.values()), {}, {})
            unit.leftovers = tuple(
                max(0.0, empty.free - fits * size) if fits else 0.0
                for fits, size in zip(empty.fits, unit.sizes, strict=True)
            )
            self._units[key] = unit
        return unit

    def find(
        self,
        unit: DeviceUnit,
        remaining: tuple[int, ...],
        taken_shares: Mapping[int, Amounts | None],
        groups: Mapping[str, GroupState],
    ) -> UnitRoom:
        key = id(unit), remaining, frozenset(taken_shares.items()), frozenset(groups.items())
        cached_room = self._rooms.get(key)
        if cached_room is None:
            if len(self._rooms) >= _MOST_ROOMS:
                # Units keep their empty rooms, which an earlier clearing may have taken out of `_rooms`.
                for room in chain(self._rooms.values(), (other_unit.empty for other_unit in self._units.values())):
                    room.forget_successors()
                self._rooms.clear()
            cached_room = self._rooms[key] = UnitRoom(self, unit, remaining, taken_shares, groups)
        return cached_room


class DevicePlace(NamedTuple):
    """Where a device is: the number of its unit, and its place in the unit."""

    unit: int
    place: int


class UnitLayout(NamedTuple):
    """The units of a node, by number, where the device at each location is, and how many whole devices there are by driver."""

    units: tuple[DeviceUnit, ...]
    places: tuple[DevicePlace, ...]
    whole_devices: Mapping[str, int]


class NodeUnits:
    """The units of one node, by number, and where each device is: by location, and by pool and name."""

    __slots__ = ("_by_name", "_empty", "_pools", "places", "units", "whole_devices")

    def __init__(self, pools: NodePools, layout: UnitLayout) -> None:
        self._pools = tuple(pool.pool_id for pool in pools.pools)
        self.units, self.places, self.whole_devices = layout
        self._empty = tuple(unit.empty for unit in self.units)
        self._by_name: dict[PoolId, dict[str, DevicePlace]] = {}
        for device, view, place in zip(pools.devices, pools.views, self.places, strict=True):
            self._by_name.setdefault(view.pool.pool_id, {})[device.name] = place

    def rooms(self, usage: Usage) -> tuple[UnitRoom, ...]:
        """Return the room of each unit under this usage."""
        rooms = list(self._empty)
        for pool_id in self._pools:
            pool_usage = usage.pool(pool_id)
            if pool_usage:
                self._take(rooms, self._by_name.get(pool_id, {}), pool_usage)
        return tuple(rooms)

    def with_holdings(self, rooms: Sequence[UnitRoom], holdings: Iterable[DeviceHolding]) -> tuple[UnitRoom, ...]:
        """Return the rooms once these holdings are taken, too."""
        rooms_after = list(rooms)
        for holding in holdings:
            self._take(rooms_after, self._by_name.get(holding.pool_id, {}), {holding.device: (holding,)})
        return tuple(rooms_after)

    def _take(self, rooms: list[UnitRoom], places: Mapping[str, DevicePlace], pool_usage: PoolUsage) -> None:
        for name, holdings in pool_usage.items():
            device_place = places.get(name)
            if device_place is None:
                continue
            for holding in holdings:
                if not holding.admin:
                    rooms[device_place.unit] = rooms[device_place.unit].after(
                        device_place.place, self._share(device_place, holding)
                    )

    def _share(self, device_place: DevicePlace, holding: DeviceHolding) -> Amounts | None:
        device = self.units[device_place.unit].devices[device_place.place]
        if holding.share_id is None or not device.shareable:
            return None
        consumed = dict(holding.consumed_capacity)
        return tuple(consumed.get(name, 0) for name, _ in device.capacity)


def build_units(
    node: Node, pools: NodePools, shapes: Sequence[SearchableRequest | WholeDevice], rooms: Rooms
) -> UnitLayout:
    """Return the units of a node, and what each device serves of these shapes, whatever is in use.

    A shape whose selectors fail, or cost more than ordinary ones do, is served by nothing.
    """
    view = NodeView(node, pools, _Unused(), None)
    unserved: Sequence[Amounts | None] = [None] * len(pools.devices)
    shares_by_shape = [unserved if isinstance(shape, WholeDevice) else _shares(view, shape) for shape in shapes]
    devices = [
        _unit_device(view, location, tuple(shares[location] for shares in shares_by_shape))
        for location in range(len(pools.devices))
    ]
    whole_devices: Counter[str] = Counter()
    groups: dict[Hashable, list[int]] = {}
    for location, root in enumerate(_roots(pools)):
        groups.setdefault(root, []).append(location)
    places: list[DevicePlace] = [DevicePlace(0, 0)] * len(devices)
    units: list[DeviceUnit] = []
    for locations in groups.values():
        pool = pools.views[locations[0]].pool
        sets = list(dict.fromkeys(entry.counter_set for location in locations for entry in devices[location].draws))
        # Numbers in the place of names, so that units are equal whatever their counter sets are called.
        numbers = {name: str(number) for number, name in enumerate(sets)}
        totals = {
            (numbers[name], counter): total for name in sets for counter, total in pool.totals.get(name, {}).items()
        }
        for place, location in enumerate(locations):
            places[location] = DevicePlace(len(units), place)
        members = [_with_sets(devices[location], numbers) for location in locations]
        drawn_parts = [_drawn_part(member, totals) for member in members]
        largest = drawn_parts.index(max(drawn_parts))
        if drawn_parts[largest] > _HALF and (not members[largest].shareable or any(members[largest].amounts)):
            driver = pool.pool_id[0]
            whole_devices[driver] += 1
            members[largest] = _as_whole(members[largest], WholeDevice(driver), shapes)
        units.append(rooms.unit(members, totals))
    return UnitLayout(tuple(units), tuple(places), whole_devices)


class _Unused:
    """The usage of pools of which nothing is in use."""

    def pool(self, pool_id: PoolId) -> PoolUsage:  # noqa: ARG002 - see Usage
        return {}

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:  # noqa: ARG002 - see Usage
        return False


def _shares(view: NodeView, shape: SearchableRequest) -> Sequence[Amounts | None]:
    """Return by location what the shape takes of a device, None of a device that does not serve it."""
    locations = range(len(view.pools.devices))
    view.deadline = Budget(_SELECTOR_COST * len(locations), strict=True)
    serving = frozenset(eligible_locations(Eligibility(shape, "", view)))
    return [share_of(view, shape, location) if location in serving else None for location in locations]


def _unit_device(view: NodeView, location: int, shares: tuple[Amounts | None, ...]) -> UnitDevice:
    device, shareable = view.pools.devices[location], view.sharing.is_shareable(location)
    capacity = tuple((name, capacity.value) for name, capacity in device.capacity) if shareable else ()
    return UnitDevice(device.consumes_counters, shareable, capacity, shares)


def _with_sets(device: UnitDevice, names: Mapping[str, str]) -> UnitDevice:
    draws = tuple(replace(entry, counter_set=names[entry.counter_set]) for entry in device.draws)
    return device._replace(draws=draws)


def _drawn_part(device: UnitDevice, totals: Mapping[CounterKey, int]) -> float:
    """Return the mean part that the device draws of the counters."""
    draws = sum(amount / totals[key] for key, amount in amounts_drawn(device.draws) if totals.get(key))
    return draws / len(totals) if totals else 1.0


def _as_whole(
    device: UnitDevice, whole_device: WholeDevice, shapes: Sequence[SearchableRequest | WholeDevice]
) -> UnitDevice:
    """Return the device as one that serves the shape of a whole device with all that it has."""
    shares = tuple(
        device.amounts if shape == whole_device else share for shape, share in zip(shapes, device.shares, strict=True)
    )
    return device._replace(shares=shares)


def eligible_locations(eligibility: Eligibility) -> Iterator[int]:
    """Return the locations of eligible devices; what a selector that fails means is left to the search, if it comes so far."""
    try:
        verdicts: Iterable[int] = eligibility.verdicts()
    except SearchEndedError:
        verdicts = (_verdict(eligibility, location) for location in range(eligibility.devices))
    return (location for location, verdict in enumerate(verdicts) if verdict == DeviceVerdict.ELIGIBLE)


def _verdict(eligibility: Eligibility, location: int) -> int:
    try:
        return eligibility.verdict(location)
    except SearchEndedError:
        return DeviceVerdict.UNKNOWN


def share_of(view: NodeView, request: SearchableRequest, location: int) -> Amounts | None:
    """Return what the request takes of the device's capacities, no amounts if it takes the device whole; None if it never fits."""
    if not view.sharing.is_shareable(location):
        return ()
    try:
        needs = view.sharing.needs(request, location)
    except CapacityError:
        return None
    return None if isinstance(needs, CapacityMismatch) else needs


def _roots(pools: NodePools) -> Iterator[Hashable]:
    """Yield by location a value that is equal for devices of one unit: those that share counter sets, directly or over others."""
    parents: dict[tuple[int, str], tuple[int, str]] = {}

    def find(key: tuple[int, str]) -> tuple[int, str]:
        while parents.setdefault(key, key) != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    sets = [
        [(id(view.pool), entry.counter_set) for entry in device.consumes_counters]
        for device, view in zip(pools.devices, pools.views, strict=True)
    ]
    for keys in sets:
        for key in keys:
            parents[find(key)] = find(keys[0])
    for location, keys in enumerate(sets):
        yield find(keys[0]) if keys else location
