"""A cluster of API objects, as a snapshot has them, without an API server."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from dra_extender.inspection.cluster_view import ClusterView, InspectionClock, served_fields
from dra_extender.inspection.objects import ClusterObjects, MissingKind, Origin
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.hold_report import FORMAT, HeldClaim, HeldNode, HoldReport
from dra_extender.simulator.apiserver.cluster import MemoryCluster

from tests.controlplane import objects

NOW: Final = 1_795_600_000.0
CREATED: Final = "2026-11-25T09:34:40Z"
NAMESPACE: Final = "ml"
HOLD_SECONDS: Final = 25
TRIED: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
"""The condition of a pod that its scheduler has tried to place; pods without a status get it."""
_PLURALS: Final = {
    "Node": "nodes",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "PodGroup": "podgroups",
    "Pod": "pods",
    "Event": "events",
    "PodDisruptionBudget": "poddisruptionbudgets",
}

Json = dict[str, Any]


class MadeCluster:
    """Objects in the order in which they were added, with what an API server fills in."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Json]] = {kind: [] for kind in _PLURALS.values()}
        self.missing: tuple[MissingKind, ...] = ()
        self.now = NOW

    def add(self, *items: Json) -> None:
        """Store these objects."""
        for each in items:
            metadata = each["metadata"]
            metadata.setdefault("uid", f"uid-{each['kind']}-{metadata.get('namespace', '')}-{metadata['name']}".lower())
            metadata.setdefault("resourceVersion", "1")
            metadata.setdefault("creationTimestamp", CREATED)
            if each["kind"] == "Pod":
                each.setdefault("status", {"conditions": [dict(TRIED)]})
            specs = {
                "ResourceClaim": each.get("spec", {}),
                "ResourceClaimTemplate": each.get("spec", {}).get("spec", {}),
            }
            for request in specs.get(each["kind"], {}).get("devices", {}).get("requests", ()):
                request["exactly"].setdefault("allocationMode", "ExactCount")
            self.objects[_PLURALS[each["kind"]]].append(each)

    def nodes(self, *names: str) -> None:
        self.add(*(objects.node(name) for name in names))

    def gpus(self, node: str, *devices: Json, driver: str = objects.DRIVER) -> None:
        self.add(objects.resource_slice(f"{driver}-{node}", node=node, devices=devices, driver=driver))

    def partitions(self, node: str, counter_sets: Sequence[Json], devices: Sequence[Json]) -> None:
        """Publish devices of a node that draw on counter sets."""
        self.add(objects.resource_slice(f"sets-{node}", node=node, counter_sets=counter_sets, slice_count=2))
        self.add(objects.resource_slice(f"parts-{node}", node=node, devices=devices, slice_count=2))

    def pod(self, name: str, *requests: Json, **fields: Any) -> None:
        """A pending pod with a claim `claim-NAME` for these requests, which it calls `gpu`."""
        self.add(objects.resource_claim(f"claim-{name}", NAMESPACE, *requests))
        self.add(objects.pod(name, NAMESPACE, claims={"gpu": f"claim-{name}"}, **fields))

    def running(self, name: str, node: str, device: str, *requests: Json, driver: str = objects.DRIVER) -> None:
        """A pod that runs on the node with a device of the pool that is called like the node."""
        self.pod(name, *requests)
        pod, claim = self.objects["pods"][-1], self.objects["resourceclaims"][-1]
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}
        result = {"request": requests[0]["name"], "driver": driver, "pool": node, "device": device}
        consumer = objects.consumer(name, pod["metadata"]["uid"])
        claim["status"] = objects.allocated(result, consumers=[consumer], nodeSelector=objects.on_node(node))

    def cluster(self) -> ClusterObjects:
        by_kind = {kind: [msgspec.json.encode(each) for each in found] for kind, found in self.objects.items()}
        for each in self.missing:
            if not each.namespace:
                del by_kind[each.kind]
        return ClusterObjects(
            Origin(source="a test", taken_at=Moment(self.now), release="v1.37.1", missing=self.missing), by_kind
        )

    def view(self, elapsed: Callable[[], float] = lambda: 0.0) -> ClusterView:
        """The cluster as decisions see it; `elapsed` are the seconds that go by, so that no limit depends on the machine."""
        cluster = self.cluster()
        clock = InspectionClock(cluster.origin.taken_at, elapsed)
        return ClusterView(cluster, cluster=MemoryCluster(clock=clock, served=served_fields(cluster.origin)))


def one_gpu_held() -> MadeCluster:
    """A GPU on a node, which pod `old` has and pod `train` waits for."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(objects.device_class("gpu"))
    made.gpus("n1", objects.device("gpu-0"))
    made.running("old", "n1", "gpu-0", objects.request("gpu", "gpu"))
    made.pod("train", objects.request("gpu", "gpu"))
    return made


def partitions_and_a_taint() -> MadeCluster:
    """Two nodes: two partitions of one GPU, of which pod `train` has one, and a tainted GPU."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(objects.device_class("gpu"))
    draws = [objects.consumption("gpu-0", groups=["mig"], sm="42")]
    partitions = [objects.device(f"mig-{index}", consumes=draws) for index in range(2)]
    made.partitions("n1", [objects.counter_set("gpu-0", sm="98")], partitions)
    broken = {"key": "example.com/broken", "effect": "NoSchedule"}
    made.gpus("n2", objects.device("gpu-0", taints=[broken]))
    made.running("train", "n1", "mig-0", objects.request("gpu", "gpu"))
    return made


Build = Callable[[MadeCluster], None]


class Cases:
    """Keeps functions that build a cluster, by their names, as the decorator of each: `@case("the expected answer")`."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[Build, str]] = {}

    def __call__(self, expected: str) -> Callable[[Build], Build]:
        def keep(build: Build) -> Build:
            self.by_name[build.__name__] = build, expected
            return build

        return keep


def budget(allowed: int, selector: Any, name: str = "keep", namespace: str = NAMESPACE) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }


def one_gpu() -> MadeCluster:
    """One GPU, and the pods `first` and `second` that ask for it."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(objects.device_class("gpu"))
    made.gpus("n1", objects.device("gpu-0"))
    for name in ("first", "second"):
        made.pod(name, objects.request("gpu", "gpu"))
    return made


def held_for(cluster: MadeCluster, pod: str, **fields: object) -> HoldReport:
    """The GPU is held for this pod, for its claim or, without one, for that of its extended resources, which is not made yet."""
    pod_uid = next(each["metadata"]["uid"] for each in cluster.objects["pods"] if each["metadata"]["name"] == pod)
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.objects["resourceclaims"]}
    claim = f"claim-{pod}" if f"claim-{pod}" in uids else ""
    held = HeldClaim(
        claim_uid=uids.get(claim, f"{pod_uid}/extended-resources"),
        claim=claim,
        namespace=NAMESPACE,
        pods=((f"{NAMESPACE}/{pod}", pod_uid),),
        until=Moment(NOW + HOLD_SECONDS),
        nominated=False,
        nodes=(HeldNode(node="n1", devices=(DeviceHolding(driver=objects.DRIVER, pool="n1", device="gpu-0"),)),),
    )
    return HoldReport(format=FORMAT, taken_at=NOW, holds=(held,), **fields)  # type: ignore[arg-type]  # plans, left_out


def with_holds(cluster: MadeCluster, report: HoldReport | None) -> ClusterObjects:
    """The objects of the cluster with what its extender holds."""
    found = cluster.cluster()
    return ClusterObjects(found.origin, found.by_kind, holds=report)
