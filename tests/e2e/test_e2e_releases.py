"""Older API servers, and one with its gates off: what they drop is noticed and said once, and pods are placed by what is left."""

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.controlplane.objects import device, device_class
from tests.controlplane.planes import GATES_OFF, V1_34, V1_35, V1_36
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.workloads import clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NOT_SERVED: Final = {
    "compatibility-groups": "DRADeviceCompatibilityGroups",
    "binding-conditions": "DRADeviceBindingConditions",
    "partitionable-devices": "DRAPartitionableDevices",
    "consumable-capacity": "DRAConsumableCapacity",
}
ONE_BY_ONE: Final = "not served by this API server: pods are placed one by one"
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
WITHOUT_EXTENDED_RESOURCES: Final = replace(V1_36, feature_gates={"DRAExtendedResource": False})
WITHOUT_CLAIMS_OF_GROUPS: Final = replace(
    GATES_OFF,
    feature_gates={"GenericWorkload": True, "DRAWorkloadResourceClaims": False},
    runtime_config={"scheduling.k8s.io/v1beta1": True},
)


async def backing(scene: NamespaceFixture) -> str:
    """A class that wants to back an extended resource, whose name this returns."""
    resource = f"{scene.driver}/gpu"
    wanted = device_class(f"{scene.name}-backing", f'device.driver == "{scene.driver}"', extendedResourceName=resource)
    await scene.api.create(DEVICE_CLASSES, wanted)
    return resource


async def said_on_page(world: InstalledExtender, field: str) -> str:
    """What the readiness page, which stays ready, says of a field that is not served; the log says it once."""
    lines = (await world.page("/readyz?verbose")).splitlines()
    (said,) = [line for line in lines if line.startswith(f"[i]{field}: ")]
    assert sum(field in line for line in world.log_lines()) == 1
    return said


async def members_are_placed_one_by_one(scene: NamespaceFixture) -> None:
    """What fits is bound, whatever becomes of the others."""
    assert ONE_BY_ONE in await said_on_page(scene.world, "pod-groups")
    node = await scene.node_with_devices("members", device("card-0", attributes={"type": "card"}))
    await scene.template("card", f'{scene.attribute("type")} == "card"')
    await member(scene, "team", "first", template="card")
    assert await scene.wait_until_bound("first") == node
    assert [each["resource"] for each in (await scene.claim_of("first"))["status"]["reservedFor"]] == ["pods"]
    assert "schedulingGroup" not in (await scene.read("first"))["spec"] or scene.world.cluster.options == V1_36
    await member(scene, "team", "second", template="card")
    await scene.wait_until_unschedulable("second", "matching devices are in use")


