"""What a placement costs: how much less of the expected demand the node can serve afterwards.

For an expected kind of pods, `slots` are the pods of the kind that still fit on a node.  A free device is useless to the kind if no
pod of the kind could use it; what is left of a device or card that is full of such pods is not useless.  This is the fragmentation
of the paper "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (Weng et al., USENIX
ATC 2023).  The loss of a placement is, summed over the kinds,

    price * (size * (slots before - slots after) + useless after - useless before)

The price of a kind is how often it comes, divided by how much of it the whole cluster could still serve: what is scarce costs more.
Where placements cost nearly the same, the node with less CPU and fewer devices left goes first (best fit).
"""

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand, reads_of_requests
from dra_extender.allocator.fragmentation.kinds import Kind, NodeAmounts, WholeDevice
from dra_extender.allocator.fragmentation.units import (
    NodeUnits,
    Rooms,
    UnitLayout,
    UnitRoom,
    build_units,
    eligible_locations,
    share_of,
)
from dra_extender.allocator.pools.pools import DeviceOrder, NodePools
from dra_extender.allocator.rules.capacity import Amounts
from dra_extender.allocator.rules.eligibility import Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.usage import Usage
from dra_extender.model.node import Node

_BEST_FIT: Final = 0.008
"""The best-fit penalty of a completely free node of the largest size, in devices."""
_USUAL_DEVICES: Final = 8
_RESERVE: Final = 2
"""Each kind is treated as if this many more pods fitted somewhere; otherwise its price would grow without limit."""
_DIGITS: Final = 9
_Loss = tuple[float, float, float]
_UNUSABLE: Final[_Loss] = (float("inf"), 0.0, 0.0)
_MOST_ORDERED: Final = 2_048
_MOST_LAYOUTS: Final = 5_000
_MOST_NODE_ROOMS: Final = 20_000
_MOST_TERMS: Final = 2_000
_MOST_VALUES: Final = 20_000
_MOST_SUPPLIES: Final = 1_000
_SAME_PRICES: Final = 0.05


class KindRoom(NamedTuple):
    """For how many pods of a kind the devices of a node suffice, what one of them takes, and what is free but useless to them."""

    slots: int
    size: float
    useless: float


@dataclass(frozen=True, slots=True, eq=False)
class NodeRoom:
    """What the devices of a node still serve: all free devices, and by kind.  Equal rooms are one object."""

    free: float
    kinds: tuple[KindRoom, ...]


_ServedKind = tuple[float, float, float, int, NodeAmounts]
"""(pod_value, useless_cost, all_free_cost, slots, pod_amounts) of a kind for which the devices of a node suffice.

`pod_value`: the value of one pod.  `useless_cost` and `all_free_cost`: what the useless devices and all free devices cost.
`slots`: the pods that fit.  A plain tuple, because one with names is unpacked more slowly.
"""


class _Terms(NamedTuple):
    """The value of a room under some prices.

    `unserved`: of the kinds for which the devices do not suffice.  `served`: the other kinds.
    """

    unserved: float
    served: tuple[_ServedKind, ...]


