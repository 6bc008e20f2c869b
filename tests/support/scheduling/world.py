"""A small cluster in memory with a real ledger and the real use cases, for tests that speak to them directly."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.cluster import Claims, Cluster, PodGroups, Pods
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController
from dra_extender.telemetry.metrics import Metrics

from tests.support.model.reading import pod_from
from tests.support.turns import turns

DRIVER = "gpu.example.com"
CONDITIONS: Json = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
"""Fields of a device that has to be attached before its pod is bound."""


class Steady:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return 1_700_000_000.0 + self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Ticking(Steady):
    """A clock that goes on whenever it is read, so that time stands for work."""

    def __init__(self, tick_seconds: float = 1.0) -> None:
        super().__init__()
        self._tick_seconds = tick_seconds

    def monotonic(self) -> float:
        self.seconds += self._tick_seconds
        return self.seconds


def ports_of(cluster: MemoryCluster, **exchanged: Any) -> Cluster:
    """The cluster's ports, with those in the place of its own that are given and not None."""
    ports = copy.copy(cluster)
    for name, port in exchanged.items():
        if port is not None:
            setattr(ports, name, port)
    return ports


class InMemoryExtender:
    """Objects come and go through the store; the watch is delivered on demand."""

    namespace_claim_bytes = 0
    """What the ledger keeps of the claims of a namespace."""

    def __init__(self, options: Options | None = None, **features: bool) -> None:
        self.cluster = MemoryCluster()
        self.clock = Steady()
        self.options = options or Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0)
        self.features = Features(**features)
        self.claims: Claims | None = None
        self.pods: Pods | None = None
        self.groups: PodGroups | None = None
        self.start()

    def start(self) -> None:
        """A new process: nothing is known but what the store has."""
        self.ledger = Ledger(self.namespace_claim_bytes)
        self.metrics = Metrics()
        ports = ports_of(self.cluster, clock=self.clock, claims=self.claims, pods=self.pods, pod_groups=self.groups)
        self.extender = Extender(self.ledger, ports, self.metrics, self.options, self.features)
        self.cluster.watch.attach(sinks_of(self.ledger))

    def sync(self) -> None:
        self.cluster.watch.deliver()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cluster.watch.keep_delivering())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def create(self, kind: StoredKind, raw: Json) -> Json:
        stored = self.cluster.store.create(kind, raw)
        self.sync()
        return stored

    def update(self, kind: StoredKind, raw: Json) -> Json:
        stored = self.cluster.store.update(kind, raw)
        self.sync()
        return stored

    def delete(self, kind: StoredKind, name: str) -> None:
        self.cluster.store.delete(Key(kind, "default" if kind.namespaced else "", name))
        self.sync()

    def end_group(self, name: str) -> None:
        """Delete a PodGroup whatever its pods do, as somebody does who takes its finalizer away."""
        key = Key(StoredKind.POD_GROUP, "default", name)
        group = self.cluster.store.get(key)
        self.cluster.store.update(key.kind, {**group, "metadata": {**group["metadata"], "finalizers": []}})
        self.delete(StoredKind.POD_GROUP, name)

    def claim(self, name: str) -> Json:
        return self.cluster.store.get(Key(StoredKind.CLAIM, "default", name))

    def pod(self, name: str) -> Json:
        return self.cluster.store.get(Key(StoredKind.POD, "default", name))

    def furnish(self, **objects: int | str) -> Self:
        """Create nodes (name=number of devices), the class of these devices, and pods (name="claim claim") with their claims."""
        for name, count in objects.items():
            if isinstance(count, int):
                self.node(name)
                self.gpus(name, count)
        self.device_class()
        pods = {name: claims.split() for name, claims in objects.items() if isinstance(claims, str)}
        for claim in dict.fromkeys(claim for claims in pods.values() for claim in claims):
            self.add_claim(claim)
        for name, claims in pods.items():
            self.add_pod(name, *claims)
        return self

    def node(self, name: str, **allocatable: str) -> None:
        self.create(StoredKind.NODE, {"metadata": {"name": name}, "status": {"allocatable": dict(allocatable)}})

    def gpus(self, node: str, count: int) -> None:
        self.slice(node, [{"name": f"gpu-{index}"} for index in range(count)])

    def slice(self, node: str, devices: list[Json], counters: Mapping[str, int] | None = None) -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2 if counters else 1}
        if counters:
            sets = [{"name": name, "counters": {"units": {"value": str(amount)}}} for name, amount in counters.items()]
            spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "sharedCounters": sets}
            self.create(StoredKind.SLICE, {"metadata": {"name": f"{node}-counters"}, "spec": spec})
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
        self.create(StoredKind.SLICE, {"metadata": {"name": f"{node}-devices"}, "spec": spec})

    def fabric(self, *devices: Json, name: str = "fabric", **reach: Any) -> None:
        """Publish devices that every node reaches, or those that `reach` names."""
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "devices": list(devices), **(reach or {"allNodes": True})}
        self.create(StoredKind.SLICE, {"metadata": {"name": name}, "spec": spec})

    def device_class(self, name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"', **spec: Any) -> None:
        self.create(
            StoredKind.CLASS,
            {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}], **spec}},
        )

    def add_claim(
        self,
        name: str,
        *,
        count: int = 1,
        selector: str = "",
        class_name: str = "gpu",
        namespace: str = "default",
        **request: Any,
    ) -> None:
        body: Json = {"deviceClassName": class_name, "count": count, **request}
        if selector:
            body["selectors"] = [{"cel": {"expression": selector}}]
        self.add_claim_of(name, {"name": "req", "exactly": body}, namespace=namespace)

    def add_claim_of(self, name: str, *requests: Json, namespace: str = "default", **devices: Any) -> Json:
        """Create a claim with these requests, and what else `devices` has of its spec."""
        spec = {"devices": {"requests": list(requests), **devices}}
        return self.create(StoredKind.CLAIM, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def add_pod(
        self,
        name: str,
        *claims: str,
        namespace: str = "default",
        resources: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Json:
        """Create a pod that uses these claims; `fields` of its spec replace others."""
        container: Json = {"name": "main", "image": "pause", "resources": {"requests": dict(resources or {})}}
        spec = {
            "schedulerName": "dra-extender-scheduler",
            "containers": [container],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        }
        metadata = {"name": name, "namespace": namespace}
        return self.create(StoredKind.POD, {"metadata": metadata, "spec": {**spec, **fields}})

    def add_member(self, group: str, name: str, *claims: str, **fields: Any) -> None:
        """Create a pod of the PodGroup."""
        self.add_pod(name, *claims, schedulingGroup={"podGroupName": group}, **fields)

    def add_group(self, name: str, min_count: int = 0, **fields: Any) -> None:
        """Create a PodGroup, of which so many pods are bound together or none."""
        policy: Json = {"schedulingPolicy": {"gang": {"minCount": min_count}}} if min_count else {}
        metadata = {"name": name, "namespace": "default"}
        self.create(StoredKind.POD_GROUP, {"metadata": metadata, "spec": {**policy, **fields}})

    def manage(self, *, gate: bool = True) -> None:
        """kube-controller-manager does its work, with or without DRAWorkloadResourceClaims."""
        ClaimController(self.cluster.store, for_groups=gate).reconcile()
        self.sync()

    def silence(self, kind: str) -> None:
        """Let the watch bring no news of this kind any more."""
        self.cluster.watch.attach({name: feed for name, feed in sinks_of(self.ledger).items() if name != kind})

    def allocate(self, claim: str, device: str, *, pool: str = "n1", writer: str = "") -> None:
        """Let another scheduler allocate this device to the claim."""
        stored = self.claim(claim)
        result = {"request": "req", "driver": DRIVER, "pool": pool, "device": device}
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.cluster.store.update_status(StoredKind.CLAIM, stored, writer)

    def allocate_foreign(self, device: str = "gpu-0", *, pool: str = "n1", name: str = "foreign") -> None:
        """Let another scheduler allocate this device to a claim of its own."""
        self.add_claim(name)
        self.allocate(name, device, pool=pool)

    def report(self, condition: str, claim: str = "c1") -> None:
        """Let the driver say this, and nothing else, of every device of the claim."""
        stored = self.claim(claim)
        said = {"type": condition, "status": "True", "reason": "Test", "message": ""}
        stored["status"]["devices"] = [
            {**{key: each[key] for key in ("driver", "pool", "device")}, "conditions": [said]}
            for each in stored["status"]["allocation"]["devices"]["results"]
        ]
        self.cluster.store.update_status(StoredKind.CLAIM, stored)

    async def filter(self, pod: str, *nodes: str) -> FilterResponse:
        return await self.extender.filter(pod_from(self.pod(pod)), nodes)

    async def bind(self, pod: str, node: str, hung_up: asyncio.Event | None = None) -> None:
        await self.extender.bind("default", pod, self.uid(pod), node, hung_up or asyncio.Event())

    async def waiting(self, pod: str = "p1", node: str = "n1") -> asyncio.Task[None]:
        """Begin a bind that waits."""
        bind = asyncio.create_task(self.bind(pod, node))
        await turns()
        assert not bind.done()
        return bind

    async def killed(self, pod: str = "p1", node: str = "n1") -> None:
        """The process that binds the pod dies while the bind waits."""
        async with self.watching():
            bind = await self.waiting(pod, node)
            bind.cancel()
            await asyncio.gather(bind, return_exceptions=True)

    async def bind_through(self, pod: str, node: str) -> None:
        """Bind the pod, and let the watch bring all of it."""
        async with self.watching():
            await self.bind(pod, node)
            await self.cluster.watch.caught_up()

    async def abandoned(self, pod: str, node: str = "n1") -> None:
        """The claim is allocated and reserved, but nobody waits for the Binding any more."""
        hung_up = asyncio.Event()
        hung_up.set()
        async with self.watching():
            with pytest.raises(RetryableError, match="nobody waits"):
                await self.bind(pod, node, hung_up)
        self.sync()

    def devices(self, claim: str) -> list[str]:
        allocation = self.claim(claim).get("status", {}).get("allocation") or {}
        return [f"{each['pool']}/{each['device']}" for each in allocation.get("devices", {}).get("results", [])]

    def known_claim(self, name: str) -> ClaimRecord:
        """Return what the service knows of the claim."""
        record = self.ledger.claims.by_key("default", name)
        assert record is not None
        return record

    def known_pod(self, name: str) -> Pod:
        pod = self.ledger.pods.by_key("default", name)
        assert pod is not None
        return pod

    def known_group(self, name: str) -> PodGroup:
        group = self.ledger.pod_groups.get("default", name)
        assert group is not None
        return group

    def uid(self, pod: str) -> str:
        return str(self.pod(pod)["metadata"]["uid"])

    def node_of(self, pod: str = "p1") -> str:
        """Return the node to which the pod is bound; empty if it is not."""
        return str(self.pod(pod)["spec"].get("nodeName", ""))

    async def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric as it is served, 0 if it has none."""
        await self.metrics.render()
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def messages(self, pod: str) -> Sequence[str]:
        return [each.message for each in self.cluster.events.of_pod(self.uid(pod))]
