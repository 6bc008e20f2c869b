"""A namespace whose claims take more than is kept has its pods bound to the devices that they ask for, and so has any other."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.controlplane import objects
from tests.controlplane.planes import V1_36
from tests.controlplane.resources import NAMESPACES, PODS, RESOURCE_CLAIMS
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of

pytestmark = [pytest.mark.e2e, pytest.mark.plane(V1_36), pytest.mark.asyncio(loop_scope="module")]

BOUND = 20_000
PADDING = "y" * 9_600
COUNT = 8


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(
        environment={"DRA_EXTENDER_SCHEDULING__NAMESPACE_CLAIM_BYTES": str(BOUND)},
    )


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