class Fragmentation:
    """Rates placements for some expected kinds; equal states of devices are rated once.

    `prices` are those of the kinds, in their order; only `renew_prices` changes them.  `reads` are the attributes that the kinds
    read of devices (None: any).
    """

    def __init__(self, weights: Mapping[Kind, float]) -> None:
        """`weights`: how often each kind comes."""
        self.kinds = tuple(weights)
        self.prices: tuple[float, ...] = ()
        shapes = {request.shape: request.request for kind in self.kinds for request in kind.requests}
        self._shapes = tuple(shapes.values())
        numbers = {shape: number for number, shape in enumerate(shapes)}
        self._requests = tuple(
            tuple((numbers[request.shape], request.devices) for request in kind.requests) for kind in self.kinds
        )
        self.reads = reads_of_requests(shape for shape in self._shapes if not isinstance(shape, WholeDevice))
        self._rooms = Rooms()
        self._layouts: dict[Hashable, UnitLayout] = {}
        self._node_rooms: dict[tuple[int, ...], NodeRoom] = {}
        # Equal ones are one object: a node room has one for each kind, and most nodes have those of others.
        self._kind_rooms: dict[KindRoom, KindRoom] = {}
        self._terms: dict[NodeRoom, _Terms] = {}
        self._values: dict[tuple[NodeRoom, NodeAmounts | None], float] = {}
        self.renew_prices(self.supply(), weights)

    def units(self, node: Node, pools: NodePools, layout: Hashable | None = None) -> NodeUnits:
        """Return the units of a node; nodes with equal `layout` have devices that are equal in `reads`, in the same order."""
        unit_layout = None if layout is None else self._layouts.get(layout)
        if unit_layout is None:
            unit_layout = build_units(node, pools, self._shapes, self._rooms)
            if layout is not None:
                if len(self._layouts) >= _MOST_LAYOUTS:
                    self._layouts.clear()
                self._layouts[layout] = unit_layout
        return NodeUnits(pools, unit_layout)

    def supply(self) -> "Supply":
        """Return a supply of these kinds to which no node is added yet."""
        return Supply(self.kinds)

    def renew_prices(self, supply: "Supply", weights: Mapping[Kind, float]) -> None:
        """Set the prices by what the cluster can still serve, and by how often each kind comes.

        Prices that differ by less than 5 % in all stay as they are, because other prices have every node rated again.
        """
        prices = [
            weights[kind] / (devices + _RESERVE * size)
            for kind, devices, size in zip(self.kinds, supply.served, supply.sizes, strict=True)
        ]
        # Weights may be so small that all prices are 0.
        total = sum(prices) or 1.0
        renewed = tuple(price / total for price in prices)
        if self.prices and sum(abs(now - old) for now, old in zip(renewed, self.prices, strict=True)) < _SAME_PRICES:
            return
        self.prices = renewed
        self._forget_values()

    def _forget_values(self) -> None:
        self._terms.clear()
        self._values.clear()

    def room(self, rooms: Sequence[UnitRoom]) -> NodeRoom:
        """Return what the devices of a node with these rooms still serve."""
        key = tuple(sorted(room.number for room in rooms))
        node_room = self._node_rooms.get(key)
        if node_room is None:
            if len(self._node_rooms) >= _MOST_NODE_ROOMS:
                self._node_rooms.clear()
                self._kind_rooms.clear()
                self._forget_values()
            free = sum(room.free for room in rooms)
            kinds = (self._kind_room(rooms, requests) for requests in self._requests)
            node_room = NodeRoom(free, tuple(self._kind_rooms.setdefault(kind_room, kind_room) for kind_room in kinds))
            self._node_rooms[key] = node_room
        return node_room

    def value(self, room: NodeRoom, amounts: NodeAmounts | None) -> float:
        """Return the value of a node to the expected kinds: priced slots minus priced useless devices."""
        key = room, amounts
        total = self._values.get(key)
        if total is None:
            terms = self._terms.get(room)
            if terms is None:
                if len(self._terms) >= _MOST_TERMS:
                    self._terms.clear()
                terms = self._terms[room] = self._terms_of(room)
            total = terms.unserved
            for pod_value, useless_cost, all_free_cost, slots, pod_amounts in terms.served:
                pods = _pods_within(slots, pod_amounts, amounts)
                total += pod_value * pods - useless_cost if pods > 0 else -all_free_cost
            if len(self._values) >= _MOST_VALUES:
                self._values.clear()
            self._values[key] = total
        return total

    def _terms_of(self, room: NodeRoom) -> _Terms:
        unserved = 0.0
        served_kinds: list[_ServedKind] = []
        for price, kind, (slots, size, useless) in zip(self.prices, self.kinds, room.kinds, strict=True):
            if slots:
                served_kinds.append((price * size, price * useless, price * room.free, slots, kind.amounts))
            else:
                unserved -= price * useless
        return _Terms(unserved, tuple(served_kinds))

    def loss(
        self,
        before: NodeRoom,
        after: NodeRoom,
        amounts: NodeAmounts | None,
        pod_amounts: NodeAmounts,
        most_cpu: int,
    ) -> float:
        """Return what the expected kinds lose by a placement that also takes CPU and memory of the node.

        `amounts`: what is free of them before (None: not known).  `most_cpu`: that of the node with most.
        """
        remaining = None if amounts is None else amounts.without(pod_amounts)
        loss = self.value(before, amounts) - self.value(after, remaining)
        free_cpu = 0.0 if remaining is None or not most_cpu else remaining.cpu / most_cpu
        return round(loss + _BEST_FIT * (free_cpu + after.free / _USUAL_DEVICES), _DIGITS)

    def order(self, demand: Demand, view: NodeView, units: NodeUnits, usage: Usage) -> DeviceOrder | None:
        """Return the devices of a node by what the expected kinds lose if they are taken; None where that is no reason to choose.

        Devices that are ready come before those with binding conditions.  Where the expected kinds lose equally little, fewer other
        devices are blocked, then the unit with less left goes first (best fit).  Equal devices stay in upstream's order.
        """
        devices, places = view.pools.devices, units.places
        if len(devices) > _MOST_ORDERED:
            return None
        rooms = units.rooms(usage)
        losses: dict[int, _Loss] = {}
        loss_by_share: dict[tuple[UnitRoom, int, Amounts], _Loss] = {}
        for claim in demand.claims:
            for option in (option for request in claim.requests for option in request.options):
                for location in eligible_locations(Eligibility(option, claim.label, view)):
                    if location in losses:
                        continue
                    device_place, share = places[location], share_of(view, option, location)
                    if share is None:
                        continue
                    room = rooms[device_place.unit]
                    key = room, device_place.place, share
                    loss = loss_by_share.get(key)
                    if loss is None:
                        loss = loss_by_share[key] = self._unit_loss(room, device_place.place, share)
                    losses[location] = loss
        waits = [location for location in losses if devices[location].binding_conditions]
        if len(set(loss_by_share.values())) <= 1 and not waits:
            return None
        # Devices that no request can have go last.
        keys = [(True, _UNUSABLE, location) for location in range(len(devices))]
        for location, loss in losses.items():
            keys[location] = bool(devices[location].binding_conditions), loss, location
        keys.sort()
        return DeviceOrder.from_locations([location for _, _, location in keys])

    def _unit_loss(self, room: UnitRoom, place: int, share: Amounts) -> _Loss:
        """Return by what devices are chosen: what taking one costs, how much of the unit it blocks, and how much is free there."""
        if not room.admits(place, share):
            return _UNUSABLE
        after = room.after(place, share)
        lost = round(self._worth(room) - self._worth(after), _DIGITS)
        return lost, round(room.takeable_size - after.takeable_size, _DIGITS), room.free

    def _kind_room(self, rooms: Sequence[UnitRoom], requests: Sequence[tuple[int, int]]) -> KindRoom:
        slots, size, useless = 0, 0.0, 0.0
        shapes = [shape for shape, _ in requests]
        for index, (shape, count) in enumerate(requests):
            fits = [room.fits[shape] for room in rooms]
            least = _pods_that_fit(fits, count)
            slots = min(slots, least) if index else least
            serving = [room for room in rooms if room.unit.sizes[shape]]
            if serving:
                size += count * sum(room.unit.sizes[shape] for room in serving) / len(serving)
        for room in rooms:
            if not any(room.fits[shape] for shape in shapes):
                useless += room.useless(shapes)
            elif not slots:
                useless += room.free
        return KindRoom(slots, size, useless)

    def _worth(self, room: UnitRoom) -> float:
        """Return the value of a unit by itself, with CPU and memory for everything."""
        if room.worth_prices is not self.prices:
            worth = 0.0
            for price, requests in zip(self.prices, self._requests, strict=True):
                devices = sum(room.fits[shape] * room.unit.sizes[shape] for shape, _ in requests)
                worth += price * (devices or -room.useless([shape for shape, _ in requests]))
            room.worth, room.worth_prices = worth, self.prices
        return room.worth


