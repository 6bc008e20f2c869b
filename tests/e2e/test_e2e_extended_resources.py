"""Extended resources that device classes back (KEP-5004), with the real kube-scheduler, whose NodeResourcesFit skips them."""

import asyncio
from functools import partial
from typing import Any, Final

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import Object, device
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import carry_out_apart
from tests.support.e2e.workloads import backed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


async def special(scene: NamespaceFixture, pod: str) -> Object:
    """The claim of which the pod was told."""
    told = (await scene.read(pod))["status"]["extendedResourceClaimStatus"]
    return await scene.stored_claim(told["resourceClaimName"])


async def claims(scene: NamespaceFixture) -> list[Object]:
    return list(await scene.api.list(RESOURCE_CLAIMS, scene.name))


def container(name: str, resource: str, amount: str, **fields: Any) -> Object:
    amounts = {resource: amount}
    return {"name": name, "image": "pause:3.10", "resources": {"requests": amounts, "limits": amounts}, **fields}


def shape(claim: Object, pod: Object) -> Object:
    """What a claim says beside names, times and devices; and what the pod says of it."""
    metadata = claim["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if key != SNAPSHOT_ANNOTATION}
    (owner,) = metadata["ownerReferences"]
    told = dict(pod["status"]["extendedResourceClaimStatus"])
    results = claim["status"]["allocation"]["devices"]["results"]
    return {
        "prefix": metadata["name"][:-5].removeprefix(pod["metadata"]["name"]),
        "suffix": len(metadata["name"].rpartition("-")[2]),
        "generated": metadata["generateName"] == metadata["name"][:-5],
        "annotations": annotations,
        "finalizers": metadata["finalizers"],
        "owner": {
            **owner,
            "name": owner["name"] == pod["metadata"]["name"],
            "uid": owner["uid"] == pod["metadata"]["uid"],
        },
        "spec": claim["spec"],
        "results": sorted((each["request"], sorted(each)) for each in results),
        "allocation": sorted(claim["status"]["allocation"]),
        "reserved": [{**each, "name": "", "uid": ""} for each in claim["status"]["reservedFor"]],
        "told": {**told, "resourceClaimName": told["resourceClaimName"] == metadata["name"]},
    }


async def test_claim_and_pod_status_are_what_the_in_tree_plugin_writes(scene: NamespaceFixture) -> None:
    """The same pod, once by each scheduler on a node of its own, with all kinds of containers."""
    async with scene.world.cluster.in_tree_scheduler():
        resource = await backed(scene)
        nodes = [await scene.node_with_devices(each, *(device(f"gpu-{index}") for index in range(6))) for each in "ab"]
        for node, scheduler in zip(nodes, ("dra-extender-scheduler", IN_TREE), strict=True):
            fields: dict[str, Any] = {
                "initContainers": [
                    container("first", resource, "3"),
                    container("side", resource, "1", restartPolicy="Always"),
                    container("last", resource, "4"),
                ],
                "nodeSelector": {"kubernetes.io/hostname": node},
            }
            await scene.pod(f"twin-{scheduler}", scheduler=scheduler, extended={resource: "2"}, **fields)
        ours, theirs = "twin-dra-extender-scheduler", f"twin-{IN_TREE}"
        assert [await scene.wait_until_bound(ours), await scene.wait_until_bound(theirs)] == nodes
    shapes = [shape(await special(scene, each), await scene.read(each)) for each in (ours, theirs)]
    assert shapes[0] == shapes[1]
    assert len(devices_of(await special(scene, ours))) == 5


async def waits_and_frees(scene: NamespaceFixture, *, implicit: bool) -> None:
    """kube-scheduler leaves the check to the plugin that the extender replaces."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    resource = await backed(scene)
    if implicit:
        resource = f"{IMPLICIT}{scene.name}-backing"
    await scene.pod("first", extended={resource: "1"})
    assert await scene.wait_until_bound("first") == node
    assert devices_of(await special(scene, "first")) == [f"{node}/gpu-0"]
    await scene.pod("second", extended={resource: "1"})
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    await scene.delete_pod("first")
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node

    async def one_claim() -> bool:
        return [each["metadata"]["annotations"][EXTENDED_CLAIM] for each in await claims(scene)] == ["true"]

    await scene.api.wait_for(one_claim, SECONDS, "the claim of the first pod is gone")


async def beside_a_device_plugin(scene: NamespaceFixture) -> None:
    """Four pods, two nodes with two each: where the plugin serves no claim is made, and a fifth pod fits nowhere."""
    resource = await backed(scene)
    plugin = await scene.node("plugin", extended={resource: "2"})
    devices = await scene.node_with_devices("devices", device("gpu-0"), device("gpu-1"))
    names = [f"pod-{index}" for index in range(4)]
    for name in names:
        await scene.pod(name, extended={resource: "1"})
    assert sorted(await asyncio.gather(*map(scene.wait_until_bound, names))) == sorted([plugin] * 2 + [devices] * 2)
    assert len(await claims(scene)) == 2
    assert await scene.allocated() == [f"{devices}/gpu-0", f"{devices}/gpu-1"]
    await scene.pod("fifth", extended={resource: "1"})
    await scene.wait_until_unschedulable("fifth", f"Insufficient {resource}")


async def beside_a_claim(scene: NamespaceFixture) -> None:
    """Both are decided together, and refused in words."""
    resource = await backed(scene)
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("more", extended={resource: "2"})
    await scene.wait_until_unschedulable("more", f'extended resource {resource} of container "main": ', again=True)
    assert await claims(scene) == []
    await scene.delete_pod("more")
    await scene.pod("both", template="one", extended={resource: "1"})
    await scene.wait_until_unschedulable("both", "no combination of devices fits", again=True)
    node = await scene.node_with_devices("b", device("gpu-0"), device("gpu-1"))
    assert await scene.wait_until_bound("both", PROMPT_SECONDS) == node
    assert await scene.allocated() == [f"{node}/gpu-0", f"{node}/gpu-1"]


async def test_pods_get_devices_for_extended_resources_and_free_them(scene: NamespaceFixture) -> None:
    await carry_out_apart(
        scene,
        {
            "explicit": partial(waits_and_frees, implicit=False),
            "implicit": partial(waits_and_frees, implicit=True),
            "plugin": beside_a_device_plugin,
            "claim": beside_a_claim,
        },
    )
