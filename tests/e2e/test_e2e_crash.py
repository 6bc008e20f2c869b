"""The extender is killed in the middle of a bind: what it wrote is found and finished, or cleaned up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.controlplane.objects import device
from tests.controlplane.resources import CLUSTER_ROLES, NODES, Resource
from tests.support.e2e.scene import SECONDS, NamespaceFixture
from tests.support.e2e.world import ACCOUNT, EXTENDER_USER, NAMESPACE, InstalledExtender

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

REFUSED = 'cannot create resource "pods/binding"'
REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)


async def may_bind(world: InstalledExtender) -> bool:
    """Whether the API server would let the extender bind pods now."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    attributes = {"verb": "create", "resource": "pods", "subresource": "binding", "namespace": "default"}
    review = {
        "apiVersion": REVIEWS.group_version,
        "kind": "SubjectAccessReview",
        "spec": {"user": EXTENDER_USER, "groups": groups, "resourceAttributes": attributes},
    }
    return bool((await world.api.create(REVIEWS, review))["status"]["allowed"])


async def set_rules(world: InstalledExtender, rules: list[dict[str, Any]], bind: bool) -> None:
    """Gives the extender's role these rules and waits until the right to bind is there or gone."""
    await world.api.patch(CLUSTER_ROLES, ACCOUNT, {"rules": rules})

    async def effective() -> bool:
        return await may_bind(world) is bind

    await world.api.wait_for(effective, SECONDS, f"the right to bind is {'given' if bind else 'taken away'}")


@asynccontextmanager
async def binding_forbidden(world: InstalledExtender) -> AsyncIterator[None]:
    """Inside, the extender can allocate claims but post no Binding."""
    rules = (await world.api.get(CLUSTER_ROLES, ACCOUNT))["rules"]
    world.tolerated.append(REFUSED)
    await set_rules(world, [each for each in rules if each.get("resources") != ["pods/binding"]], bind=False)
    try:
        yield
    finally:
        await set_rules(world, rules, bind=True)


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
    node = await scene.wait_until_bound("worker")
    assert node != held.partition("/")[0]
    assert await scene.allocated() == [f"{node}/gpu-0"]
