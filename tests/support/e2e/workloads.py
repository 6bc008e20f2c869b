"""PodGroups in a scene."""

from typing import Any

from tests.controlplane import objects
from tests.controlplane.resources import DEVICE_CLASSES, POD_GROUPS, PODS
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture


async def create_group(scene: NamespaceFixture, name: str, **fields: Any) -> str:
    """Creates a PodGroup (see objects.pod_group); returns its UID."""
    created = await scene.api.create(POD_GROUPS, objects.pod_group(name, scene.name, **fields))
    return str(created["metadata"]["uid"])


async def delete_group(scene: NamespaceFixture, name: str) -> None:
    """Deletes a PodGroup and waits until it is gone."""
    await scene.api.delete(POD_GROUPS, name, scene.name)

    async def gone() -> bool:
        return all(each["metadata"]["name"] != name for each in await scene.api.list(POD_GROUPS, scene.name))

    await scene.api.wait_for(gone, SECONDS, f"PodGroup {name} is gone")


async def clear_groups(scene: NamespaceFixture) -> None:
    """Deletes the pods and PodGroups of the scene."""
    await scene.api.delete_collection(PODS, scene.name, grace_seconds=0)
    await scene.api.delete_collection(POD_GROUPS, scene.name)


async def member(scene: NamespaceFixture, group: str, name: str, **fields: Any) -> str:
    return await scene.pod(name, schedulingGroup={"podGroupName": group}, **fields)


async def backed(scene: NamespaceFixture, *expressions: str) -> str:
    """Creates a class of the driver's devices that backs an extended resource; returns the name of the resource."""
    resource = f"{scene.name}.example.com/gpu"
    every = (f'device.driver == "{scene.driver}"', *expressions)
    backing = objects.device_class(f"{scene.name}-backing", *every, extendedResourceName=resource)
    await scene.api.create(DEVICE_CLASSES, backing)
    return resource


async def bound_members(scene: NamespaceFixture) -> dict[str, str]:
    """The node of each pod that is bound."""
    found = await scene.api.list(PODS, scene.name)
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in found if each["spec"].get("nodeName")}