@pytest.mark.parametrize("plane", [V1_35, V1_34], indirect=True, scope="module")
async def test_claims_are_served_without_counters_and_extended_resources_left_to_nodes_that_list_them(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """A device is allocated, released and allocated again. kube-scheduler checks extended resources, and no claim is made."""
    assert "not served" in await said_on_page(world, "partitionable-devices")
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("first", template="one")
    assert await scene.wait_until_bound("first") == node
    await scene.pod("second", template="one")
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    await scene.delete_pod("first")
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node
    assert await scene.allocated() == [f"{node}/gpu-0"]
    assert await world.metric("stripped_fields_total") == 0
    await scene.delete_pod("second")
    await scene.wait_until_free()

    assert "not served" in await said_on_page(world, "extended-resources")
    resource = await backing(scene)
    await scene.pod("extended", extended={resource: "1"})
    await scene.wait_until_unschedulable("extended", f"Insufficient {resource}")
    listed = await scene.node("b", extended={resource: "1"})
    assert await scene.wait_until_bound("extended") == listed
    assert await scene.allocated() == []


@pytest.mark.parametrize("plane", [V1_36], indirect=True, scope="module")
async def test_counters_alone_decide_without_groups_and_members_are_placed_one_by_one(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The API server strips the groups without a word; both modes share a GPU as before the KEP."""
    words = "not served by this API server (behaves as 1.36): drivers cannot publish groups"
    assert await said_on_page(world, "compatibility-groups") == f"[i]compatibility-groups: {words}"
    metrics = (await world.page("/metrics")).splitlines()
    assert 'dra_extender_field_served{field="compatibility-groups"} 0.0' in metrics
    assert 'dra_extender_field_served{field="partitionable-devices"} 1.0' in metrics
    node = await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    stored = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a-devices")
    assert all(set(each["consumesCounters"][0]) == {"counterSet", "counters"} for each in stored["spec"]["devices"])
    for kind in ("vgpu", "mig"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
        await scene.pod(kind, template=kind)
        assert await scene.wait_until_bound(kind) == node
    assert await scene.allocated() == [f"{node}/gpu-0-mig-0", f"{node}/gpu-0-vgpu-0"]
    await members_are_placed_one_by_one(scene)


@pytest.mark.parametrize("plane", [WITHOUT_EXTENDED_RESOURCES], indirect=True, scope="module")
async def test_without_extended_resources_of_classes_nodes_that_list_them_are_left(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The explicit name backs nothing, for the API server drops it; the implicit one kube-scheduler leaves to its plugin, which
    the extender replaces: neither is bound where nobody serves it, and no claim is made."""
    await scene.node_with_devices("a", device("gpu-0"))
    explicit = await backing(scene)
    implicit = f"{IMPLICIT}{scene.name}-backing"
    assert "(gate DRAExtendedResource is off)" in await said_on_page(world, "extended-resources")
    await scene.pod("explicit", extended={explicit: "1"})
    await scene.pod("implicit", extended={implicit: "1"})
    await scene.wait_until_unschedulable("explicit", f"Insufficient {explicit}")
    await scene.wait_until_unschedulable("implicit", "cannot fit resource")
    listed = await scene.node("b", extended={explicit: "1", implicit: "1"})
    assert [await scene.wait_until_bound(name) for name in ("explicit", "implicit")] == [listed, listed]
    assert list(await scene.api.list(RESOURCE_CLAIMS, scene.name)) == []


@pytest.mark.parametrize("plane", [GATES_OFF], indirect=True, scope="module")
async def test_with_gates_off_each_is_named_and_claims_and_extended_resources_are_bound(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Binding conditions of the one, and counters and groups of the other, never reach the extender, and count for nothing.

    The gate of extended resources is locked in this release.
    """
    for field, gate in NOT_SERVED.items():
        assert f"(gate {gate} is off)" in await said_on_page(world, field)
    assert not any(line.startswith("[i]extended") for line in (await world.page("/readyz?verbose")).splitlines())
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
    await scene.pod("named", claim="named", nodeSelector={"kubernetes.io/hostname": quick})
    await scene.pod("cut", template="mig", nodeSelector={"kubernetes.io/hostname": cut})
    assert [await scene.wait_until_bound("named"), await scene.wait_until_bound("cut")] == [quick, cut]
    assert devices_of(await scene.claim_of("cut")) == [f"{cut}/gpu-0-mig-0"]

    await scene.pod("extended", extended={await backing(scene): "1"}, nodeSelector={"kubernetes.io/hostname": cut})
    assert await scene.wait_until_bound("extended", SECONDS) == cut
    told = (await scene.read("extended"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    (backed,) = devices_of(await scene.stored_claim(told))
    assert backed.startswith(f"{cut}/gpu-0-")
    await members_are_placed_one_by_one(scene)


@pytest.mark.parametrize("plane", [WITHOUT_CLAIMS_OF_GROUPS], indirect=True, scope="module")
async def test_without_claims_of_groups_gangs_have_claims_of_their_own_pods(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The API server drops the group's claims: what they were is generated for, or reserved for, each pod."""
    node = await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(3)))
    await scene.template("one")
    await scene.claim("shared")
    await create_group(scene, "team", min_count=2, templates={"gpu": "one"})
    await create_group(scene, "sharing", claims={"gpu": "shared"})
    await member(scene, "team", "a", template="one")
    for name in ("c", "d"):
        await member(scene, "sharing", name, claim="shared")
    await scene.wait_until_unschedulable("a", "PodGroup")
    assert await scene.node_of("a") == ""
    await member(scene, "team", "b", template="one")
    assert [await scene.wait_until_bound(name) for name in "abcd"] == [node] * 4
    claims = {name: await scene.claim_of(name) for name in "ab"}
    assert len({claim["metadata"]["uid"] for claim in claims.values()}) == 2
    for name, claim in claims.items():
        assert [(each["resource"], each["name"]) for each in claim["status"]["reservedFor"]] == [("pods", name)]
    reserved = (await scene.stored_claim("shared"))["status"]["reservedFor"]
    assert sorted((each["resource"], each["name"]) for each in reserved) == [("pods", "c"), ("pods", "d")]
    assert not any(line.startswith("[i]pod-groups") for line in (await world.page("/readyz?verbose")).splitlines())
    await clear_groups(scene)
