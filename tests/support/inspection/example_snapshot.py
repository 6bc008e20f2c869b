"""The snapshot in deploy/examples: a small cluster whose GPUs are cut up so that much is free and little fits.

`make generate` writes it.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from dra_extender.inspection.objects import KINDS, ClusterObjects, Origin
from dra_extender.inspection.snapshot_file import write_snapshot
from dra_extender.model.metadata import Moment
from dra_extender.model.resource_claim import FINALIZER

from tests.controlplane.objects import (
    DRIVER,
    Object,
    allocated,
    consumer,
    consumption,
    counter_set,
    device,
    device_class,
    node,
    on_node,
    pod,
    pod_group,
    request,
    resource_claim,
)
from tests.support.inspection.made_cluster import MadeCluster

FILE: Final = Path(__file__).parents[3] / "deploy" / "examples" / "snapshots" / "fragmented.tar.gz"
NOW: Final = 1_795_600_000.0
FABRIC: Final = "cdi.example.com"
CUT_UP: Final = tuple(f"node-{number}" for number in range(1, 8))
"""Nodes with two GPUs each that are divided, by MIG or by vGPU."""
WHOLE: Final = ("node-8", "node-9")
"""Nodes with four GPUs that are not divided."""
PLAIN: Final = ("node-11", "node-12")
RACK: Final = "node-10"
"""The node that devices of a fabric are attached to."""
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0


class _Example(MadeCluster):
    def at(self, age: float, item: Object) -> Object:
        """Add an object of this age in seconds."""
        item["metadata"]["creationTimestamp"] = _stamp(age)
        self.add(item)
        return item

    def waiting(self, namespace: str, name: str, age: float, *wanted: Object, **fields: Any) -> None:
        """A pod of this age that waits for a claim with these requests."""
        self._pod(namespace, name, age, *wanted, **fields)["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }

    def has(self, namespace: str, name: str, age: float, place: str, wanted: Object) -> None:
        """A pod that has run for so long with a device, given as `node/device`."""
        made = self._pod(namespace, name, age, wanted)
        on, held = place.split("/")
        made["spec"]["nodeName"], made["status"] = on, {"phase": "Running", "startTime": _stamp(age)}
        self.allocate(age, on, held, made, DRIVER)

    def allocate(self, age: float, on: str, held: str, of: Object, driver: str, **result: object) -> None:
        """Allocate a device to the claim that was added last, and reserve the claim for the pod."""
        claim = self.objects["resourceclaims"][-1]
        claim["metadata"]["finalizers"] = [FINALIZER]
        wanted = claim["spec"]["devices"]["requests"][0]["name"]
        claim["status"] = allocated(
            {"request": wanted, "driver": driver, "pool": on, "device": held, **result},
            consumers=[consumer(of["metadata"]["name"], of["metadata"]["uid"])],
            nodeSelector=on_node(on),
            allocationTimestamp=_stamp(age),
        )

    def _pod(self, namespace: str, name: str, age: float, *wanted: Object, **fields: Any) -> Object:
        entry = wanted[0]["name"]
        self.at(age, resource_claim(f"{name}-{entry}", namespace, *wanted))
        return self.at(age, pod(name, namespace, claims={entry: f"{name}-{entry}"}, **fields))


def example() -> ClusterObjects:
    """The objects, the same each time."""
    made = _Example()
    for name in (*CUT_UP, *WHOLE, RACK, *PLAIN):
        made.at(90 * 24 * _HOUR, node(name, labels={"example.com/room": "b" if name in WHOLE else "a"}))
    for name, condition in (("gpu", "whole"), ("mig-3g", "3g"), ("mig-1g", "1g"), ("vgpu", "vgpu")):
        made.add(
            device_class(
                name, f'device.driver == "{DRIVER}"', f'device.attributes["{DRIVER}"].profile == "{condition}"'
            )
        )
    made.add(device_class("fabric-gpu", f'device.driver == "{FABRIC}"'))
    for name in CUT_UP:
        made.partitions(name, [counter_set(gpu, multiprocessors="98", memory="80Gi") for gpu in _GPUS], list(_parts()))
    for name in WHOLE:
        size = "40Gi" if name == "node-8" else "48Gi"
        made.gpus(name, *(_whole(f"gpu-{index}", size) for index in range(4)))
    made.gpus(RACK, *(_attached(f"gpu-{index}") for index in range(2)), driver=FABRIC)
    _running(made)
    _waiting(made)
    by_kind = {kind: sorted(map(_encoded, made.objects.get(kind, ())), key=_key) for kind in KINDS}
    return ClusterObjects(Origin(source="an example", taken_at=Moment(NOW), release="v1.37.1"), by_kind)


def write(path: Path = FILE) -> None:
    path.parent.mkdir(exist_ok=True)
    write_snapshot(example(), path)
    path.chmod(0o644)


def packed() -> bytes:
    """The bytes of the file as this version of the program writes it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / FILE.name
        write(file)
        return file.read_bytes()


