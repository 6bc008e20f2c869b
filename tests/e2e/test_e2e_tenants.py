"""Whatever the user of one namespace writes, pods of another are scheduled, and the author reads why the own ones are not."""

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from tests.controlplane import attacks, objects
from tests.controlplane.attacks import ATTACKS, Attack
from tests.controlplane.resources import NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import Row, Scenes

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ATTACKERS: Final = 10
VICTIMS: Final = 12
CONTAINERS: Final = 1_500
ALTERNATIVES: Final = 8
REQUESTS: Final = 32
CLAIMS: Final = 17
MUCH: Final = "more is asked for than is looked at"
BOUND: Final = 20_000
PADDING: Final = "y" * 9_600
COUNT: Final = 8


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(environment={"DRA_EXTENDER_SCHEDULING__NAMESPACE_CLAIM_BYTES": str(BOUND)})


def attacked_by(attack: Attack) -> Row:
    """Pods of one namespace that cost much and fit nowhere, beside pods of another one."""

    async def row(scene: NamespaceFixture) -> None:
        node = await scene.node("a")
        await scene.api.create(RESOURCE_SLICES, scene.slice_of("a", node=node, devices=attacks.devices()))
        await scene.template("one")
        attacker = f"{scene.name}-attacker"
        await scene.api.create(NAMESPACES, objects.namespace(attacker))
        try:
            for number in range(ATTACKERS):
                await scene.api.create(RESOURCE_CLAIMS, attack.claim(number, attacker, scene.name, scene.driver))
                await scene.api.create(PODS, attacks.pod(number, attacker))
            await scene.api.wait_for(lambda: was_tried(scene, attacker), SECONDS, "kube-scheduler has tried a pod")
            for index in range(VICTIMS):
                await scene.pod(f"victim-{index}", template="one")
            found = await asyncio.gather(*(scene.wait_until_bound(f"victim-{index}") for index in range(VICTIMS)))
            assert found == [node] * VICTIMS
            assert all(not each["spec"].get("nodeName") for each in await scene.api.list(PODS, attacker))
        finally:
            await scene.api.delete_collection(PODS, attacker, grace_seconds=0)
            await scene.api.delete_collection(RESOURCE_CLAIMS, attacker)

    row.__name__ = attack.name
    return row


async def was_tried(scene: NamespaceFixture, namespace: str) -> bool:
    pods = await scene.api.list(PODS, namespace)
    return any(each["type"] == "PodScheduled" for pod in pods for each in pod["status"].get("conditions", ()))


async def thousands_of_containers_with_extended_resources(scene: NamespaceFixture) -> None:
    """Each init container could use the devices of each container: they are not matched."""
    node = await scene.node_with_devices("a", objects.device("gpu-0"), objects.device("gpu-1"))
    resource = f"deviceclass.resource.kubernetes.io/{scene.name}"
    body = objects.pod("many", scene.name)

    def containers(prefix: str, amount: str) -> list[objects.Object]:
        asked = {resource: amount}
        return [
            {"name": f"{prefix}{index}", "image": "x", "resources": {"requests": asked, "limits": asked}}
            for index in range(CONTAINERS)
        ]

    body["spec"] |= {"initContainers": containers("i", "1000"), "containers": containers("c", "1")}
    await scene.api.create(PODS, body)
    await scene.wait_for_event("many", "more devices than one claim may have", f"asks for {CONTAINERS} devices")
    await scene.template("one")
    await scene.pod("neighbour", template="one")
    assert await scene.wait_until_bound("neighbour") == node


