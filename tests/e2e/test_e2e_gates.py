"""Earlier releases with their gates of alpha features on, and a policy: what 1.37 has by default is served there as well."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from tests.controlplane.objects import Object, device, taint_rule
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.planes import V1_34, V1_35, V1_36
from tests.controlplane.resources import RESOURCE_CLAIMS, Resource
from tests.support.e2e.fabric import ATTACHED, FakeDriver, allocated_claim, chosen_node, fabric
from tests.support.e2e.gpus import MODES_POLICY, gpu, partition
from tests.support.e2e.installed_extender import Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of
from tests.support.e2e.scenes import Scenes
from tests.support.e2e.workloads import backed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

EXTENDED_RESOURCES: Final = "DRAExtendedResource"
OFF_BEFORE_36: Final = (
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    EXTENDED_RESOURCES,
    "DRAPartitionableDevices",
)
TAINT_RULES: Final = {V1_34.release: "v1alpha3", V1_35.release: "v1alpha3", V1_36.release: "v1beta2"}
"""The version of DeviceTaintRules that each release serves if it is told to."""
TAINT: Final = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
TOLERATED: Final = {"key": "example.com/broken", "operator": "Exists"}


def with_gates(plane: ControlPlaneOptions, *gates: str) -> ControlPlaneOptions:
    served = {f"resource.k8s.io/{TAINT_RULES[plane.release]}": True}
    return replace(plane, feature_gates=dict.fromkeys(gates, True), runtime_config=served)


PLANES: Final = (
    with_gates(V1_36, "DRADeviceTaintRules"),
    with_gates(V1_35, "DRADeviceTaintRules", *OFF_BEFORE_36),
    with_gates(V1_34, *OFF_BEFORE_36),
)


@pytest.fixture(scope="module")
def setup(plane: ControlPlaneOptions, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """kube-scheduler leaves extended resources to the extender if this gate is on there, too; it needs no other one."""
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(MODES_POLICY)
    environment = {"DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy)}
    gates = {gate: on for gate, on in plane.gates.items() if gate == EXTENDED_RESOURCES}
    return Setup(environment=environment, scheduler_gates=gates)


async def node_with_gpu(scene: NamespaceFixture, partitions: Sequence[Object]) -> str:
    """A node with partitions of one GPU: 1.34 takes counters only beside the devices in their slice, later releases only apart."""
    if scene.world.cluster.options.release != V1_34.release:
        return await scene.node_with_counters("a", [gpu()], partitions)
    node = await scene.node("a")
    await scene.publish(scene.slice_of("a", node=node, counter_sets=[gpu()], devices=partitions))
    return node


async def counters_are_shared_by_partitions(scene: NamespaceFixture) -> None:
    parts = [partition("mig", 0, "60", groups=()), partition("mig", 1, "60", groups=())]
    node = await node_with_gpu(scene, parts)
    await scene.template("mig")
    await scene.pod("first", template="mig")
    assert await scene.wait_until_bound("first") == node
    await scene.pod("second", template="mig")
    await scene.wait_until_unschedulable("second", "shared counters are exhausted")


async def groups_of_the_policy_keep_modes_apart(scene: NamespaceFixture) -> None:
    node = await node_with_gpu(scene, [partition(kind, 0, "20", groups=()) for kind in ("mig", "vgpu")])
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    await scene.pod("mig", template="mig")
    assert await scene.wait_until_bound("mig") == node
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_unschedulable("vgpu", "compatibility groups in conflict")


async def capacity_is_shared_by_claims(scene: NamespaceFixture) -> None:
    shared = device("nic-0", capacity={"bandwidth": "10"}, allowMultipleAllocations=True)
    node = await scene.node_with_devices("a", shared)
    await scene.template("share", capacity={"requests": {f"{scene.driver}/bandwidth": "4"}})
    for name in ("first", "second"):
        await scene.pod(name, template="share")
        assert await scene.wait_until_bound(name) == node
    (result,) = (await scene.claim_of("first"))["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"bandwidth": "4"}
    await scene.pod("third", template="share")
    await scene.wait_until_unschedulable("third")


async def taints_keep_pods_away_unless_they_tolerate_them(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0", taints=[TAINT]))
    await scene.template("one")
    await scene.template("tolerant", tolerations=[TOLERATED])
    await scene.pod("waiting", template="one")
    await scene.wait_until_unschedulable("waiting", "matching devices are tainted")
    await scene.pod("tolerant", template="tolerant")
    assert await scene.wait_until_bound("tolerant") == node


async def taint_rules_keep_pods_away_until_they_are_deleted(scene: NamespaceFixture) -> None:
    version = TAINT_RULES[scene.world.cluster.options.release]
    rules = Resource(f"resource.k8s.io/{version}", "devicetaintrules", namespaced=False)
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    rule = taint_rule(scene.name, TAINT, version=rules.group_version, driver=scene.driver)
    await scene.api.create(rules, rule)
    try:
        await scene.pod("waiting", template="one")
        await scene.wait_until_unschedulable("waiting", "matching devices are tainted", again=True)
    finally:
        await scene.api.delete(rules, scene.name)
    assert await scene.wait_until_bound("waiting") == node


async def binds_wait_until_the_driver_reports_the_device_attached(scene: NamespaceFixture) -> None:
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["bindingConditions"] == [ATTACHED]
    await scene.wait_for_event("worker", f"waits for {ATTACHED}")
    assert await scene.node_of("worker") == ""
    await FakeDriver(scene).report(claim, ATTACHED)
    assert await scene.wait_until_bound("worker") == chosen_node(claim)


async def classes_back_extended_resources(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    resource = await backed(scene)
    await scene.pod("extended", extended={resource: "1"})
    assert await scene.wait_until_bound("extended") == node
    told = (await scene.read("extended"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert devices_of(await scene.api.get(RESOURCE_CLAIMS, told, scene.name)) == [f"{node}/gpu-0"]


@pytest.mark.parametrize("plane", PLANES, indirect=True, scope="module")
async def test_what_gates_switch_on_is_served(scenes: Scenes) -> None:
    await scenes.carry_out(
        counters_are_shared_by_partitions,
        groups_of_the_policy_keep_modes_apart,
        capacity_is_shared_by_claims,
        taints_keep_pods_away_unless_they_tolerate_them,
        taint_rules_keep_pods_away_until_they_are_deleted,
        binds_wait_until_the_driver_reports_the_device_attached,
        classes_back_extended_resources,
    )
