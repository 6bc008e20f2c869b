"""The objects of a small simulated cluster, and the pods that users make in it."""

import random
from typing import Any, Final

from dra_extender.kube.scheduler_waker import WAKE_UP_CLASS
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.apiserver.store import Store

from tests.controlplane import objects
from tests.controlplane.objects import DRIVER, Object
from tests.support.e2e.fabric import ATTACHED, FAILED

NAMESPACE: Final = "default"
WHOLE, SLOW, MIG, VGPU, SHARED, PAIR = KINDS = ("whole", "slow", "mig", "vgpu", "shared", "pair")
_MEMORY: Final = "memory"


DEVICES: Final = ("whole-0", "whole-1", "slow-0", "slow-1", "mig-0", "mig-1", "mig-2", "vgpu-0", "vgpu-1", "shared-0")
"""Names of the devices of each node."""


def furnish(store: Store, nodes: int, lacking: frozenset[str] = frozenset()) -> None:
    """Store nodes with whole devices, devices that must be attached, one cut by two schemes that exclude each other and of
    whose three small parts two fit, and one that
    is shared by capacity, but without those that are `lacking`; and a template for each kind of request.
    """
    store.create(StoredKind.CLASS, objects.device_class("gpu"))
    store.create(StoredKind.CLASS, objects.device_class(WAKE_UP_CLASS, "false"))
    for number in range(nodes):
        name = f"node-{number}"
        store.create(StoredKind.NODE, objects.node(name))
        for each in slices(name, 1, lacking):
            store.create(StoredKind.SLICE, each)
    for kind in KINDS:
        store.create(StoredKind.TEMPLATE, objects.resource_claim_template(kind, NAMESPACE, request(kind)))


def slices(node: str, generation: int, absent: frozenset[str]) -> list[Object]:
    """What the driver of a node publishes; devices that are `absent` have gone."""
    conditions: dict[str, Any] = {
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    devices = [
        *(objects.device(f"whole-{index}", attributes={"kind": WHOLE}) for index in range(2)),
        *(objects.device(f"slow-{index}", attributes={"kind": SLOW}, **conditions) for index in range(2)),
        *(_partition(MIG, index, "40") for index in range(3)),
        *(_partition(VGPU, index, "50") for index in range(2)),
        objects.device(
            "shared-0", attributes={"kind": SHARED}, capacity={_MEMORY: "40Gi"}, allowMultipleAllocations=True
        ),
    ]
    present = [each for each in devices if each["name"] not in absent]
    common: dict[str, Any] = {"node": node, "generation": generation, "slice_count": 2}
    return [
        objects.resource_slice(f"{node}-counters", counter_sets=[objects.counter_set("gpu", units="100")], **common),
        objects.resource_slice(f"{node}-devices", devices=present, **common),
    ]


def request(kind: str) -> Object:
    """The request of the template of this name."""
    if kind == PAIR:
        return objects.request("gpu", "gpu", _of_kind(WHOLE), count=2)
    fields: dict[str, Any] = {"capacity": {"requests": {_MEMORY: "10Gi"}}} if kind == SHARED else {}
    return objects.request("gpu", "gpu", _of_kind(kind), **fields)


def random_kind(chance: random.Random) -> str:
    return chance.choices(KINDS, (5, 2, 3, 2, 4, 1))[0]


def _of_kind(kind: str) -> str:
    return f'device.attributes["{DRIVER}"].kind == "{kind}"'


def _partition(kind: str, index: int, units: str) -> Object:
    consumed = [objects.consumption("gpu", groups=[kind], units=units)]
    return objects.device(f"{kind}-{index}", attributes={"kind": kind}, consumes=consumed)
