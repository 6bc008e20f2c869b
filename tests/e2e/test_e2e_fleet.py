"""Many pods at once on a full cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from dra_extender.runtime.supervision import running_task

from tests.controlplane.objects import Object
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.checker import expect_sound, forbidden_findings
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

NODES = 6
GPUS = ("gpu-0", "gpu-1")
PARTITIONS = 5
FITTING = NODES * len(GPUS) * PARTITIONS
SURPLUS = 30
FLEET_SECONDS = 120.0


async def pods(scene: NamespaceFixture) -> tuple[list[Object], list[Object]]:
    found = await scene.api.list(PODS, scene.name)
    return [each for each in found if each["spec"].get("nodeName")], [
        each for each in found if not each["spec"].get("nodeName")
    ]


async def placed(scene: NamespaceFixture, bound: int, waiting: int) -> bool:
    """Whether so many pods are bound, and so many wait with a reason of ours."""
    ready, rest = await pods(scene)
    told = [each for each in rest if 'request "gpu": matching devices are in use' in reason(each)]
    return (len(ready), len(told), len(rest)) == (bound, waiting, waiting)


def reason(pod: Object) -> str:
    return " ".join(each.get("message", "") for each in pod["status"].get("conditions", ()))


@asynccontextmanager
async def always_sound(scene: NamespaceFixture) -> AsyncIterator[None]:
    """Inside, rules that must hold at every moment are checked over and over; nothing broke them."""
    broken: list[str] = []

    async def watch() -> None:
        while True:
            broken.extend(str(each) for each in await forbidden_findings(scene.api))
            await asyncio.sleep(1)

    async with running_task(watch()):
        yield
    assert broken == []


async def test_every_pod_that_fits_is_bound_and_the_rest_follow_as_devices_are_freed(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """No device is in two claims at any time, and nothing is allocated when all pods are gone."""
    parts = [partition("mig", index, "20", gpu=name) for name in GPUS for index in range(PARTITIONS)]
    for index in range(NODES):
        await scene.node_with_counters(f"{index:02}", [gpu(name) for name in GPUS], parts)
    await scene.template("one")
    async with always_sound(scene):
        await asyncio.gather(*(scene.pod(f"pod-{index:03}", template="one") for index in range(FITTING + SURPLUS)))
        await scene.api.wait_for(
            lambda: placed(scene, FITTING, SURPLUS), FLEET_SECONDS, "all devices are in use and the rest wait"
        )
        await expect_sound(scene.api)
        bound, _ = await pods(scene)
        await asyncio.gather(*(scene.delete_pod(each["metadata"]["name"]) for each in bound[::2]))
        await scene.api.wait_for(
            lambda: placed(scene, FITTING, 0), FLEET_SECONDS, "pods that waited are bound as others go"
        )
        await expect_sound(scene.api)
        held = await scene.allocated()
        assert len(held) == len(set(held)) == FITTING
        await scene.api.delete_collection(PODS, scene.name, grace_seconds=0)
        await scene.wait_until_free(FLEET_SECONDS)
    assert [each for claim in await scene.api.list(RESOURCE_CLAIMS) for each in devices_of(claim)] == []
    assert await world.metric("unreadable_objects_total") == 0
    assert await world.metric("requests_total", outcome="internal") == 0
    assert await world.metric("requests_total", verb="bind", outcome="ok") >= FITTING
    # The shipped rights suffice, and the service says that it is well.
    assert [line for line in world.log_lines() if "forbidden" in str(line).lower()] == []
    assert (await world.page("/readyz?verbose")).splitlines()[-1] == "readyz check passed"
