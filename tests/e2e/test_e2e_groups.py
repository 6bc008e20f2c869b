"""Compatibility groups (KEP-5963): who may share a GPU, decided by what was true at allocation."""

from pathlib import Path

import pytest
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import Object, amounts
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.driver import ATTACHED, FAILED, driving
from tests.support.e2e.gpus import gpu, mig_or_vgpu, partition
from tests.support.e2e.installed_extender import InstalledExtender, shipped_configuration
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

CONFLICT = "compatibility groups in conflict"
ORDERS = pytest.mark.parametrize(
    ("earlier", "later"),
    [pytest.param("vgpu", "mig", id="vgpu-before-mig"), pytest.param("mig", "vgpu", id="mig-before-vgpu")],
)
SKIPPED = "devices with compatibility groups are skipped"


async def cut(scene: NamespaceFixture, *suffixes: str) -> list[str]:
    """Nodes with one GPU each, and the templates `mig` and `vgpu`."""
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    return [await scene.node_with_counters(suffix, [gpu()], mig_or_vgpu()) for suffix in suffixes]


async def test_mig_pod_is_refused_on_a_gpu_in_vgpu_mode_and_lands_on_another(scene: NamespaceFixture) -> None:
    await lands_on_another(scene, "vgpu", "mig")


async def test_vgpu_pod_is_refused_on_a_gpu_in_mig_mode_and_lands_on_another(scene: NamespaceFixture) -> None:
    await lands_on_another(scene, "mig", "vgpu")


async def lands_on_another(scene: NamespaceFixture, earlier: str, later: str) -> None:
    """The first of two GPUs is in the mode of the earlier pod."""
    first, second = await cut(scene, "a", "b")
    await scene.pod(earlier, template=earlier, nodeSelector={"kubernetes.io/hostname": first})
    assert await scene.wait_until_bound(earlier) == first
    await scene.pod(later, template=later)
    assert await scene.wait_until_bound(later) == second
    assert await scene.device_of(later) == f"{second}/gpu-0-{later}-0"


@ORDERS
async def test_a_pod_waits_for_the_only_gpu_and_is_bound_soon_after_the_pod_of_the_other_mode_is_gone(
    scene: NamespaceFixture, earlier: str, later: str
) -> None:
    """Its Event names both groups and who holds the GPU."""
    (node,) = await cut(scene, "a")
    await scene.pod(earlier, template=earlier)
    await scene.wait_until_bound(earlier)
    await scene.pod(later, template=later)
    message = await scene.wait_until_unschedulable(later, CONFLICT)
    assert message.startswith(f'0/1 nodes are available: 1 node(s): claim "gpu", request "gpu": {CONFLICT}.')
    note = await scene.wait_for_event(later, CONFLICT)
    assert f"declares [{later}] on counter set gpu-0" in note
    assert f"gpu-0-{earlier}-0 (allocated) has [{earlier}]" in note
    await scene.delete_pod(earlier)
    assert await scene.wait_until_bound(later, PROMPT_SECONDS) == node


async def test_a_third_group_brings_two_devices_together_and_is_then_what_all_need(scene: NamespaceFixture) -> None:
    """{x, z} and {y, z} share the GPU by z; afterwards {x, y} is refused although it has a group of each, and {z} is not."""
    groups = {"a": ("x", "z"), "b": ("y", "z"), "c": ("x", "y"), "d": ("z",)}
    for kind in groups:
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    parts = [partition(kind, 0, "20", groups=found) for kind, found in groups.items()]
    node = await scene.node_with_counters("a", [gpu()], parts)
    for kind in ("a", "b"):
        await scene.pod(kind, template=kind)
        assert await scene.wait_until_bound(kind) == node
    await scene.pod("c", template="c")
    await scene.wait_until_unschedulable("c", CONFLICT)
    assert "together they leave [z]" in await scene.wait_for_event("c", CONFLICT)
    await scene.pod("d", template="d")
    assert await scene.wait_until_bound("d") == node
    await scene.delete_pod("d")
    await scene.delete_pod("b")
    await scene.wait_until_bound("c", PROMPT_SECONDS)


