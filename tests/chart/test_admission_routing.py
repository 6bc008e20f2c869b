"""One allocator for each driver, enforced by policies of the chart on a real API server, with the in-tree scheduler as rival."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.chart.programs import Helm, Object
from tests.controlplane import objects
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import ControlPlane, KubectlError
from tests.controlplane.objects import device
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import NAMESPACES, PODS, RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, namespace_name

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

OURS = objects.SCHEDULER_NAME
DEVICES = 6
LABEL = "dra-extender.io/admission"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InstalledExtender]:
    """The service and its scheduler, and the in-tree scheduler with all its plugins."""
    workdir = tmp_path_factory.mktemp("extender")
    async with InstalledExtender.start(cluster, workdir, Setup()) as world, cluster.in_tree_scheduler():
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def scene(world: InstalledExtender, request: pytest.FixtureRequest) -> AsyncIterator[NamespaceFixture]:
    scene = NamespaceFixture(world, namespace_name(request))
    await scene.open()
    yield scene
    await scene.clear()


@contextmanager
def installed(cluster: ControlPlane, helm: Helm, **admission: object) -> Iterator[None]:
    """The chart's policies with these values of `admission`; at the end what Helm does not keep is deleted, as Helm does."""
    rendered = helm.template(values={"admission": admission})
    policies = [each for each in rendered if "AdmissionPolicy" in each["kind"] and _is_routing(each)]
    assert policies
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=_listed(policies))
    try:
        yield
    finally:
        kept = {"helm.sh/resource-policy": "keep"}
        gone = [each for each in policies if each["metadata"].get("annotations") != kept]
        cluster.kubectl("delete", "-f", "-", stdin=_listed(gone))


def _listed(items: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _is_routing(each: Object) -> bool:
    name = each["metadata"]["name"]
    return "-pods-by-" in name or "-watch-" in name or name.endswith("-allocations")


def pod(scene: NamespaceFixture, name: str, scheduler: str | None, **sources: Any) -> Object:
    """A pod of the scene; without a scheduler the API server fills in its default."""
    body = objects.pod(name, scene.name, scheduler=scheduler or IN_TREE, **sources)
    if scheduler is None:
        del body["spec"]["schedulerName"]
    return body


async def until_refused(scene: NamespaceFixture, body: Object) -> str:
    """Create the pod again and again until a policy is in force, which takes the API server a moment; returns its words."""

    async def refused() -> str:
        try:
            await scene.api.create(PODS, body)
        except ApiError as error:
            return str(error)
        await scene.delete_pod(body["metadata"]["name"])
        return ""

    return await scene.api.wait_for(refused, SECONDS, "the policy is in force")


async def until_sent_here(scene: NamespaceFixture, body: Object) -> None:
    """Create the pod again and again until a policy changes its scheduler."""

    async def sent() -> bool:
        made = await scene.api.create(PODS, body)
        await scene.delete_pod(body["metadata"]["name"])
        return bool(made["spec"]["schedulerName"] == OURS)

    await scene.api.wait_for(sent, SECONDS, "the policy is in force")


async def test_a_rival_gets_an_error_instead_of_a_device_twice_and_its_other_pods_are_placed(
    scene: NamespaceFixture, world: InstalledExtender, helm: Helm
) -> None:
    with installed(world.cluster, helm, allocations=True, drivers=[scene.driver]):
        node = await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(DEVICES)))
        await scene.other_driver("nic", node, *(device(f"nic-{index}") for index in range(DEVICES)))
        await scene.template("one")
        await scene.claim("probe")
        await _until_allocations_are_refused(scene, node)
        before = await world.metric("allocation_overlaps_total")
        for index in range(DEVICES):
            await scene.pod(f"theirs-{index}", template="one", scheduler=IN_TREE)
            await scene.pod(f"ours-{index}", template="one")
            await scene.pod(f"beside-{index}", template="nic", scheduler=IN_TREE)
        for index in range(DEVICES):
            await scene.wait_until_bound(f"ours-{index}")
            await scene.wait_until_bound(f"beside-{index}")
        assert [await scene.node_of(f"theirs-{index}") for index in range(DEVICES)] == [""] * DEVICES
        taken = await scene.allocated()
        assert sorted(each for each in taken if "gpu-" in each) == [f"{node}/gpu-{index}" for index in range(DEVICES)]
        assert await world.metric("allocation_overlaps_total") == before

        async def told() -> bool:
            return any(
                [
                    await _has_event(
                        scene, f"theirs-{index}", f"devices of {scene.driver} are allocated by system:service"
                    )
                    for index in range(DEVICES)
                ]
            )

        # A pod of the rival that came before ours in its queue tried, and was told who allocates.
        await scene.delete_pod("ours-0")
        await scene.api.wait_for(told, SECONDS, "the rival's pod says who allocates these devices")

        # Admin access takes no device from anybody.
        label = {"resource.kubernetes.io/admin-access": "true"}
        await scene.api.patch(NAMESPACES, scene.name, {"metadata": {"labels": label}})
        await scene.claim("watching", adminAccess=True)
        await scene.pod("monitor", claim="watching", scheduler=IN_TREE)
        assert await scene.wait_until_bound("monitor") == node


