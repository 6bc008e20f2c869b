"""Rules of Kubernetes 1.37.1 that decide whether a device may be had, on an API server that keeps the fields they read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.resources import DEVICE_TAINT_RULES, NODES, RESOURCE_SLICES
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.scenes import Scenes

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

SKIPS, COUNTS = "DRAOptionalNodeOperations", "DRANodeAllocatableResources"
SKIPPED = ["NodePrepareResources", "NodeUnprepareResources"]
LACKS_FEATURE = "node does not support the devices of the claim"
NOT_COUNTED = "nodeAllocatableResources of devices are not supported"


@asynccontextmanager
async def taint_rule(scene: NamespaceFixture, world: InstalledExtender, **spec: Any) -> AsyncIterator[None]:
    """Inside, there is a taint rule of which the extender has heard."""
    before = await world.metric("watch_events_total", kind="devicetaintrules", type="ADDED")
    rule = {
        "apiVersion": DEVICE_TAINT_RULES.group_version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": scene.name},
        "spec": {"taint": {"key": "example.com/broken", "effect": "NoSchedule"}, **spec},
    }
    kept = await scene.api.create(DEVICE_TAINT_RULES, rule)
    assert kept["spec"].get("deviceSelector") == spec.get("deviceSelector")
    await world.wait_for_metric("watch_events_total", before + 1, kind="devicetaintrules", type="ADDED")
    try:
        yield
    finally:
        await scene.api.delete(DEVICE_TAINT_RULES, scene.name)


async def test_taint_rule_with_an_empty_selector_keeps_every_pod_away_and_one_without_selector_none(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await scene.template("one")
    async with taint_rule(scene, world):
        await scene.pod("free", template="one")
        assert await scene.wait_until_bound("free") == node
    async with taint_rule(scene, world, deviceSelector={}):
        await scene.pod("waiting", template="one")
        await scene.wait_until_unschedulable("waiting", "matching devices are tainted", again=True)
    assert await scene.wait_until_bound("waiting") == node


async def declare(scene: NamespaceFixture, node: str, feature: str) -> None:
    kept = await scene.api.patch(NODES, node, {"status": {"declaredFeatures": [feature]}}, subresource="status")
    assert kept["status"]["declaredFeatures"] == [feature]


async def claim_that_skips_node_operations_is_shared_only_on_nodes_that_declare_the_feature(
    scene: NamespaceFixture,
) -> None:
    able = await scene.node("able")
    await declare(scene, able, SKIPS)
    await scene.publish(scene.slice_of("net", allNodes=True, devices=[device("d")], skipNodeOperations=SKIPPED))
    await scene.claim("shared")
    await scene.pod("first", claim="shared")
    assert await scene.wait_until_bound("first") == able
    (result,) = (await scene.stored_claim("shared"))["status"]["allocation"]["devices"]["results"]
    assert result["skipNodeOperations"] == SKIPPED
    late = await scene.node("late")
    await scene.pod("second", claim="shared", nodeSelector={"kubernetes.io/hostname": late})
    await scene.wait_until_unschedulable("second", LACKS_FEATURE, again=True)
    await declare(scene, late, SKIPS)
    assert await scene.wait_until_bound("second") == late


async def device_that_counts_against_its_node_is_not_chosen(scene: NamespaceFixture) -> None:
    counted = device("cpus", nodeAllocatableResources={"cpu": {"mapping": {"deviceMultiplier": "4"}}})
    node = await scene.node("a")
    # The API server takes such a device of a node only from one that declares the feature, as far as its own watch has told it.
    await declare(scene, node, COUNTS)
    body = scene.slice_of("a", node=node, devices=[counted])
    published = await scene.api.wait_for(
        lambda: scene.api.create(RESOURCE_SLICES, body), SECONDS, "the API server takes the slice"
    )
    assert "nodeAllocatableResources" in published["spec"]["devices"][0]
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.wait_until_unschedulable("waiting", NOT_COUNTED, again=True)
    await scene.wait_for_event("waiting", "cpus counts against cpu of its node")
    published["spec"]["devices"] = [device("cpus")]
    await scene.api.replace(RESOURCE_SLICES, published)
    assert await scene.wait_until_bound("waiting") == node


async def test_devices_are_had_where_their_node_can_serve_them(scenes: Scenes) -> None:
    await scenes.carry_out(
        claim_that_skips_node_operations_is_shared_only_on_nodes_that_declare_the_feature,
        device_that_counts_against_its_node_is_not_chosen,
    )
