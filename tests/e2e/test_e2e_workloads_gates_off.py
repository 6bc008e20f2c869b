"""API servers that know the KEPs and have their gates off: what needs them is off, said once, and ordinary claims are served."""

from dataclasses import replace
from typing import Any

import pytest

from tests.controlplane.objects import device, device_class
from tests.controlplane.planes import GATES_OFF, V1_36
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of
from tests.support.e2e.workloads import bound_members, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NOT_SERVED = {
    "compatibility-groups": "DRADeviceCompatibilityGroups",
    "binding-conditions": "DRADeviceBindingConditions",
    "partitionable-devices": "DRAPartitionableDevices",
    "consumable-capacity": "DRAConsumableCapacity",
}
PLACED_ONE_BY_ONE = "not served by this API server: pods are placed one by one"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
CLAIMS_OF_GROUPS = replace(
    GATES_OFF,
    feature_gates={"GenericWorkload": True, "DRAWorkloadResourceClaims": False},
    runtime_config={"scheduling.k8s.io/v1beta1": True},
)
EXTENDED = replace(V1_36, feature_gates={"DRAExtendedResource": False})
ALL_OFF = pytest.mark.parametrize("plane", [GATES_OFF], ids=["all"], indirect=True, scope="module")
CLAIMS_OF_GROUPS_OFF = pytest.mark.parametrize(
    "plane", [CLAIMS_OF_GROUPS], ids=["claims-of-groups"], indirect=True, scope="module"
)
EXTENDED_OFF = pytest.mark.parametrize("plane", [EXTENDED], ids=["extended"], indirect=True, scope="module")


async def backing(scene: NamespaceFixture) -> str:
    """A class that wants to back an extended resource, whose name this returns."""
    resource = f"{scene.driver}/gpu"
    wanted = device_class(f"{scene.name}-backing", f'device.driver == "{scene.driver}"', extendedResourceName=resource)
    await scene.api.create(DEVICE_CLASSES, wanted)
    return resource


@ALL_OFF
async def test_with_all_gates_off_ordinary_claims_are_bound_and_fields_that_are_dropped_count_for_nothing(
    scene: NamespaceFixture,
) -> None:
    """The binding conditions of the one, and counters and groups of the other, never reach the extender."""
    conditions: dict[str, Any] = {
        "bindingConditions": ["example.com/attached"],
        "bindingFailureConditions": ["example.com/failed"],
    }
    quick = await scene.node_with_devices("a", device("gpu-0", **conditions))
    cut = await scene.node_with_counters("b", [gpu()], mig_or_vgpu())
    for suffix in ("a", "b-devices"):
        stored = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-{suffix}")
        assert {key for each in stored["spec"]["devices"] for key in each} <= {"name", "attributes"}
    await scene.claim("named")
    await scene.template("mig", f'{scene.attribute("type")} == "mig"')
    for name, node in (("named", quick), ("cut", cut)):
        sources = {"claim": "named"} if name == "named" else {"template": "mig"}
        await scene.pod(name, nodeSelector={"kubernetes.io/hostname": node}, **sources)
    assert [await scene.wait_until_bound("named"), await scene.wait_until_bound("cut")] == [quick, cut]
    assert devices_of(await scene.claim_of("cut")) == [f"{cut}/gpu-0-mig-0"]


@ALL_OFF
async def test_with_all_gates_off_each_is_named_on_the_readiness_page_and_once_in_the_log(
    world: InstalledExtender,
) -> None:
    page = (await world.page("/readyz?verbose")).splitlines()
    for field, gate in NOT_SERVED.items():
        said = [line for line in page if line.startswith(f"[i]{field}: ")]
        assert len(said) == 1
        assert f"(gate {gate} is off)" in said[0]
        assert sum(field in line for line in world.log_lines()) == 1
    assert f"[i]pod-groups: {PLACED_ONE_BY_ONE}" in page
    assert [line["pod-groups"] for line in world.log_lines() if "pod-groups" in line] == [PLACED_ONE_BY_ONE]
    assert not any(line.startswith("[i]extended-resources") for line in page)