_GPUS: Final = ("gpu-0", "gpu-1")


def _parts() -> Iterator[Object]:
    """The ways to use a GPU: whole, by MIG, by vGPU."""
    for gpu in _GPUS:
        yield _part(f"{gpu}-whole", gpu, "whole", ("mig", "vgpu"), 98, 80)
        for index in range(2):
            yield _part(f"{gpu}-3g-{index}", gpu, "3g", ("mig",), 42, 40)
            yield _part(f"{gpu}-1g-{index}", gpu, "1g", ("mig",), 14, 10)
            yield _part(f"{gpu}-vgpu-{index}", gpu, "vgpu", ("vgpu",), 48, 40)


def _part(name: str, gpu: str, profile: str, groups: tuple[str, ...], multiprocessors: int, memory: int) -> Object:
    consumed = consumption(gpu, groups=groups, multiprocessors=str(multiprocessors), memory=f"{memory}Gi")
    return device(name, attributes={"profile": profile}, capacity={"memory": f"{memory}Gi"}, consumes=[consumed])


def _whole(name: str, memory: str) -> Object:
    return device(name, attributes={"profile": "whole"}, capacity={"memory": memory})


def _attached(name: str) -> Object:
    conditions: Object = {
        "bindsToNode": True,
        "bindingConditions": ["FabricAttached"],
        "bindingFailureConditions": ["FabricFailed"],
    }
    return device(name, attributes={"profile": "whole"}, capacity={"memory": "80Gi"}, **conditions)


def _running(made: _Example) -> None:
    """Pods of four namespaces that have devices: MIG on nodes 1 to 5, vGPU on nodes 6 and 7."""
    wanted = {name: request(name, f"mig-{name}") for name in ("3g", "1g")}
    for number, name in enumerate(CUT_UP[:5], 1):
        for gpu in _GPUS:
            first, second = ("ml", "dev") if gpu == "gpu-0" else ("ci", "dev")
            made.has(first, f"train-{number}-{gpu[-1]}", 26 * _HOUR, f"{name}/{gpu}-3g-0", wanted["3g"])
            made.has(second, f"notebook-{number}-{gpu[-1]}", 5 * _HOUR, f"{name}/{gpu}-1g-0", wanted["1g"])
            made.has("ci", f"build-{number}-{gpu[-1]}", 0.5 * _HOUR, f"{name}/{gpu}-1g-1", wanted["1g"])
    for number, name in enumerate(CUT_UP[5:], 1):
        for gpu in _GPUS:
            made.has("vdi", f"desk-{number}-{gpu[-1]}", 3 * _HOUR, f"{name}/{gpu}-vgpu-0", request("desk", "vgpu"))
    for index in range(4):
        made.has("ml", f"render-{index}", 8 * _HOUR, f"node-9/gpu-{index}", request("gpu", "gpu"))


def _waiting(made: _Example) -> None:
    made.waiting("ml", "infer-1", 12 * _MINUTE, request("slice", "mig-3g"))
    made.waiting(
        "ml", "train-7", 40 * _MINUTE, request("gpu", "gpu", _memory("80Gi")), nodeSelector={"example.com/room": "b"}
    )
    made.waiting("dev", "notebook-9", 3 * _MINUTE, request("slice", "mig-2g"))
    made.waiting("vdi", "desk-9", 8 * _MINUTE, request("desk", "vgpu", count=3))
    made.waiting("ml", "train-8", 2 * _MINUTE, request("gpu", "fabric-gpu"))
    made.allocate(
        41.0,
        RACK,
        "gpu-1",
        made.objects["pods"][-1],
        FABRIC,
        bindingConditions=["FabricAttached"],
        bindingFailureConditions=["FabricFailed"],
    )
    made.at(20 * _MINUTE, pod_group("sweep", "ml", min_count=6))
    for index in range(6):
        made.waiting(
            "ml", f"sweep-{index}", 20 * _MINUTE, request("gpu", "gpu"), schedulingGroup={"podGroupName": "sweep"}
        )


def _memory(amount: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{amount}")) >= 0'


def _stamp(age: float) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _encoded(item: Object) -> bytes:
    return msgspec.json.encode(item)


def _key(data: bytes) -> tuple[str, str]:
    metadata = msgspec.json.decode(data)["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
