"""Slices with devices beside their counter sets: what 1.34 has, and what is left of it after an upgrade.

Later API servers refuse to create such a slice, so it is put into etcd as the older one left it there.
"""

import base64
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import Object
from tests.controlplane.planes import V1_34, V1_35
from tests.controlplane.resources import RESOURCE_SLICES
from tests.support.e2e.gpus import MODES_POLICY, gpu, partition
from tests.support.e2e.installed_extender import InstalledExtender, Setup, shipped_configuration
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture, refusal

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

COUNTERS = {"DRAPartitionableDevices": True}
NORMAL = pytest.mark.parametrize("plane", [replace(V1_34, feature_gates=COUNTERS)], indirect=True, scope="module")
LEFT_OVER = pytest.mark.parametrize("plane", [replace(V1_35, feature_gates=COUNTERS)], indirect=True, scope="module")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(MODES_POLICY)
    return Setup(environment={"DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy)})


async def publish(scene: NamespaceFixture) -> str:
    """A node with one GPU in one slice, as the HackMD proposal draws it, and a template for each kind of partition."""
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    node = await scene.node("a")
    partitions = [
        partition("mig", 0, "60", groups=()),
        partition("mig", 1, "60", groups=()),
        partition("vgpu", 0, "20", groups=()),
    ]
    both = scene.slice_of("both", node=node, counter_sets=[gpu()], devices=partitions)
    if scene.world.cluster.options.release == V1_34.release:
        await scene.publish(both)
    else:
        refused = await refusal(scene.api, RESOURCE_SLICES, both)
        assert "only one of `sharedCounters` or `devices` is allowed" in str(refused)
        await put_slice(scene.world.cluster, both)
    served = (await scene.api.get(RESOURCE_SLICES, f"{scene.name}-both"))["spec"]
    assert (len(served["devices"]), len(served["sharedCounters"])) == (3, 1)
    return node


@NORMAL
async def test_devices_beside_counters_are_allocated_by_counters_and_by_groups_of_the_policy(
    scene: NamespaceFixture,
) -> None:
    node = await publish(scene)
    await scene.pod("first", template="mig")
    assert await scene.wait_until_bound("first") == node
    await scene.pod("other", template="vgpu")
    await scene.wait_until_unschedulable("other", "compatibility groups in conflict")
    await scene.delete_pod("other")
    await scene.pod("second", template="mig")
    await scene.wait_until_unschedulable("second", "shared counters are exhausted")
    await scene.delete_pod("first")
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node


@LEFT_OVER
async def test_what_is_left_of_them_after_an_upgrade_is_served_where_the_administrator_says_so(
    scene: NamespaceFixture, world: InstalledExtender, tmp_path: Path
) -> None:
    """Otherwise it counts for its counters alone, as in upstream's scheduler of that release, until the driver publishes anew."""
    name = "beside-scheduler"
    node = await publish(scene)
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", "no devices on the node")
    always = {"DRA_EXTENDER_SCHEDULING__DEVICES_BESIDE_COUNTERS": "always"}
    async with ExtenderProcess(tmp_path, world.kubeconfig, environment=always, name="beside") as extender:
        await world.cluster.start_scheduler(shipped_configuration(extender.url, name), name)
        await scene.pod("served", template="mig", scheduler=name)
        assert await scene.wait_until_bound("served") == node
        await scene.pod("second", template="mig", scheduler=name)
        await scene.wait_until_unschedulable("second", "shared counters are exhausted")
        await world.cluster.stop_scheduler(name)
    await scene.delete_pod("served")
    await scene.wait_until_free()
    await scene.api.delete(RESOURCE_SLICES, f"{scene.name}-both")
    pool = {"node": node, "generation": 2, "slice_count": 2}
    await scene.publish(
        scene.slice_of("counters", counter_sets=[gpu()], **pool),
        scene.slice_of("devices", devices=[partition("mig", 0, "60", groups=())], **pool),
    )
    assert await scene.wait_until_bound("mig", PROMPT_SECONDS) == node


_SECONDS: Final = 60.0


async def put_slice(cluster: ControlPlane, published: Object) -> None:
    """Store a slice that this API server refuses to create; it serves and watches it all the same."""
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    stored = {**published, "metadata": {**published["metadata"], **metadata}}
    entry = {"key": f"/registry/resourceslices/{stored['metadata']['name']}", "value": json.dumps(stored)}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in entry.items()}
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{cluster.layout.etcd_url}/v3/kv/put", json=encoded) as answer,
    ):
        answer.raise_for_status()