@ALL_OFF
async def test_with_all_gates_off_members_are_placed_one_by_one(scene: NamespaceFixture) -> None:
    """The API server drops the pod's group: one that finds no device keeps nobody else from being bound."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await member(scene, "team", "first", template="one")
    assert await scene.wait_until_bound("first") == node
    assert "schedulingGroup" not in (await scene.read("first"))["spec"]
    await member(scene, "team", "second", template="one")
    await scene.wait_until_unschedulable("second", "matching devices are in use")


@ALL_OFF
async def test_extended_resources_are_served_whatever_gates_are_off_as_theirs_is_locked(
    scene: NamespaceFixture,
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.pod("extended", extended={await backing(scene): "1"})
    assert await scene.wait_until_bound("extended") == node
    told = (await scene.read("extended"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert devices_of(await scene.stored_claim(told)) == [f"{node}/gpu-0"]


@CLAIMS_OF_GROUPS_OFF
async def test_groups_without_claims_are_gangs_whose_members_have_claims_of_their_own(scene: NamespaceFixture) -> None:
    """The API server drops the group's claims: what they were is generated for, and reserved for, each pod."""
    node = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await scene.template("one")
    await create_group(scene, "team", min_count=2, templates={"gpu": "one"})
    await member(scene, "team", "a", template="one")
    await scene.wait_until_unschedulable("a", "PodGroup")
    assert await bound_members(scene) == {}
    await member(scene, "team", "b", template="one")
    assert [await scene.wait_until_bound(name) for name in "ab"] == [node, node]
    claims = {name: await scene.claim_of(name) for name in "ab"}
    assert len({claim["metadata"]["uid"] for claim in claims.values()}) == 2
    for name, claim in claims.items():
        assert [(each["resource"], each["name"]) for each in claim["status"]["reservedFor"]] == [("pods", name)]


@CLAIMS_OF_GROUPS_OFF
async def test_a_claim_by_name_of_a_group_without_claims_is_reserved_for_each_pod(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim("shared")
    await create_group(scene, "team", claims={"gpu": "shared"})
    for name in "ab":
        await member(scene, "team", name, claim="shared")
    for name in "ab":
        await scene.wait_until_bound(name)
    reserved = (await scene.stored_claim("shared"))["status"]["reservedFor"]
    assert sorted((each["resource"], each["name"]) for each in reserved) == [("pods", "a"), ("pods", "b")]
    assert not any(
        line.startswith("[i]pod-groups") for line in (await scene.world.page("/readyz?verbose")).splitlines()
    )


@EXTENDED_OFF
async def test_without_extended_resources_of_classes_nodes_that_list_them_are_left(scene: NamespaceFixture) -> None:
    """The explicit name backs nothing, for the API server drops it; the implicit one kube-scheduler leaves to its plugin, which
    the extender replaces: neither is bound where nobody serves it, and no claim is made."""
    await scene.node_with_devices("a", device("gpu-0"))
    explicit = await backing(scene)
    implicit = f"{IMPLICIT}{scene.name}-backing"
    page = (await scene.world.page("/readyz?verbose")).splitlines()
    (said,) = [line for line in page if line.startswith("[i]extended-resources: ")]
    assert "(gate DRAExtendedResource is off)" in said
    assert sum("extended-resources" in line for line in scene.world.log_lines()) == 1
    await scene.pod("explicit", extended={explicit: "1"})
    await scene.pod("implicit", extended={implicit: "1"})
    await scene.wait_until_unschedulable("explicit", f"Insufficient {explicit}")
    await scene.wait_until_unschedulable("implicit", "cannot fit resource")
    listed = await scene.node("b", extended={explicit: "1", implicit: "1"})
    assert [await scene.wait_until_bound(name) for name in ("explicit", "implicit")] == [listed, listed]
    assert list(await scene.api.list(RESOURCE_CLAIMS, scene.name)) == []
