"""The claim of a running pod is deleted by its owner: the devices go to nobody else while the pod exists."""

import asyncio

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.installed_extender import InstalledExtender, page, total
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

QUIET_SECONDS = 3.0


async def strip_and_delete(scene: NamespaceFixture, claim: str) -> None:
    """What somebody who may write claims does where no admission policy refuses it."""
    await scene.api.delete(RESOURCE_CLAIMS, claim, scene.name)
    await scene.api.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": None}}, scene.name)

    async def gone() -> bool:
        return all(each["metadata"]["name"] != claim for each in await scene.api.list(RESOURCE_CLAIMS, scene.name))

    await scene.api.wait_for(gone, SECONDS, f"claim {claim} is gone")


@pytest.mark.parametrize("end", ["deleted", "over"])
async def test_device_of_a_deleted_claim_is_given_to_the_next_pod_when_the_first_ends(
    scene: NamespaceFixture, world: InstalledExtender, end: str
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    for name in ("first", "second"):
        await scene.claim(name)
    await scene.pod("first", claim="first")
    assert await scene.wait_until_bound("first") == node
    await scene.api.patch(PODS, "first", {"status": {"phase": "Running"}}, scene.name, subresource="status")

    await strip_and_delete(scene, "first")

    told = await scene.wait_for_event("first", "was deleted while this pod uses its devices")
    assert f"{scene.driver}/{node}/gpu-0" in told
    await scene.pod("second", claim="second")
    await scene.wait_until_unschedulable("second")
    await asyncio.sleep(QUIET_SECONDS)
    assert await scene.node_of("second") == ""
    assert total(await page(f"{world.extender.url}/metrics"), "dra_extender_orphaned_allocations", {}) == 1

    if end == "deleted":
        await scene.delete_pod("first")
    else:
        await scene.api.patch(PODS, "first", {"status": {"phase": "Failed"}}, scene.name, subresource="status")

    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node
    assert total(await page(f"{world.extender.url}/metrics"), "dra_extender_orphaned_allocations", {}) == 0
