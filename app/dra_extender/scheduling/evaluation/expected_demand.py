"""Which kinds of pods are expected, learned from those that come or given by the policy file, and what placements cost them.

Every pod counts once, when it fits on some node, and counts half after 2,000 others; a new process counts the pods that run.  A
pod that fits nowhere is not expected: otherwise one namespace could displace all kinds by some that no node can serve.  The kinds
and their prices are renewed when an eighth more pods have come, at the latest after 200 pods.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from dra_extender.allocator.allocate import FindDeviceOrder
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.fragmentation.kinds import ExpectedPod, Kind, NodeAmounts, heaviest, kind_of, whole_kinds
from dra_extender.allocator.fragmentation.loss import Fragmentation, NodeRoom, Supply
from dra_extender.allocator.fragmentation.units import NodeUnits
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.state.reasons import Rejection
from dra_extender.allocator.state.usage import Usage
from dra_extender.cel.budget import Budget
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence

if TYPE_CHECKING:
    from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator

_HALF_LIFE: Final = 2_000
_MOST_NOTED: Final = 20_000
_MOST_SEEN: Final = 256
_MOST_BETWEEN_RENEWALS: Final = 200
_EIGHTH: Final = 8
_LARGEST_DEMAND_BYTES: Final = 64 * 2**10
_COMPILE_COST: Final = 100_000
"""Cost units for the expressions of a pod that runs already: 5 ms at most."""
_STAYS: Final = 2
_PRIOR: Final = 2.0
"""So many pods for each kind of whole devices are expected before any pod was noted."""
_LARGE: Final = 1e9


@dataclass(slots=True)
class _Seen:
    kind: Kind
    weight: float


class _Expectation:
    """Some expected kinds, with the units of the nodes, and what is known to be free there at a version of the node."""

    def __init__(self, weights: Mapping[Kind, float], equivalence: NodeEquivalence) -> None:
        self.fragmentation = Fragmentation(weights)
        self._equivalence = equivalence
        self._units: dict[str, tuple[NodePools, NodeUnits]] = {}
        self._rooms: dict[str, tuple[int, NodeRoom]] = {}

    def units_of(self, node: Node, pools: NodePools) -> NodeUnits:
        pools_and_units = self._units.get(node.name)
        if pools_and_units is None or pools_and_units[0] is not pools:
            fragmentation = self.fragmentation
            layout = self._equivalence.layout(node, fragmentation.reads)
            pools_and_units = self._units[node.name] = pools, fragmentation.units(node, pools, layout)
        return pools_and_units[1]

    def room_of(self, node: Node, pools: NodePools, usage: Usage, version: int) -> NodeRoom:
        version_and_room = self._rooms.get(node.name)
        if version_and_room is None or version_and_room[0] != version:
            room = self.fragmentation.room(self.units_of(node, pools).rooms(usage))
            version_and_room = self._rooms[node.name] = version, room
        return version_and_room[1]

    def keep_only(self, nodes: Mapping[str, Node]) -> None:
        self._units = {name: pools_and_units for name, pools_and_units in self._units.items() if name in nodes}
        self._rooms = {name: version_and_room for name, version_and_room in self._rooms.items() if name in nodes}


class _Renewal(NamedTuple):
    """A renewal of kinds and prices on its way: the nodes that are left, and what the others can serve.

    `whole_devices`: the whole devices of the node that has most, by driver.
    """

    expectation: _Expectation
    weights: Mapping[Kind, float]
    supply: Supply
    nodes: Iterator[str]
    whole_devices: dict[str, int]


class PlacementRooms(NamedTuple):
    """What a node serves of these kinds before and after the placement of a result.

    Rankings keep it for demands that may never come again, so nothing in it leads to the caches of a `Fragmentation`.
    """

    kinds: tuple[Kind, ...]
    before: NodeRoom
    after: NodeRoom
    result: object


class ExpectedDemand:
    """The kinds of pods that are expected, and the ratings of placements by what they cost these kinds."""

    def __init__(self, ledger: Ledger, equivalence: NodeEquivalence) -> None:
        """`equivalence`: which nodes have equal devices, so that they are looked at once."""
        self._ledger = ledger
        self._equivalence = equivalence
        ledger.free_amounts.enabled = True
        self._expectation = _Expectation({}, equivalence)
        self._seen: dict[Hashable, _Seen] = {}
        self._kinds: LruCache[tuple[bytes, NodeAmounts], Kind] = LruCache(_MOST_SEEN)
        self._noted: LruCache[str, None] = LruCache(_MOST_NOTED)
        self._increment = 1.0
        # The kinds that are expected of nodes with so many whole devices, each weighing as much.
        self._whole_devices: Mapping[str, int] = {}
        self._whole_kinds: Sequence[Kind] = ()
        self._prior = _PRIOR
        # Devices of nodes changed up to this place of the journal when kinds and prices were renewed last.
        self._devices_place = -1
        self._count = self._renewed_at = 0
        self._renewal: _Renewal | None = None
        self._unlearned: Iterator[Pod] | None = None
        # The pods that the administrator expects, and their kinds under a version of the device classes.
        self._policy_pods: Sequence[ExpectedPod] = ()
        self._policy_kinds: tuple[int, Mapping[Kind, float]] = (-1, {})
        self._is_due = False

    @property
    def fragmentation(self) -> Fragmentation:
        """The kinds that are expected now, with their prices."""
        return self._expectation.fragmentation

    @property
    def version(self) -> object:
        """Return what is another object once the prices have changed."""
        return self.fragmentation.prices

    def report(self) -> Mapping[str, tuple[float, float]]:
        """Return by what a pod asks for the share of the expected pods, and their price; CPU and memory are left out."""
        fragmentation, weights = self.fragmentation, self._weights()
        total = sum(weights.get(kind, 0.0) for kind in fragmentation.kinds) or 1.0
        shares: dict[str, tuple[float, float]] = {}
        for kind, price in zip(fragmentation.kinds, fragmentation.prices, strict=True):
            share, priced = shares.get(kind.label, (0.0, 0.0))
            shares[kind.label] = share + weights.get(kind, 0.0) / total, priced + price
        return shares

    def expect(self, pods: Sequence[ExpectedPod]) -> None:
        """Expect these pods in the place of those that come; without any, those that come."""
        if pods != self._policy_pods:
            self._policy_pods, self._policy_kinds, self._is_due = tuple(pods), (-1, {}), True

    def learn_again(self) -> None:
        """Have the next renewals learn the pods that run and were not noted, because another replica has placed them."""
        self._unlearned = None

    def note(self, pod: Pod, demand: Demand) -> None:
        """Count a pod with this demand, the first time that it is noted."""
        if pod.uid in self._noted:
            return
        self._noted[pod.uid] = None
        pod_amounts = self._ledger.free_amounts.asked_by(pod.uid)
        question = demand.signature, pod_amounts
        kind = self._kinds.use(question)
        if kind is None:
            kind = kind_of(demand, pod_amounts) if demand.size <= _LARGEST_DEMAND_BYTES else None
            if kind is None:
                return
            self._kinds[question] = kind
        self._count += 1
        seen_kind = self._seen.get(kind.key)
        if seen_kind is None:
            if len(self._seen) >= _MOST_SEEN:
                # Not the one that came longest ago: ever new kinds of one namespace would drive out those that come often.
                del self._seen[min(self._seen, key=lambda key: self._seen[key].weight)]
            seen_kind = self._seen[kind.key] = _Seen(kind, 0.0)
        seen_kind.weight += self._increment
        self._increment *= 2 ** (1 / _HALF_LIFE)
        if self._increment > _LARGE:
            for entry in self._seen.values():
                entry.weight /= self._increment
            self._prior /= self._increment
            self._increment = 1.0

    def preference(self, demand: Demand, node: Node, pools: NodePools, usage: Usage) -> FindDeviceOrder:
        """Return the order of the node's devices by what taking them costs, for a search under this usage."""
        fragmentation, units = self.fragmentation, self._expectation.units_of(node, pools)
        return lambda view: fragmentation.order(demand, view, units, usage)

    def rooms(self, node: Node, pools: NodePools, usage: Usage, placement: Placement, result: object) -> PlacementRooms:
        """Return what is free on the node before and after this placement, which is that of a `result`."""
        fragmentation, units = self.fragmentation, self._expectation.units_of(node, pools)
        before = units.rooms(usage)
        after = units.with_holdings(before, (holding for claim in placement.claims for holding in claim.holdings))
        return PlacementRooms(fragmentation.kinds, fragmentation.room(before), fragmentation.room(after), result)

    def unchanged_rooms(self, node: Node, pools: NodePools) -> PlacementRooms:
        """Return the same for a pod that takes no devices."""
        ledger, expectation = self._ledger, self._expectation
        room = expectation.room_of(node, pools, ledger.claims.usage, ledger.state_versions.version(node.name))
        return PlacementRooms(expectation.fragmentation.kinds, room, room, None)

    def rates(self, rooms: PlacementRooms) -> bool:
        """Return whether these rooms are about the kinds that are expected now."""
        return rooms.kinds is self.fragmentation.kinds

    def loss(self, node: str, rooms: PlacementRooms, pod_amounts: NodeAmounts) -> float:
        """Return what the expected kinds lose on the node if the placement comes true for a pod with this CPU and memory.

        `rooms` are those of the kinds that are expected now.
        """
        amounts = self._ledger.free_amounts
        return self.fragmentation.loss(rooms.before, rooms.after, amounts.free(node), pod_amounts, amounts.most_cpu)

    def renew(self, allocator: "NodeAllocator", count: int, is_late: Callable[[], bool] = lambda: False) -> bool:
        """Do a part of what is due: learn so many pods that run already, or look at so many nodes; return whether more is due.

        It ends early, after one of them at least, once `is_late` returns True.
        """
        if self._unlearned is None:
            self._unlearned = iter(
                [pod for pod in self._ledger.pods.all() if pod.needs_devices and pod.node_name and not pod.finished]
            )
        for pod in islice(self._unlearned, count):
            self._learn(pod, allocator)
            count -= 1
            if not count or is_late():
                return True
        renewal = self._renewal
        if renewal is None:
            interval = min(1 + self._renewed_at // _EIGHTH, _MOST_BETWEEN_RENEWALS)
            if self._count - self._renewed_at < interval and not (
                self._is_due or self._classes_changed() or self._devices_changed()
            ):
                return False
            renewal = self._renewal = self._begin_renewal(allocator)
        for name in islice(renewal.nodes, count):
            self._supply(renewal, name, allocator)
            count -= 1
            if not count or is_late():
                return True
        if renewal.whole_devices != self._whole_devices:
            self._whole_devices, self._whole_kinds = renewal.whole_devices, tuple(whole_kinds(renewal.whole_devices))
            self._is_due |= not self._policy_pods
        renewal.expectation.fragmentation.renew_prices(renewal.supply, renewal.weights)
        renewal.expectation.keep_only(self._ledger.nodes)
        self._expectation, self._renewal = renewal.expectation, None
        return True

    def _classes_changed(self) -> bool:
        """Return whether the given pods may be of other kinds, because device classes have changed."""
        return bool(self._policy_pods) and self._policy_kinds[0] != self._ledger.changes.classes

    def _devices_changed(self) -> bool:
        """Return whether more than an eighth of the nodes have come, gone, or got other devices."""
        changed, _ = self._ledger.inventory_versions.since(self._devices_place)
        threshold = len(self._ledger.nodes) / _EIGHTH
        return changed is None or (len(changed) > threshold and len(set(changed)) > threshold)

    def renew_all(self, allocator: "NodeAllocator") -> None:
        """Learn from all pods, and renew kinds and prices, where nothing waits for it."""
        while self.renew(allocator, _MOST_BETWEEN_RENEWALS):
            pass

    def _begin_renewal(self, allocator: "NodeAllocator") -> _Renewal:
        """Choose the kinds; the expectation stays if they are the same."""
        self._renewed_at, self._is_due = self._count, False
        self._devices_place = self._ledger.inventory_versions.place
        if self._classes_changed():
            self._policy_kinds = self._ledger.changes.classes, dict(self._kinds_of(self._policy_pods, allocator))
        weights, present = self._weights(), self._expectation
        present_kinds = set(present.fragmentation.kinds)
        # A new kind has to be twice as heavy as one that is known, because a change of kinds costs a look at all nodes.
        chosen = heaviest({kind: weight * (_STAYS if kind in present_kinds else 1) for kind, weight in weights.items()})
        kinds = {kind: weights[kind] for kind in chosen}
        if kinds.keys() != present_kinds:
            present = _Expectation(kinds, self._equivalence)
        return _Renewal(present, kinds, present.fragmentation.supply(), iter(list(self._ledger.nodes)), {})

    def _supply(self, renewal: _Renewal, name: str, allocator: "NodeAllocator") -> None:
        ledger = self._ledger
        node = ledger.nodes.get(name)
        pools = None if node is None else allocator.pools_of(node)
        if node is not None and pools is not None and pools.devices:
            version = ledger.state_versions.version(name)
            room = renewal.expectation.room_of(node, pools, ledger.claims.usage, version)
            renewal.supply.add(room, ledger.free_amounts.free(name))
            for driver, count in renewal.expectation.units_of(node, pools).whole_devices.items():
                renewal.whole_devices[driver] = max(count, renewal.whole_devices.get(driver, 0))

    def _learn(self, pod: Pod, allocator: "NodeAllocator") -> None:
        claims = find_claims(pod, self._ledger)
        if pod.uid in self._noted or isinstance(claims, Rejection):
            return
        demand = allocator.demand(claims, Budget(_COMPILE_COST))
        if isinstance(demand, Demand):
            self.note(pod, demand)

    def _kinds_of(self, pods: Iterable[ExpectedPod], allocator: "NodeAllocator") -> Iterator[tuple[Kind, float]]:
        """Yield the kinds of expected pods; a pod whose class does not exist is of none."""
        for pod in pods:
            demand = allocator.demand_of((NamedClaim(pod.name, pod.claim),), Budget(_COMPILE_COST))
            kind = None if isinstance(demand, Rejection) else kind_of(demand, pod.amounts)
            if kind is not None:
                yield kind, pod.weight

    def _weights(self) -> Mapping[Kind, float]:
        if self._policy_pods:
            return self._policy_kinds[1]
        return dict.fromkeys(self._whole_kinds, self._prior) | {
            seen_kind.kind: seen_kind.weight for seen_kind in self._seen.values()
        }
