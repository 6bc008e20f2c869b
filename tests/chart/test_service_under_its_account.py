"""The service with nothing but the rights, settings and kube-scheduler configuration that deploy/ gives it."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from dra_extender.kube.scheduler_waker import WAKE_UP_CLASS, WOKEN_AT_ANNOTATION
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.chart import selecting
from tests.chart.programs import MANIFESTS, NAMESPACE, SCHEDULER_CONFIGURATION, Object, documents, overlay
from tests.controlplane import objects
from tests.controlplane.anonymous import GROUP, USER, command_as_anonymous, is_possible, user_and_group_of
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import SERVE, ExtenderProcess
from tests.controlplane.kubeconfig import read_kubeconfig
from tests.controlplane.planes import BROKEN
from tests.controlplane.ports import free_ports
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.support.e2e.installed_extender import page
from tests.support.e2e.settled import are_parked

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

SECONDS = 60.0
SPACE = "under-its-account"
TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
"""kube-controller-manager writes it into each new node."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def extender(
    cluster: ControlPlane, manifests: list[Object], kubernetes_version: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ExtenderProcess]:
    """The service under its account, without the rights of the kube-scheduler beside it."""
    cluster.kubectl("apply", "--server-side", "-k", str(overlay(kubernetes_version)))
    cluster.kubectl("delete", "-f", str(MANIFESTS / "rbac-scheduler.yaml"))
    process = ExtenderProcess(
        tmp_path_factory.mktemp("service"),
        cluster.service_account_kubeconfig(NAMESPACE, "dra-extender"),
        environment=environment(manifests),
        command=command_as_anonymous(SERVE) if is_possible() else SERVE,
    )
    async with process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scheduler(cluster: ControlPlane, extender: ExtenderProcess) -> AsyncIterator[str]:
    """The URL of the kube-scheduler beside it."""
    (configuration,) = documents(SCHEDULER_CONFIGURATION.read_text())
    yield await cluster.start_scheduler(here(configuration, extender.url))
    await cluster.stop_scheduler()


def environment(manifests: list[Object]) -> dict[str, str]:
    """What its container gets; but it leads on its own, for the kube-scheduler of these tests holds no Lease."""
    given = selecting.environment(manifests)
    del given["DRA_EXTENDER_LEADER_ELECTION__FOLLOW_LEASE"]
    (probes,) = free_ports(1)
    return given | {
        "DRA_EXTENDER_PROBES__HOST": "127.0.0.1",
        "DRA_EXTENDER_PROBES__PORT": str(probes),
        "DRA_EXTENDER_LEADER_ELECTION__NAMESPACE": NAMESPACE,
        "DRA_EXTENDER_SCHEDULING__SCHEDULER_CONFIG": str(SCHEDULER_CONFIGURATION),
    }


def here(configuration: Object, url: str) -> Object:
    """The shipped configuration with the extender's address, and one scheduler that need not be elected."""
    changed = copy.deepcopy(configuration)
    changed["leaderElection"] = {"leaderElect": False}
    for stanza in changed["extenders"]:
        stanza["urlPrefix"] = url
    return changed


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def placed(cluster: ControlPlane, extender: ExtenderProcess, scheduler: str) -> ExtenderProcess:
    """After a pod with a claim was turned away, then placed when a slice with a partition appeared.

    Any change of a node lets kube-scheduler retry the pod by itself: nodes are as they stay before there is one, and when the slice
    appears the pod rests.
    """
    api = cluster.api
    await api.create(NAMESPACES, objects.namespace(SPACE))
    await api.create(NODES, objects.node("worker"))

    async def written() -> bool:
        return TTL_ANNOTATION in (await api.get(NODES, "worker"))["metadata"].get("annotations", {})

    await api.wait_for(written, SECONDS, "kube-controller-manager has written what it writes into a node")
    await api.create(DEVICE_CLASSES, objects.device_class("gpu"))
    await api.create(RESOURCE_CLAIMS, objects.resource_claim("one", SPACE, objects.request("gpu", "gpu")))
    await api.create(PODS, objects.pod("first", SPACE, claims={"gpu": "one"}))
    await api.wait_for(turned_away(cluster), SECONDS, "the extender turns the pod away while there is no device")
    await api.wait_for(resting(cluster, scheduler), SECONDS, "kube-scheduler has parked the pod")
    counters, devices = [objects.counter_set("gpu-0", memory="80Gi")], [half("half-0")]
    for part in (
        objects.resource_slice("counters", node="worker", pool="gpus", slice_count=2, counter_sets=counters),
        objects.resource_slice("devices", node="worker", pool="gpus", slice_count=2, devices=devices),
    ):
        await api.create(RESOURCE_SLICES, part)

    async def bound() -> bool:
        return bool((await api.get(PODS, "first", SPACE))["spec"].get("nodeName"))

    await api.wait_for(bound, SECONDS, f"the pod is bound\n{extender.report('says')}")
    return extender


def half(name: str) -> Object:
    """Half of a GPU, with compatibility groups."""
    return objects.device(name, consumes=[objects.consumption("gpu-0", memory="40Gi", groups=["halves"])])


def turned_away(cluster: ControlPlane) -> Callable[[], Awaitable[bool]]:
    """Whether the extender has said of the pod that no node fits.

    kube-scheduler says so without asking the extender as long as it knows no node.
    """

    async def unschedulable() -> bool:
        pod = await cluster.api.get(PODS, "first", SPACE)
        refused = any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))
        return refused and bool(await events_of_the_service(cluster))

    return unschedulable


def resting(cluster: ControlPlane, scheduler: str) -> Callable[[], Awaitable[bool]]:
    """Whether kube-scheduler has parked the one pod that it knows."""
    token = read_kubeconfig(cluster.admin_kubeconfig).token

    async def parked() -> bool:
        return are_parked(await page(f"{scheduler}/metrics", token), 1)

    return parked


async def events_of_the_service(cluster: ControlPlane) -> list[Object]:
    """The Events of the pod that the extender wrote."""
    found = await cluster.api.list(EVENTS, SPACE)
    return [each for each in found if each.get("reportingController") == "dra-extender"]


async def test_it_places_wakes_and_tells_with_its_own_rights_alone(
    cluster: ControlPlane, placed: ExtenderProcess
) -> None:
    """Under the policy that refuses the snapshot to everybody else; as a user that no image knows, where that is possible.

    As OpenShift runs it: it needs no number that is known beforehand, no home, and no right to write.
    """
    claim = await cluster.api.get(RESOURCE_CLAIMS, "one", SPACE)
    assert [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]] == ["half-0"]
    assert "halves" in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    assert await events_of_the_service(cluster)

    # Applying the manifests again leaves the annotation of the class alone.
    woken = (await cluster.api.get(DEVICE_CLASSES, WAKE_UP_CLASS))["metadata"]["annotations"][WOKEN_AT_ANNOTATION]
    cluster.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "wake-up-class.yaml"))
    kept = (await cluster.api.get(DEVICE_CLASSES, WAKE_UP_CLASS))["metadata"]["annotations"]
    assert kept[WOKEN_AT_ANNOTATION] >= woken

    lines = (await asyncio.to_thread(placed.log.read_text)).splitlines()
    assert lines
    assert [line for line in lines if "forbidden" in line.lower()] == []
    assert placed.pid is not None
    if is_possible():
        assert await asyncio.to_thread(user_and_group_of, placed.pid) == (USER, GROUP)
