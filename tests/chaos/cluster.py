"""The cluster that chaos is let loose on: nodes with devices of every kind that has rules of its own."""

import asyncio
from random import Random
from typing import Any, Final

from tests.controlplane.objects import (
    Object,
    consumption,
    counter_set,
    device,
    device_class,
    request,
    resource_claim,
    resource_claim_template,
)
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.namespace_fixture import NamespaceFixture

WHOLE: Final = "whole"
SLOW: Final = "slow"
MIG: Final = "mig"
VGPU: Final = "vgpu"
SHARED: Final = "shared"
KINDS: Final = (WHOLE, SLOW, MIG, VGPU, SHARED)
MEMORY: Final = "memory"
EXTENDED: Final = "chaos.example.com/gpu"


async def furnish(scene: NamespaceFixture, nodes: int) -> None:
    """Nodes with whole GPUs (also as an extended resource), GPUs that must be attached, one cut into partitions of two schemes,
    and one shared by capacity.
    """
    await scene.open()
    whole = f'device.driver == "{scene.driver}" && {scene.attribute("kind")} == "{WHOLE}"'
    await scene.api.create(DEVICE_CLASSES, device_class(f"{scene.name}-{WHOLE}", whole, extendedResourceName=EXTENDED))
    await asyncio.gather(*(_node(scene, f"n{number}") for number in range(nodes)))
    for kind in KINDS:
        template = resource_claim_template(kind, scene.name, _request(scene, kind))
        await scene.api.create(RESOURCE_CLAIM_TEMPLATES, template)


async def named_claim(scene: NamespaceFixture, name: str, kind: str) -> None:
    """A claim that several pods may use."""
    await scene.api.create(RESOURCE_CLAIMS, resource_claim(name, scene.name, _request(scene, kind)))


def choose(random: Random) -> str:
    """A kind of device."""
    return random.choices(KINDS, (5, 2, 3, 2, 4))[0]


async def _node(scene: NamespaceFixture, suffix: str) -> None:
    conditions: dict[str, Any] = {
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    devices = [
        *(device(f"whole-{index}", attributes={"kind": WHOLE}) for index in range(5)),
        *(device(f"slow-{index}", attributes={"kind": SLOW}, **conditions) for index in range(2)),
        *(_partition(MIG, index, "20") for index in range(4)),
        *(_partition(VGPU, index, "50") for index in range(2)),
        device("shared-0", attributes={"kind": SHARED}, capacity={MEMORY: "80Gi"}, allowMultipleAllocations=True),
    ]
    await scene.node_with_counters(suffix, [counter_set("gpu", units="100")], devices)


def _partition(kind: str, index: int, units: str) -> Object:
    """MIG and vGPU parts of one GPU exclude each other by their groups."""
    return device(
        f"{kind}-{index}", attributes={"kind": kind}, consumes=[consumption("gpu", groups=[kind], units=units)]
    )


def _request(scene: NamespaceFixture, kind: str) -> Object:
    fields: dict[str, Any] = {"capacity": {"requests": {MEMORY: "10Gi"}}} if kind == SHARED else {}
    return request("gpu", scene.name, f'{scene.attribute("kind")} == "{kind}"', **fields)