class Supply:
    """What nodes can still serve of each kind, in devices, and how many devices a pod of the kind takes."""

    __slots__ = ("_kinds", "_known", "served", "sizes")

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        # What a node with these devices, CPU and memory serves of each kind: number of the kind, devices.
        self._known: dict[tuple[NodeRoom, NodeAmounts | None], Sequence[tuple[int, float]]] = {}
        self.served = [0.0] * len(kinds)
        self.sizes = [float(kind.devices) for kind in kinds]

    def add(self, room: NodeRoom, amounts: NodeAmounts | None) -> None:
        """Add what a node serves that has these devices left, and this much CPU and memory (None: not known)."""
        served_devices = self._known.get((room, amounts))
        if served_devices is None:
            if len(self._known) >= _MOST_SUPPLIES:
                self._known.clear()
            served_devices = self._known[room, amounts] = [
                (number, size * max(0, _pods_within(slots, self._kinds[number].amounts, amounts)))
                for number, (slots, size, _) in enumerate(room.kinds)
                if slots
            ]
            for number, kind_room in enumerate(room.kinds):
                self.sizes[number] = kind_room.size or self.sizes[number]
        for number, devices in served_devices:
            self.served[number] += devices


def _pods_within(slots: int, pod_amounts: NodeAmounts, free: NodeAmounts | None) -> int:
    """Return for how many of these pods CPU and memory suffice; less than none on a node that is overcommitted."""
    if free is None:
        return slots
    if pod_amounts.cpu:
        slots = min(slots, free.cpu // pod_amounts.cpu)
    if pod_amounts.memory:
        slots = min(slots, free.memory // pod_amounts.memory)
    return slots


def _pods_that_fit(fits: Sequence[int], count: int) -> int:
    """Return how many pods fit that need so many different devices each, on units with room for so many."""
    limit = sum(fits) // count
    if count == 1 or not limit:
        return limit
    return bisect_left(range(1, limit + 1), True, key=lambda pods: sum(min(fit, pods) for fit in fits) < count * pods)
