"""Which of the nodes and devices that fit are chosen, with a real kube-scheduler between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.controlplane.objects import SCHEDULER_NAME, Object, consumption, counter_set, device, resource_claim
from tests.controlplane.options import default_gates
from tests.controlplane.resources import NODES, RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.allocator.building import preferring
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.scenes import Scenes
from tests.support.side_by_side import side_by_side

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SUFFIXES: Final = ("a", "b", "c", "d")


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


async def publish_alternatives(scene: NamespaceFixture) -> None:
    for suffix in SUFFIXES:
        model = "big" if suffix == "c" else "small"
        await scene.node_with_devices(suffix, device("gpu-0", attributes={"model": model}))


async def pod_lands_on_the_node_that_has_the_first_alternative(scene: NamespaceFixture) -> None:
    request = {"name": "gpu", "firstAvailable": [alternative(scene, "big"), alternative(scene, "small")]}
    await scene.api.create(RESOURCE_CLAIMS, resource_claim("either", scene.name, request))
    await scene.pod("worker", claim="either")
    assert await scene.wait_until_bound("worker") == f"{scene.name}-c"


async def publish_conditions(scene: NamespaceFixture) -> None:
    conditions: dict[str, Any] = {
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    for suffix in SUFFIXES:
        fields: dict[str, Any] = {} if suffix == "b" else conditions
        await scene.node_with_devices(suffix, device("gpu-0", **fields))


async def pod_lands_on_the_node_without_binding_conditions(scene: NamespaceFixture) -> None:
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    assert await scene.wait_until_bound("worker") == f"{scene.name}-b"


async def publish_partitions(scene: NamespaceFixture) -> None:
    for suffix in SUFFIXES:
        parts = [partition("mig", index, "20") for index in range(4)]
        await scene.node_with_counters(suffix, [gpu()], parts)


async def partitions_land_next_to_each_other(scene: NamespaceFixture) -> None:
    """Although kube-scheduler itself prefers nodes with fewer pods."""
    await scene.template("mig", f'{scene.attribute("type")} == "mig"')
    nodes = set()
    for number in range(4):
        await scene.pod(f"worker-{number}", template="mig")
        nodes.add(await scene.wait_until_bound(f"worker-{number}"))
    assert len(nodes) == 1


async def publish_roots(scene: NamespaceFixture) -> None:
    for suffix in SUFFIXES:
        roots = "xyxz" if suffix == "c" else "wxyz"
        gpus = (device(f"gpu-{index}", attributes={"root": root}) for index, root in enumerate(roots))
        await scene.node_with_devices(suffix, *gpus)


async def pod_lands_where_its_devices_agree_and_a_second_one_does_not_wait_for_that(scene: NamespaceFixture) -> None:
    """The API server stores the preference as it is written, and the allocation repeats it."""
    preferences = preferring(f"{scene.driver}/root")
    for name in ("near", "far"):
        request = {"name": "gpu", "exactly": {"deviceClassName": scene.name, "count": 2}}
        claim = resource_claim(name, scene.name, request, config=[preferences])
        stored = await scene.api.create(RESOURCE_CLAIMS, claim)
        assert stored["spec"]["devices"]["config"] == [preferences]
        await scene.pod(name, claim=name)
        await scene.wait_until_bound(name)
    assert await scene.node_of("near") == f"{scene.name}-c"
    allocation = (await scene.claim_of("near"))["status"]["allocation"]["devices"]
    assert [result["device"] for result in allocation["results"]] == ["gpu-0", "gpu-2"]
    assert allocation["config"] == [{"source": "FromClaim", **preferences}]


async def test_pods_land_on_the_nodes_that_the_extender_rates_highest(scene: NamespaceFixture, scenes: Scenes) -> None:
    rows = {
        publish_alternatives: pod_lands_on_the_node_that_has_the_first_alternative,
        publish_conditions: pod_lands_on_the_node_without_binding_conditions,
        publish_partitions: partitions_land_next_to_each_other,
        publish_roots: pod_lands_where_its_devices_agree_and_a_second_one_does_not_wait_for_that,
    }
    places = {row: await scenes.open(row.__name__) for row in rows.values()}
    async with published(scene, 4 * len(SUFFIXES)):
        for publish, row in rows.items():
            await publish(places[row])
    await side_by_side({row.__name__: row(place) for row, place in places.items()})


MEMORY: Final = {f"memory-slice-{number}": "1" for number in range(4)}


def cut_or_whole(gpu: str, *slices: str) -> Object:
    """The GPU as one device, or the partition of one slice."""
    kind, name = ("slice", f"{gpu}-{slices[0]}") if slices else ("whole", gpu)
    drawn = {each: MEMORY[each] for each in slices or MEMORY}
    return device(name, attributes={"type": kind}, consumes=[consumption(gpu, **drawn)])


async def whole_gpus_left_beside_three_slices(scene: NamespaceFixture, count: int) -> None:
    """Two nodes have two GPUs of four slices each, and the driver lists the first slice of each GPU before the second of any."""
    gpus = ("gpu-0", "gpu-1")
    slices = [cut_or_whole(gpu, name) for name in MEMORY for gpu in gpus]
    for suffix in ("a", "b"):
        sets = [counter_set(gpu, **MEMORY) for gpu in gpus]
        await scene.node_with_counters(suffix, sets, [*slices, *map(cut_or_whole, gpus)], cpu="8")
    for kind in ("slice", "whole"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    for name in (*(f"slice-{number}" for number in range(3)), *(f"whole-{number}" for number in range(count))):
        await scene.pod(name, template=name.partition("-")[0], cpu="1")
        await scene.wait_until_bound(name)
    await scene.pod("one-more", template="whole", cpu="1")
    await scene.wait_until_unschedulable("one-more")


async def test_slices_stay_on_one_gpu_and_whole_gpus_fit_that_the_in_tree_plugin_refuses(
    scenes: Scenes, world: InstalledExtender
) -> None:
    """The story of deploy/examples/20-slices-stay-on-one-gpu.yaml."""
    async with world.cluster.in_tree_scheduler(feature_gates=default_gates()):
        await side_by_side(
            {
                scheduler: whole_gpus_left_beside_three_slices(await scenes.open("slices", scheduler), count)
                for scheduler, count in ((SCHEDULER_NAME, 3), (IN_TREE, 1))
            }
        )