async def test_groups_are_kept_in_the_annotation_alone_by_a_server_without_the_field(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Its schema does not have `results[].compatibilityGroups`, so that it is not written, and the allocation is written once."""
    await cut(scene, "a")
    before = await world.metric("claim_writes_total", step="allocate")
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_bound("vgpu")
    claim = await scene.claim_of("vgpu")
    assert "compatibilityGroups" not in claim["status"]["allocation"]["devices"]["results"][0]
    assert '"vgpu"' in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    assert await world.metric("claim_writes_total", step="allocate") == before + 1
    assert await world.metric("stripped_fields_total", field="compatibilityGroups") == 0
    assert "[i]allocation-groups" not in await world.page("/readyz?verbose")


async def test_groups_edited_after_an_allocation_do_not_change_what_was_allocated(scene: NamespaceFixture) -> None:
    """The snapshot on the claim counts; when the administrator removes it, the live slice does."""
    (node,) = await cut(scene, "a")
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_bound("vgpu")
    claim = await scene.claim_of("vgpu")
    assert '"vgpu"' in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    slices = f"{scene.name}-a-devices"
    published = await scene.api.get(RESOURCE_SLICES, slices)
    published["spec"]["devices"] = [
        partition(kind, index, share, groups=["mig"])
        for kind, index, share in (("mig", 0, "20"), ("mig", 1, "20"), ("vgpu", 0, "50"), ("vgpu", 1, "50"))
    ]
    await scene.api.replace(RESOURCE_SLICES, published)
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", CONFLICT)
    await scene.wait_for_event("mig", "gpu-0-vgpu-0 (allocated) has [vgpu]")
    bare = {"metadata": {"annotations": {SNAPSHOT_ANNOTATION: None}}}
    await scene.api.patch(RESOURCE_CLAIMS, claim["metadata"]["name"], bare, scene.name)
    assert await scene.wait_until_bound("mig", PROMPT_SECONDS) == node


async def test_devices_with_groups_are_skipped_while_groups_are_switched_off(
    scene: NamespaceFixture, world: InstalledExtender, tmp_path: Path
) -> None:
    """As KEP-5963 has it: the rest of the pool is used."""
    name = "groups-off-scheduler"
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    plain = partition("mig", 0, "20", groups=())
    node = await scene.node_with_counters("a", [gpu()], [plain, partition("mig", 1, "20"), partition("vgpu", 0, "50")])
    off = {"DRA_EXTENDER_FEATURES__COMPATIBILITY_GROUPS": "false"}
    async with ExtenderProcess(tmp_path, world.kubeconfig, environment=off, name="groups-off") as extender:
        await world.cluster.start_scheduler(shipped_configuration(extender.url, name), name)
        await scene.pod("mig", template="mig", scheduler=name)
        await scene.pod("vgpu", template="vgpu", scheduler=name)
        assert await scene.wait_until_bound("mig") == node
        assert await scene.device_of("mig") == f"{node}/gpu-0-mig-0"
        await scene.wait_until_unschedulable("vgpu", SKIPPED)
        await world.cluster.stop_scheduler(name)


async def test_groups_off_and_on_again_with_holders_and_with_shares_in_flight(
    scene: NamespaceFixture, world: InstalledExtender, tmp_path: Path
) -> None:
    """What was allocated stays, and closes its counter set meanwhile; a share that waits for its device is bound all the same."""
    name, file = "groups-switched-scheduler", tmp_path / "settings.yaml"
    node = await scene.node_with_counters("a", [gpu("gpu-0"), gpu("gpu-1")], shared_and_plain())
    for kind in ("mps", "mig", "plain"):
        capacity = {"capacity": {"requests": {"memory": "2Gi"}}} if kind == "mps" else {}
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"', **capacity)
    await scene.claim("flying", f'{scene.attribute("type")} == "mps"', capacity={"requests": {"memory": "2Gi"}})
    file.write_text("features: {compatibility_groups: true}")
    arguments = ("--config", str(file))
    async with (
        driving(scene) as driver,
        ExtenderProcess(tmp_path, world.kubeconfig, extra=arguments, name="groups-switched") as extender,
    ):
        driver.idle.add("flying")
        await world.cluster.start_scheduler(shipped_configuration(extender.url, name), name)
        await scene.pod("holder", template="mps", scheduler=name)
        assert await scene.wait_until_bound("holder") == node
        await scene.pod("flying", claim="flying", scheduler=name)
        await scene.api.wait_for(lambda: shares(scene), SECONDS, "both shares are allocated")

        file.write_text("features: {compatibility_groups: false}")
        await extender.restart()
        await scene.pod("late", template="mps", scheduler=name)
        await scene.pod("mig", template="mig", scheduler=name)
        for pod in ("late", "mig"):
            await scene.wait_until_unschedulable(pod, SKIPPED)
        await scene.pod("plain", template="plain", scheduler=name)
        assert await scene.wait_until_bound("plain") == node
        assert await scene.device_of("plain") == f"{node}/gpu-1-plain-1"
        driver.idle.clear()
        assert await scene.wait_until_bound("flying") == node

        file.write_text("features: {compatibility_groups: true}")
        await extender.restart()
        assert await scene.wait_until_bound("late") == node
        await scene.wait_until_unschedulable("mig", CONFLICT)
        for pod in ("holder", "flying", "late"):
            await scene.delete_pod(pod)
        assert await scene.wait_until_bound("mig") == node
        await world.cluster.stop_scheduler(name)


def shared_and_plain() -> list[Object]:
    """A shared partition with a group and a condition to wait for, one in another group, and one without groups on each GPU."""
    shared = partition("mps", 0, "20")
    shared |= {
        "allowMultipleAllocations": True,
        "capacity": amounts({"memory": "8Gi"}),
        "bindsToNode": True,
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
    }
    plain = [partition("plain", index, "20", gpu=f"gpu-{index}", groups=()) for index in range(2)]
    return [shared, partition("mig", 0, "20"), *plain]


async def shares(scene: NamespaceFixture) -> bool:
    """Whether two claims have a share of the shared partition."""
    return [each.endswith("/gpu-0-mps-0") for each in await scene.allocated()] == [True, True]
