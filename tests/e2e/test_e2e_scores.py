"""The real kube-scheduler puts pods on the nodes that the extender rates highest, among several that fit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.controlplane.objects import Object, device, resource_claim
from tests.controlplane.resources import NODES, RESOURCE_CLAIMS
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SUFFIXES = ("a", "b", "c", "d")


@asynccontextmanager
async def published(scene: NamespaceFixture, slices: int) -> AsyncIterator[None]:
    """What is created inside is known to kube-scheduler and extender behind it: the nodes, and so many slices.

    Each node has a pod without devices then.
    """

    async def seen(kind: str) -> float:
        return await scene.world.metric("watch_events_total", kind=kind, type="ADDED")

    before = {kind: await seen(kind) for kind in ("nodes", "resourceslices")}
    yield
    nodes = [each["metadata"]["name"] for each in await scene.api.list(NODES)]
    added = {"nodes": len(nodes), "resourceslices": slices}

    async def known() -> bool:
        return all([await seen(kind) >= before[kind] + number for kind, number in added.items()])

    await scene.api.wait_for(known, SECONDS, "the extender knows nodes and slices")
    for name in nodes:
        await scene.pod(f"on-{name}", nodeSelector={"kubernetes.io/hostname": name})
    for name in nodes:
        await scene.wait_until_bound(f"on-{name}")


def alternative(scene: NamespaceFixture, model: str) -> Object:
    selector = {"cel": {"expression": f'{scene.attribute("model")} == "{model}"'}}
    return {"name": model, "deviceClassName": scene.name, "count": 1, "selectors": [selector]}


async def test_pod_lands_on_the_node_that_has_the_first_alternative(scene: NamespaceFixture) -> None:
    async with published(scene, len(SUFFIXES)):
        for suffix in SUFFIXES:
            model = "big" if suffix == "c" else "small"
            await scene.node_with_devices(suffix, device("gpu-0", attributes={"model": model}))
    request = {"name": "gpu", "firstAvailable": [alternative(scene, "big"), alternative(scene, "small")]}
    await scene.api.create(RESOURCE_CLAIMS, resource_claim("either", scene.name, request))
    await scene.pod("worker", claim="either")
    assert await scene.wait_until_bound("worker") == f"{scene.name}-c"


async def test_pod_lands_on_the_node_without_binding_conditions(scene: NamespaceFixture) -> None:
    conditions: dict[str, Any] = {
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    async with published(scene, len(SUFFIXES)):
        for suffix in SUFFIXES:
            fields: dict[str, Any] = {} if suffix == "b" else conditions
            await scene.node_with_devices(suffix, device("gpu-0", **fields))
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    assert await scene.wait_until_bound("worker") == f"{scene.name}-b"


async def test_partitions_land_next_to_each_other(scene: NamespaceFixture) -> None:
    """Although kube-scheduler itself prefers nodes with fewer pods."""
    async with published(scene, 2 * len(SUFFIXES)):
        for suffix in SUFFIXES:
            parts = [partition("mig", index, "20") for index in range(4)]
            await scene.node_with_counters(suffix, [gpu()], parts)
    await scene.template("mig", f'{scene.attribute("type")} == "mig"')
    nodes = set()
    for number in range(4):
        await scene.pod(f"worker-{number}", template="mig")
        nodes.add(await scene.wait_until_bound(f"worker-{number}"))
    assert len(nodes) == 1
