"""The extender is killed in the middle of a bind: what it wrote is found and finished, or cleaned up."""

from contextlib import AbstractAsyncContextManager

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import NODES
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.service_rights import without_right

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

REFUSED = 'cannot create resource "pods/binding"'


def binding_forbidden(world: InstalledExtender) -> AbstractAsyncContextManager[None]:
    """Inside, the extender can allocate claims but post no Binding."""
    return without_right(world, "create", "", "pods/binding", REFUSED)


async def allocated_and_refused(scene: NamespaceFixture, world: InstalledExtender, pod: str) -> str:
    """Waits until the pod's claim is allocated and its Binding was refused; returns the device."""

    async def device_held() -> str:
        return "".join(await scene.allocated()) if await refused() else ""

    async def refused() -> bool:
        text = f"{scene.name}/{pod}"
        return any(REFUSED in str(each) and text in str(each) for each in world.log_lines())

    return await scene.api.wait_for(device_held, SECONDS, "the claim is allocated and the Binding refused")


async def test_extender_killed_between_allocation_and_binding_binds_on_the_same_device(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    for suffix in ("a", "b", "c"):
        await scene.node_with_devices(suffix, device("gpu-0"), device("gpu-1"))
    await scene.template("one")
    async with binding_forbidden(world):
        await scene.pod("worker", template="one")
        held = await allocated_and_refused(scene, world, "worker")
        world.extender.kill()
        assert await scene.node_of("worker") == ""
    await world.extender.start()
    assert await scene.wait_until_bound("worker") == held.partition("/")[0]
    assert await scene.allocated() == [held]


async def test_pod_deleted_while_the_extender_is_down_leaves_nothing_allocated(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    async with binding_forbidden(world):
        await scene.pod("worker", template="one")
        await allocated_and_refused(scene, world, "worker")
        world.extender.kill()
        await scene.delete_pod("worker")
        await scene.wait_until_free()
    await world.extender.start()
    await scene.pod("next", template="one")
    assert await scene.wait_until_bound("next") == node


async def test_devices_on_a_node_that_became_unfit_before_the_binding_are_given_back(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The pod has its claim allocated for a node that takes no pods any more; it gets a device of another node."""
    for suffix in ("a", "b"):
        await scene.node_with_devices(suffix, device("gpu-0"))
    await scene.template("one")
    async with binding_forbidden(world):
        await scene.pod("worker", template="one")
        held = await allocated_and_refused(scene, world, "worker")
        await scene.api.patch(NODES, held.partition("/")[0], {"spec": {"unschedulable": True}})

        async def elsewhere() -> bool:
            return await scene.allocated() not in ([], [held])

        # A bind that was decided before the node became unfit has ended by then.
        await scene.api.wait_for(elsewhere, SECONDS, "the claim is allocated for another node")
    node = await scene.wait_until_bound("worker")
    assert node != held.partition("/")[0]
    assert await scene.allocated() == [f"{node}/gpu-0"]