async def claims_with_thousands_of_alternatives(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", objects.device("gpu-0"), objects.device("gpu-1"))
    alternative = {"deviceClassName": scene.name, "count": 1}
    alternatives = [{**alternative, "name": f"a{index}"} for index in range(ALTERNATIVES)]
    wishes = [{"name": f"r{index}", "firstAvailable": alternatives} for index in range(REQUESTS)]
    for index in range(CLAIMS):
        await scene.api.create(RESOURCE_CLAIMS, objects.resource_claim(f"c{index}", scene.name, *wishes))
    body = objects.pod("many", scene.name)
    body["spec"]["resourceClaims"] = [
        {"name": f"c{index}", "resourceClaimName": f"c{index}"} for index in range(CLAIMS)
    ]
    await scene.api.create(PODS, body)
    await scene.wait_for_event("many", MUCH, f"{CLAIMS * REQUESTS * ALTERNATIVES} requests and alternatives")
    await scene.template("one")
    await scene.pod("neighbour", template="one")
    assert await scene.wait_until_bound("neighbour") == node


async def test_pods_are_bound_beside_what_costs_much_and_fits_nowhere(scenes: Scenes, world: InstalledExtender) -> None:
    process = world.extender.pid
    attacked = (attacked_by(attack) for attack in ATTACKS)
    await scenes.carry_out(
        *attacked, thousands_of_containers_with_extended_resources, claims_with_thousands_of_alternatives
    )
    assert world.extender.pid == process
    assert (await world.page("/readyz")).strip() == "ok"


def hoarded(scene: NamespaceFixture, namespace: str, number: int) -> objects.Object:
    """A claim of 10 KiB for the one device with this number."""
    request = scene.request(f"{scene.attribute('number')} == {number}")
    config = {"opaque": {"driver": scene.driver, "parameters": {"padding": f"{number}{PADDING}"}}}
    return objects.resource_claim(f"hoarded-{number}", namespace, request, config=[config])


async def bound(scene: NamespaceFixture, namespace: str, numbers: Sequence[int]) -> list[str]:
    """Creates a pod for each of these claims; the devices when all of them are bound."""
    for number in numbers:
        await scene.api.create(PODS, objects.pod(f"pod-{number}", namespace, claims={"gpu": f"hoarded-{number}"}))

    async def done() -> bool:
        pods = await scene.api.list(PODS, namespace)
        return all(each["spec"].get("nodeName") for each in pods)

    await scene.api.wait_for(done, SECONDS, f"all pods of {namespace} are bound")
    claims = [await scene.api.get(RESOURCE_CLAIMS, f"hoarded-{number}", namespace) for number in numbers]
    return ["".join(devices_of(each)).rpartition("/")[2] for each in claims]


async def test_pods_with_claims_beyond_the_bound_get_their_devices_also_after_a_restart(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    devices = [objects.device(f"gpu-{number}", attributes={"number": number}) for number in range(3 * COUNT)]
    await scene.node_with_devices("a", *devices)
    hoarder = f"{scene.name}-hoarder"
    await scene.api.create(NAMESPACES, objects.namespace(hoarder))
    try:
        for number in range(2 * COUNT):
            await scene.api.create(RESOURCE_CLAIMS, hoarded(scene, hoarder, number))
        expected = [f"gpu-{number}" for number in range(2 * COUNT)]
        assert await bound(scene, hoarder, range(COUNT)) == expected[:COUNT]
        assert await world.metric("claims_kept_short") >= 2 * COUNT - 2
        assert await world.metric("claims_read_again_total", outcome="ok") > 0
        assert f"are in {hoarder}" in await world.page("/readyz?verbose")
        await scene.template("one", f"{scene.attribute('number')} >= {2 * COUNT}")
        for index in range(4):
            await scene.pod(f"neighbour-{index}", template="one")
        await asyncio.gather(*(scene.wait_until_bound(f"neighbour-{index}") for index in range(4)))
        # A list brings all of them at once.
        await world.extender.restart()
        assert await bound(scene, hoarder, range(COUNT, 2 * COUNT)) == expected[COUNT:]
        assert len(set(await scene.allocated())) == 4
        assert await world.metric("claims_kept_short") >= 2 * COUNT - 2
    finally:
        await scene.api.delete_collection(PODS, hoarder, grace_seconds=0)
        await scene.api.delete_collection(RESOURCE_CLAIMS, hoarder)