async def pods_elsewhere_are_refused(scene: NamespaceFixture, world: InstalledExtender, helm: Helm) -> None:
    with installed(world.cluster, helm, pods="deny", deviceClasses=[scene.name], extendedResources=["example.com/gpu"]):
        said = await until_refused(scene, pod(scene, "their-template", None, templates={"gpu": "one"}))
        assert f"ResourceClaimTemplate one needs devices that {OURS} allocates" in said
        assert f"the pod names {IN_TREE}: set spec.schedulerName to {OURS}" in said
        said = await until_refused(scene, pod(scene, "their-claim", IN_TREE, claims={"gpu": "named"}))
        assert f"ResourceClaim named needs devices that {OURS} allocates" in said
        for resource in ("example.com/gpu", f"deviceclass.resource.kubernetes.io/{scene.name}"):
            said = await until_refused(scene, pod(scene, "their-resource", IN_TREE, extended={resource: "1"}))
            assert f"needs devices that {OURS} allocates" in said
        # What does not name the class, and what goes to the right scheduler.
        await scene.api.create(PODS, pod(scene, "of-another-kind", IN_TREE))
        await scene.api.create(PODS, pod(scene, "ours", OURS, templates={"gpu": "one"}))
        await scene.api.create(PODS, pod(scene, "unknown", IN_TREE, templates={"gpu": "not-there-yet"}))
        await scene.api.patch(NAMESPACES, scene.name, {"metadata": {"labels": {LABEL: "ignore"}}})

        async def passes() -> bool:
            try:
                await scene.api.create(PODS, pod(scene, "excluded", IN_TREE, templates={"gpu": "one"}))
            except ApiError:
                return False
            return True

        await scene.api.wait_for(passes, SECONDS, "the namespace is left out")


async def pods_elsewhere_are_warned(scene: NamespaceFixture, world: InstalledExtender, helm: Helm) -> None:
    body = json.dumps(pod(scene, "warned", None, templates={"gpu": "one"}))
    with installed(world.cluster, helm, pods="warn", deviceClasses=[scene.name]):

        async def words() -> str:
            try:
                world.cluster.kubectl("create", "--warnings-as-errors", "-f", "-", stdin=body)
            except KubectlError as error:
                return str(error)
            await scene.delete_pod("warned")
            return ""

        said = await scene.api.wait_for(words, SECONDS, "the policy is in force")
        assert f"set spec.schedulerName to {OURS}" in said
        assert (await scene.read("warned"))["spec"]["schedulerName"] == IN_TREE


async def pods_that_name_no_scheduler_are_sent_here(
    scene: NamespaceFixture, world: InstalledExtender, helm: Helm, node: str
) -> None:
    with installed(world.cluster, helm, pods="mutate", deviceClasses=[scene.name]):
        await until_sent_here(scene, pod(scene, "first", None, templates={"gpu": "one"}))
        await until_sent_here(scene, pod(scene, "second", None, claims={"gpu": "named"}))
        await scene.api.create(PODS, pod(scene, "by-template", None, templates={"gpu": "one"}))
        await scene.api.create(PODS, pod(scene, "by-claim", None, claims={"gpu": "named"}))
        kept = await scene.api.create(PODS, pod(scene, "chosen", "another-scheduler", templates={"gpu": "one"}))
        assert kept["spec"]["schedulerName"] == "another-scheduler"
        plain = await scene.api.create(PODS, pod(scene, "plain", None))
        assert plain["spec"]["schedulerName"] == IN_TREE
        assert await scene.wait_until_bound("by-template") == node
        assert await scene.wait_until_bound("by-claim") == node


async def test_pods_with_a_class_of_the_list_are_sent_here_warned_or_refused_as_the_administrator_wants(
    scene: NamespaceFixture, world: InstalledExtender, helm: Helm
) -> None:
    """By template, claim and resource; last come the pods that a namespace with a label is left out for."""
    node = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await scene.template("one")
    await scene.claim("named")
    await pods_that_name_no_scheduler_are_sent_here(scene, world, helm, node)
    await pods_elsewhere_are_warned(scene, world, helm)
    await pods_elsewhere_are_refused(scene, world, helm)


async def _until_allocations_are_refused(scene: NamespaceFixture, node: str) -> None:
    """The administrator allocates claim `probe` to a device and releases it, until the policy refuses that."""
    results = [{"request": "gpu", "driver": scene.driver, "pool": node, "device": "gpu-0"}]

    async def allocate(results: list[Object] | None) -> None:
        allocation = None if results is None else {"devices": {"results": results}}
        change: Object = {"status": {"allocation": allocation}}
        await scene.api.patch(RESOURCE_CLAIMS, "probe", change, scene.name, subresource="status")

    async def refused() -> bool:
        try:
            await allocate(results)
        except ApiError:
            return True
        await allocate(None)
        return False

    await scene.api.wait_for(refused, SECONDS, "the policy is in force")
    with pytest.raises(ApiError, match=f"set spec.schedulerName of the pod to {OURS}") as caught:
        await allocate(results)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")


async def _has_event(scene: NamespaceFixture, name: str, words: str) -> bool:
    return any(words in str(each.get("note", "")) for each in await scene.events(name))
