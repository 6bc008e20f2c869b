"""The product's placement as a rule: its ledger, its search and its expected demand, without the filter around them."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.features import Features
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import Placement
from dra_extender.model.pod import Pod, read_pod
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand, PlacementRooms
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.ports.options import Options

from tests.bench.fits import trace_objects
from tests.bench.fits.trace import Kind, Room, Workload
from tests.bench.rows import BenchError
from tests.controlplane.objects import Object

_NO_DEVICES: Final = Placement(claims=(), steps=0)


class Product:
    """`scheduling.placement: preserve` over a cluster in memory, one pod after the other."""

    def __init__(self, classes: Iterable[Object], nodes: Sequence[Object], slices: Iterable[Object]) -> None:
        self._ledger = Ledger()
        self._feeds = sinks_of(self._ledger)
        self._expected = ExpectedDemand(self._ledger, NodeEquivalence(self._ledger, Features()))
        self._allocator = NodeAllocator(self._ledger, Features(), Options(), expected=self._expected)
        self._rooms: dict[tuple[Hashable, bytes], PlacementRooms] = {}
        for kind, bodies in (("deviceclasses", classes), ("nodes", nodes), ("resourceslices", slices)):
            for body in bodies:
                self._feed(kind, body)

    def arrives(self, pod: Object, claims: Sequence[Object]) -> bool:
        """Take in a pod that waits; return whether costs have changed on all nodes, because of what is expected now."""
        for claim in claims:
            self._feed("resourceclaims", claim)
        self._objects = pod, claims
        self._pod = read_pod(self._feed("pods", pod))
        self._demand = self._demand_of(self._pod) if claims else None
        before = self._expected.version
        self._expected.renew_all(self._allocator)
        return self._expected.version is not before

    def cost(self, node: str, devices: Hashable) -> float | None:
        """Return what it costs the expected demand if the pod gets this node; None if its claims do not fit there.

        `devices` is equal for nodes with equal devices in equal states, which are searched once.
        """
        key = devices, b"" if self._demand is None else self._demand.signature
        rooms = self._rooms.get(key)
        if rooms is None or not self._expected.rates(rooms):
            rooms = self._rooms_on(node)
            if rooms is None:
                return None
            self._rooms[key] = rooms
        if self._demand is None and not rooms.before.free:
            return 0.0
        return self._expected.loss(node, rooms, self._ledger.free_amounts.asked_by(self._pod.uid))

    def _rooms_on(self, node: str) -> PlacementRooms | None:
        found = self._ledger.nodes[node]
        pools = self._allocator.pools_of(found)
        if pools is None:
            return None
        if self._demand is None:
            return self._expected.unchanged_rooms(found, pools)
        placement = self._placement(node)
        if placement is None:
            return None
        return self._expected.rooms(found, pools, self._ledger.claims.usage, placement, None)

    def take(self, node: str) -> Sequence[str]:
        """Give the pod this node; return the devices that it gets."""
        placement = self._placement(node)
        if placement is None:
            raise BenchError(f"pod {self._pod.key} does not fit on node {node}")
        if self._demand is not None:
            self._expected.note(self._pod, self._demand)
        pod, claims = self._objects
        for claim, placed in zip(claims, placement.claims, strict=True):
            claim["status"] = {"allocation": msgspec.to_builtins(placed.allocation)}
            self._feed("resourceclaims", claim)
        pod["spec"]["nodeName"] = node
        self._feed("pods", pod)
        return [result.device for placed in placement.claims for result in placed.allocation.devices.results]

    def end(self, pod: Object, claims: Sequence[Object]) -> None:
        for kind, body in (*(("resourceclaims", claim) for claim in claims), ("pods", pod)):
            metadata = body["metadata"]
            self._feeds[kind].deleted(metadata["namespace"], metadata["name"], metadata["uid"])

    def _feed(self, kind: str, body: Object) -> bytes:
        metadata = body["metadata"]
        version = int(metadata.get("resourceVersion", 0)) + 1
        metadata |= {"uid": metadata["name"], "resourceVersion": str(version)}
        data = msgspec.json.encode(body)
        self._feeds[kind].changed(data)
        return data

    def _demand_of(self, pod: Pod) -> Demand:
        found = find_claims(pod, self._ledger)
        demand = self._allocator.demand(found) if isinstance(found, tuple) else found
        if not isinstance(demand, Demand):
            raise BenchError(f"pod {pod.key} cannot be asked about: {demand}")
        return demand

    def _placement(self, node: str) -> Placement | None:
        if self._demand is None:
            return _NO_DEVICES
        answer = self._allocator.search(
            self._demand, self._ledger.nodes[node], self._ledger.claims.usage, lambda: False
        )
        return answer if isinstance(answer, Placement) else None


class Preserve:
    """The product on the trace.  A cost is computed once for all nodes in one state, as long as the expected demand stays."""

    by_chance = False

    def __init__(self, nodes: Sequence[Room], workload: Workload) -> None:
        """What is expected is learned from the pods that come, not read from the workload."""
        self._product = Product(
            [trace_objects.device_class()],
            [trace_objects.node(number, node) for number, node in enumerate(nodes)],
            [trace_objects.node_slice(number, node) for number, node in enumerate(nodes)],
        )
        self._costs: dict[tuple[Any, ...], float] = {}
        self._pods = 0

    def arrives(self, kind: Kind) -> bool:
        self._pods += 1
        claims = [trace_objects.claim(self._pods, kind)] if kind.gpus else []
        if not self._product.arrives(trace_objects.pod(self._pods, kind), claims):
            return False
        self._costs.clear()
        return True

    def cost(self, node: int, room: Room, kind: Kind) -> float:
        devices = room.model, tuple(sorted(room.gpus))
        key = devices, room.cpu, room.memory, kind
        known = self._costs.get(key)
        if known is None:
            cost = self._product.cost(trace_objects.node_name(node), devices)
            if cost is None:
                raise BenchError(f"{kind} fits on {room}, but the search does not find it")
            known = self._costs[key] = cost
        return known

    def take(self, node: int, room: Room, kind: Kind) -> Sequence[int]:
        return [trace_objects.gpu_number(device) for device in self._product.take(trace_objects.node_name(node))]
