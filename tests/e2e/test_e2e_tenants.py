"""Whatever the user of one namespace writes, the pods of another are scheduled, and the attacker reads why its own are not."""

import asyncio

import pytest

from tests.controlplane import attacks, objects
from tests.controlplane.attacks import ATTACKS, Attack
from tests.controlplane.resources import NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.namespace_fixture import NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

_ATTACKERS = 10
_VICTIMS = 12


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.name.replace(" ", "-"))
async def test_pods_of_another_namespace_are_bound_beside_an_attack(scene: NamespaceFixture, attack: Attack) -> None:
    node = await scene.node("a")
    await scene.api.create(RESOURCE_SLICES, scene.slice_of("a", node=node, devices=attacks.devices()))
    await scene.template("one")
    attacker = f"{scene.name}-attacker"
    await scene.api.create(NAMESPACES, objects.namespace(attacker))
    process = scene.world.extender.pid
    try:
        for number in range(_ATTACKERS):
            await scene.api.create(RESOURCE_CLAIMS, attack.claim(number, attacker, scene.name, scene.driver))
            await scene.api.create(PODS, attacks.pod(number, attacker))
        await scene.api.wait_for(lambda: _was_tried(scene, attacker), 60.0, "kube-scheduler has tried an attacking pod")
        for index in range(_VICTIMS):
            await scene.pod(f"victim-{index}", template="one")
        found = await asyncio.gather(*(scene.wait_until_bound(f"victim-{index}") for index in range(_VICTIMS)))
        assert found == [node] * _VICTIMS
        assert all(not each["spec"].get("nodeName") for each in await scene.api.list(PODS, attacker))
        assert scene.world.extender.pid == process
        assert (await scene.world.page("/readyz")).strip() == "ok"
    finally:
        await scene.api.delete_collection(PODS, attacker, grace_seconds=0)
        await scene.api.delete_collection(RESOURCE_CLAIMS, attacker)


async def _was_tried(scene: NamespaceFixture, namespace: str) -> bool:
    pods = await scene.api.list(PODS, namespace)
    return any(each["type"] == "PodScheduled" for pod in pods for each in pod["status"].get("conditions", ()))
