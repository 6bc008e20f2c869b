"""The device that came closest on the nodes of one reason, and who is in its way."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from msgspec.structs import replace as replace_fields

from dra_extender.allocator.demand.constraints import lookup, value_set
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectorList
from dra_extender.allocator.explain.device_diagnosis import DeviceDiagnosis
from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.rules.counter_sets import CounterBalance
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.published import PublishedDevices
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import (
    CapacityNeed,
    CounterNeed,
    DeviceCount,
    HolderShare,
    NearestDevice,
    SelectorOrigin,
    UnmetSelector,
)
from dra_extender.model.device import Device, DeviceId
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

TypedValue = tuple[str, Any]
"""A value of an attribute, after its type."""
MOST_COMPARED: Final = 2_000
"""How many different devices are compared with what is asked for."""
_MOST_CANDIDATES: Final = 4


class Miss(NamedTuple):
    """A device that the selectors do not mean: where it is, the first selector that is not true, and how far it is from all.

    `hindered`: it is also held or tainted.
    """

    node: str
    published: ResourceSlice
    position: int
    first: int
    distance: float
    hindered: bool

    @property
    def device(self) -> Device:
        return self.published.devices[self.position]

    @property
    def order(self) -> tuple[float, bool]:
        """The nearest first, of equally near ones those that can be had."""
        return self.distance, self.hindered


class MissGroup(NamedTuple):
    """Nodes whose nearest devices lack the same; `driver`: they have no device of this driver.

    `candidates` are the nearest devices, nearest first; no two of them lack the same.
    """

    nodes: Sequence[str]
    driver: str | None
    candidates: Sequence[Miss]


class NoMatch:
    """Devices of one cluster that one request does not mean."""

    def __init__(self, view: ClusterView, option: SearchableRequest) -> None:
        self._view = view
        self._option = option
        self._unmet = UnmetSelectors(option.selectors, view.budget())
        self._driver = self._unmet.driver
        self._known: dict[Hashable, tuple[int | None, float]] = {}
        self._limited = False

    @property
    def limit(self) -> str:
        """Return which limit the comparison reached, as a sentence; empty if none."""
        return f"the nearest of {MOST_COMPARED} different devices is named; there are more" if self._limited else ""

    def groups(self, nodes: Sequence[str]) -> list[MissGroup]:
        """Group the nodes by what differs: the driver, or the first selector that is false on the nearest device; nearest first."""
        nodes_by_miss: dict[int | None, list[str]] = {}
        nearest: dict[int | None, list[Miss]] = {}
        for name in nodes:
            misses = self._misses(name)
            first = misses[0].first if misses else None
            nodes_by_miss.setdefault(first, []).append(name)
            nearest.setdefault(first, []).extend(misses[:_MOST_CANDIDATES])
        groups = [
            MissGroup(
                names,
                self._driver if first is None and self._is_absent(names) else None,
                self._different(nearest[first]),
            )
            for first, names in nodes_by_miss.items()
        ]
        # Nodes without a device are the farthest; of equally near ones most nodes come first.
        return sorted(
            groups, key=lambda group: (group.candidates[0].distance if group.candidates else inf, -len(group.nodes))
        )

    def described(self, miss: Miss) -> NearestDevice:
        published = miss.published
        false = list(self._unmet.messages(published, miss.position))
        return NearestDevice(
            node=miss.node,
            device=f"{published.driver}/{published.pool}/{miss.device.name}",
            detail=false[0][1] if false else "",
            selector=self._selector(miss.first),
            further_selectors=tuple(self._selector(index, text) for index, text in false[1:]),
        )

    def _is_absent(self, nodes: Sequence[str]) -> bool:
        """Return whether the nodes have no pool of the required driver, not even one with a problem."""
        all_pools = map(self._view.pools_of, nodes)
        return not any(pool.pool_id[0] == self._driver for pools in all_pools if pools for pool in pools.unusable)

    def _misses(self, name: str) -> Sequence[Miss]:
        """Return the devices of the node, only those of the required driver if there is one, nearest first."""
        pools = self._view.pools_of(name)
        misses: list[Miss] = []
        for view in () if pools is None else {id(slice_view): slice_view for slice_view in pools.views}.values():
            published = view.published
            held = self._view.ledger.claims.usage.pool(published.pool_id)
            for position in range(len(published.devices) if self._driver in (None, published.driver) else 0):
                first, distance = self._lack(published, position)
                if first is not None:
                    device = published.devices[position]
                    hindered = device.name in held or bool(device.taints)
                    misses.append(Miss(name, published, position, first, distance, hindered))
        return sorted(misses, key=lambda miss: miss.order)

    def _lack(self, published: ResourceSlice, position: int) -> tuple[int | None, float]:
        """Return the first selector that is false on the device, and how far it is from all; equal contents are read once."""
        content = self._unmet.read_content(published, position)
        lack = self._known.get(content)
        if lack is None:
            first = self._unmet.first_unmet(published, position)
            if len(self._known) >= MOST_COMPARED:
                self._limited = True
                return first, inf
            distance = 0.0 if first is None else self._unmet.distance(published, position)
            lack = self._known[content] = first, distance
        return lack

    def _different(self, misses: Sequence[Miss]) -> list[Miss]:
        by_content: dict[object, Miss] = {}
        for candidate in sorted(misses, key=lambda miss: miss.order):
            by_content.setdefault(self._unmet.read_content(candidate.published, candidate.position), candidate)
            if len(by_content) == _MOST_CANDIDATES:
                break
        return list(by_content.values())

    def _selector(self, index: int, detail: str = "") -> UnmetSelector:
        own = len(self._option.device_class.spec.selectors)
        of_class = index < own
        return UnmetSelector(
            origin=SelectorOrigin.CLASS if of_class else SelectorOrigin.REQUEST,
            number=index + 1 if of_class else index + 1 - own,
            expression=self._option.selectors.expressions[index],
            detail=detail,
        )


def requested_options(demand: Demand) -> Iterator[tuple[str, SearchableRequest]]:
    """Yield the requests and alternatives of a demand, each with the claim that it is of."""
    for claim in demand.claims:
        for request in claim.requests:
            yield from ((claim.label, option) for option in request.options)


_NO_SELECTORS: Final = SelectorList((), ProgramCache())
MOST_NODES: Final = 200
"""Nodes of one reason that are looked at, spread evenly over all of them."""
_OF_WHOLE_SETS: Final = (Code.COUNTERS, Code.GROUPS)


class NodeDiagnosis(NamedTuple):
    """All devices of a node that the selectors of a request mean, and how many of them it could have by themselves."""

    node: Node
    devices: tuple[DeviceDiagnosis, ...]
    available: int


class NearestDevices:
    """Finds nearest devices in one cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._holders = view.holders
        self._published = PublishedDevices(view.ledger)

    def diagnose(self, demand: Demand, request: tuple[str, str], nodes: Sequence[str]) -> list[NodeDiagnosis]:
        """Return the devices of these nodes for a request (claim, request); of many nodes as many as MOST_NODES, spread evenly."""
        step, budget = -(-len(nodes) // MOST_NODES) or 1, self._view.budget()
        diagnoses: list[NodeDiagnosis] = []
        for name in nodes[::step]:
            node = self._view.ledger.nodes.get(name)
            if node is not None:
                devices = self._view.extender.allocator.diagnose_devices(
                    demand, node, request, budget, explains_selectors=False
                )
                meant = tuple(device for device in devices if device.code not in (Code.NO_MATCH, Code.OTHER_NODE))
                diagnoses.append(NodeDiagnosis(node, meant, sum(diagnosis.code is None for diagnosis in meant)))
        return diagnoses

    def behind_selectors(self, demand: Demand, request: tuple[str, str], miss: Miss) -> DeviceDiagnosis | None:
        """Return what would keep the device from the request (claim, request) if its selectors meant it."""
        node, pool_id = self._view.ledger.nodes.get(miss.node), miss.published.pool_id
        device_id = (*pool_id, miss.device.name)
        diagnoses = (
            self._view.extender.allocator.diagnose_devices(
                _without_selectors(demand), node, request, self._view.budget(), among={pool_id: {device_id}}
            )
            if node is not None
            else iter(())
        )
        return next(diagnoses, None)

    def find(self, diagnoses: Sequence[NodeDiagnosis], code: Code, device_count: int) -> NearestDevice | None:
        """Return the nearest device with this code, on the node with most of the `device_count` devices; None if there is none."""
        best: tuple[tuple[float, ...], Node, DeviceDiagnosis] | None = None
        for diagnosis in diagnoses:
            lacking = max(0, device_count - diagnosis.available)
            for device in diagnosis.devices:
                if device.code is code:
                    order = (lacking, *self._order(device))
                    if best is None or order < best[0]:
                        best = (order, diagnosis.node, device)
        return None if best is None else self.described(best[1], best[2])

    @staticmethod
    def count(diagnoses: Sequence[NodeDiagnosis], device_count: int) -> DeviceCount | None:
        """Return the node with most devices that the request could have by themselves; None if no node has any device."""
        best = max(diagnoses, key=lambda diagnosis: diagnosis.available, default=None)
        if best is None:
            return None
        return DeviceCount(node=best.node.name, available=best.available, wanted=device_count, meant=len(best.devices))

    def described(self, node: Node, diagnosis: DeviceDiagnosis) -> NearestDevice:
        """Return the device with what keeps it away, and who."""
        device_id, capacities = diagnosis.device_id, self._capacities(diagnosis)
        nearest = NearestDevice(
            node=node.name,
            device="/".join(device_id),
            detail=diagnosis.detail,
            shortage=None if diagnosis.shortage is None else self._counter(device_id, diagnosis.shortage),
            capacity=next(iter(capacities), None),
            further_capacities=capacities[1:],
            taints=tuple(map(taint_text, diagnosis.taints)),
            holders=tuple(self.in_the_way(diagnosis)),
        )
        if diagnosis.conflict is None:
            return nearest
        entry, state, lacking = diagnosis.conflict.entry, diagnosis.conflict.state, diagnosis.conflict.shortage
        nearest = replace_fields(
            nearest,
            counter_set=entry.counter_set,
            declared=tuple(sorted(entry.compatibility_groups)),
            in_force=None if state is None else tuple(sorted(state)),
        )
        if lacking is None:
            sufficient = tuple(self._counter(device_id, counter) for counter in diagnosis.conflict.counters)
            return replace_fields(nearest, sufficient=sufficient)
        drawing = (
            share for share in self.drawing(device_id, lacking.counter_set) if lacking.counter in dict(share.counters)
        )
        return replace_fields(nearest, insufficient=self._counter(device_id, lacking), drawing=tuple(drawing))

    def holders_on(self, diagnosis: NodeDiagnosis) -> tuple[HolderShare, ...]:
        """Return the holders that are in the way of any device of the node, each claim once."""
        shares: dict[str, HolderShare] = {}
        for device in diagnosis.devices:
            for share in self.in_the_way(device):
                shares.setdefault(share.holder.claim, share)
        return tuple(shares.values())

    def published(self, device_id: DeviceId) -> Device | None:
        return next((found.device for found in self._published.named(device_id)), None)

    def values(self, device_id: DeviceId, attribute: str) -> Collection[TypedValue]:
        device = self.published(device_id)
        published = None if device is None else lookup(attribute, device_id[0], device)
        return () if published is None else value_set(published)

    def attributes(self, diagnoses: Sequence[NodeDiagnosis]) -> set[str]:
        """Return the full names of the attributes of these devices."""
        ids = {device.device_id for diagnosis in diagnoses for device in diagnosis.devices}
        published = ((device_id[0], self.published(device_id)) for device_id in ids)
        return {
            name if "/" in name else f"{driver}/{name}"
            for driver, device in published
            if device is not None
            for name, _ in device.attributes
        }

    def published_nearest(self, nearest: NearestDevice) -> Device | None:
        """Return the device that an answer names; names of pools, and of devices that no API server admits, may have slashes."""
        driver, _, pool_and_name = nearest.device.partition("/")
        places = (place for place in range(len(pool_and_name) - 1, -1, -1) if pool_and_name[place] == "/")
        devices = (self.published((driver, pool_and_name[:place], pool_and_name[place + 1 :])) for place in places)
        return next((device for device in devices if device is not None), None)

    def left(self, nearest: NearestDevice) -> dict[str, int]:
        """Return what its holders leave of each capacity of a device, in nano-units."""
        device = self.published_nearest(nearest)
        left = {} if device is None else {name: capacity.value for name, capacity in device.capacity}
        for share in nearest.holders:
            for name, amount in share.counters:
                left[name] = left.get(name, 0) - amount
        return left

    def _counter(self, device_id: DeviceId, balance: CounterBalance) -> CounterNeed:
        totals = self._view.published_pool(device_id[:2]).totals
        return CounterNeed(
            counter_set=balance.counter_set,
            counter=balance.counter,
            needed=balance.requested,
            left=balance.remaining,
            total=totals.get(balance.counter_set, {}).get(balance.counter, 0),
        )

    def _capacities(self, diagnosis: DeviceDiagnosis) -> tuple[CapacityNeed, ...]:
        device = self.published(diagnosis.device_id)
        totals = {} if device is None else dict(device.capacity)
        return tuple(
            CapacityNeed(
                capacity=short.name, needed=short.requested, left=short.remaining, total=totals[short.name].value
            )
            for short in diagnosis.capacities
            if short.name in totals
        )

    def beside_picks(self, device_id: DeviceId, rejection: Rejection) -> Iterator[HolderShare]:
        """Yield the holders of what a device lacks beside the devices that the search has picked before it."""
        device = self.published(device_id)
        match rejection.code:
            case Code.CAPACITY:
                yield from self._sharing(device_id)
            case Code.COUNTERS | Code.GROUPS:
                # The sentence about the device names the counter set, and the counter that is short.
                for entry in () if device is None else device.consumes_counters:
                    if f"counter set {entry.counter_set}" in rejection.detail:
                        for share in self.drawing(device_id, entry.counter_set):
                            short = (f" of {name} in " in rejection.detail for name, _ in share.counters)
                            if rejection.code is Code.GROUPS or any(short):
                                yield share

    def _sharing(self, device_id: DeviceId) -> Iterator[HolderShare]:
        """Yield the holders of a device, and how much of it each has."""
        for held_device in self._holders.of_device(device_id):
            if not held_device.holding.admin:
                amounts = held_device.holding.consumed_capacity
                yield HolderShare(holder=held_device.holder, device=device_id[2], counters=amounts)

    def in_the_way(self, diagnosis: DeviceDiagnosis) -> Iterator[HolderShare]:
        """Yield the holders of the device itself, or those that draw on the counter set that is short or in conflict."""
        if diagnosis.code in (Code.IN_USE, Code.CAPACITY, Code.BOUND_ELSEWHERE):
            yield from self._sharing(diagnosis.device_id)
        elif diagnosis.code in _OF_WHOLE_SETS:
            shortage, conflict = diagnosis.shortage, diagnosis.conflict
            counter_set = shortage.counter_set if shortage is not None else conflict and conflict.entry.counter_set
            if counter_set:
                yield from self.drawing(diagnosis.device_id, counter_set)
        elif diagnosis.code is Code.NEIGHBOURS:
            # The sentence about the device names the devices of the pool that are in the way.
            named, pool_id = set(diagnosis.detail.replace(",", " ").split()), diagnosis.device_id[:2]
            for name in sorted(named & self._view.ledger.claims.usage.pool(pool_id).keys()):
                for held_device in self._holders.of_device((*pool_id, name)):
                    if not held_device.holding.admin:
                        yield HolderShare(holder=held_device.holder, device=name)

    def _order(self, diagnosis: DeviceDiagnosis) -> tuple[float, ...]:
        """Return a sort key: the device first that lacks the least amount, conflicts only by groups, or has the fewest taints."""
        short = diagnosis.shortage or next(iter(diagnosis.capacities), None)
        if short is not None:
            return ((short.requested - short.remaining) / max(short.requested, 1),)
        if diagnosis.conflict is not None:
            return (0.0 if diagnosis.conflict.shortage is None else 1.0,)
        return (float(bool(diagnosis.also)), float(len(diagnosis.taints)))

    def drawing(self, device_id: DeviceId, counter_set: str) -> Iterator[HolderShare]:
        pool_id, ledger = device_id[:2], self._view.ledger
        live = {device.name: device for published in ledger.slices.of_pool(pool_id) for device in published.devices}
        for name in sorted(ledger.claims.usage.pool(pool_id)):
            for holder, holding in self._holders.of_device((*pool_id, name)):
                for entry in () if holding.admin else holding.drawn(live.get(name)):
                    if entry.counter_set == counter_set:
                        groups = entry.compatibility_groups
                        yield HolderShare(holder=holder, device=name, counters=entry.counters, groups=groups)


def _without_selectors(demand: Demand) -> Demand:
    def bare(option: SearchableRequest) -> SearchableRequest:
        return replace(option, selectors=_NO_SELECTORS, equivalence_key=None)

    claims = (
        replace(
            claim,
            requests=tuple(replace(request, options=tuple(map(bare, request.options))) for request in claim.requests),
        )
        for claim in demand.claims
    )
    return replace(demand, claims=tuple(claims), preferred=())
