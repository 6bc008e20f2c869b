"""What could not be read is never answered: constructed clusters with missing kinds, and API servers that refuse or fail."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.objects import (
    ALL_KINDS,
    JUDGED,
    ClusterObjects,
    MissingKind,
    UnreadKindsError,
    require,
    require_any,
)
from dra_extender.inspection.running_cluster import FollowedCluster, read_live
from dra_extender.inspection.text.why import tree, waiting_tree
from dra_extender.inspection.usage import usage_report
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.report import Cause, WhyReport
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.why import why
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.controlplane.objects import device, device_class, pod, request
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import ALWAYS, Faults
from tests.support.inspection.made_cluster import CREATED, NAMESPACE, MadeCluster
from tests.support.inspection.served_cluster import PATHS, served


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.add(device_class("gpu"))
    return made


def asked(made: MadeCluster, name: str) -> WhyReport:
    return why(made.view(), NAMESPACE, name)


@pytest.mark.parametrize("kind", ["resourceclaims", "nodes", "resourceslices", "deviceclasses", "devicetaintrules"])
def test_nothing_is_said_that_depends_on_a_kind_that_could_not_be_read(made: MadeCluster, kind: str) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    made.missing = (MissingKind(kind=kind, reason="403 Forbidden"),)

    report = asked(made, "train")
    assert (report.cause, report.nodes, report.branches, report.next) == (Cause.UNKNOWN, 0, (), ())
    first = tree(report, 200).splitlines()[0]
    assert first == f"not known: the account may not list {kind} (ClusterRole dra-viewer grants it)"
    (row,) = waiting(made.view()).causes
    assert (row.cause, row.text) == (Cause.UNKNOWN, "whether a node has its devices is not known")


def test_claim_of_the_pods_own_namespace_is_judged_although_nothing_else_could_be_read(made: MadeCluster) -> None:
    made.add(pod("train", NAMESPACE, claims={"gpu": "absent"}))
    made.missing = (
        MissingKind(kind="resourceclaims", reason="403 Forbidden", namespace=NAMESPACE),
        *(MissingKind(kind=kind, reason="403 Forbidden") for kind in ("nodes", "resourceslices", "deviceclasses")),
    )
    report = asked(made, "train")
    assert (report.cause, report.summary) == (Cause.CLAIMS, 'claim "gpu" does not exist')


def test_name_of_a_gated_pod_that_is_misspelt_is_told_although_nothing_else_could_be_read(made: MadeCluster) -> None:
    made.pod("trainer", request("gpu", "gpu"))
    made.add(pod("train", NAMESPACE, claims={"gpu": "claim-trainr"}, schedulingGates=[{"name": "example.com/quota"}]))
    made.missing = tuple(
        MissingKind(kind=kind, reason="403 Forbidden") for kind in ("nodes", "resourceslices", "deviceclasses")
    )
    report = asked(made, "train")
    expected = 'once its gates are removed: claim "gpu" does not exist, ml/claim-trainr; nearest name claim-trainer'
    assert (report.cause, report.notes) == (Cause.GATED, (expected,))


def test_pods_of_one_namespace_are_an_answer_about_this_namespace_alone(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    made.missing = (MissingKind(kind="pods", reason="403 Forbidden", namespace=NAMESPACE),)
    report = waiting(made.view())
    assert (report.namespace, report.pods) == (NAMESPACE, 1)
    lines = waiting_tree(report, 200).splitlines()
    assert lines[0].startswith(f"not known: the account may not list pods outside namespace {NAMESPACE}")
    assert lines[1] == f"1 pod waits in namespace {NAMESPACE}; 1 node"
    with pytest.raises(UnreadKindsError, match="pods outside namespace ml"):
        waiting(made.view(), "other")
    assert made.view().node_fit is None, "the pods that run on the nodes are not known"


def test_what_lacks_wholly_is_told_apart_from_what_lacks_outside_the_namespace(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.missing = (
        *(MissingKind(kind=kind, reason="403 Forbidden") for kind in ("nodes", "resourceslices")),
        *(MissingKind(kind=kind, reason="403 Forbidden", namespace=NAMESPACE) for kind in ("resourceclaims", "pods")),
    )
    expected = f"nodes, resourceslices, nor resourceclaims and pods outside namespace {NAMESPACE} \\(ClusterRole"
    with pytest.raises(UnreadKindsError, match=f"may not list {expected}"):
        require(made.view().origin, JUDGED)


def test_events_of_the_pod_are_shown_if_devices_cannot_be_judged(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.missing = tuple(MissingKind(kind=kind, reason="403 Forbidden") for kind in ("nodes", "resourceslices"))
    about = {"kind": "Pod", "namespace": NAMESPACE, "name": "train"}
    event = {
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/3 nodes are available: 3 cannot allocate all claims.",
        "lastTimestamp": CREATED,
    }
    others = [{**event, "involvedObject": {**about, "name": "train-2"}}, {**event, "type": "Normal"}, {"message": 1}]
    cluster = made.cluster()
    events = [msgspec.json.encode(item) for item in (event, event, *others)]
    view = ClusterView(ClusterObjects(cluster.origin, {**cluster.by_kind, "events": events}))
    report = why(view, NAMESPACE, "train")
    assert [(each.reason, each.message) for each in report.events] == [("FailedScheduling", event["message"])]
    assert f"FailedScheduling: {event['message']}" in tree(report, 200)


def test_devices_usage_and_a_node_are_not_answered_without_what_they_depend_on(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    made.missing = (MissingKind(kind="resourceslices", reason="403 Forbidden"),)
    for ask in (
        devices_report,
        usage_report,
        lambda view: devices_report(view, "n1"),
        lambda view: why_on_node(view, NAMESPACE, "train", "n1"),
    ):
        with pytest.raises(UnreadKindsError, match="may not list resourceslices"):
            ask(made.view())


def forbidden(kind: str) -> Fault:
    return Fault(refuse=403, message=f"{kind} is forbidden")


@pytest.fixture
async def server(made: MadeCluster) -> AsyncIterator[ApiServer]:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    async with served(made) as started:
        yield started


@pytest.fixture
def faults(server: ApiServer) -> Faults:
    return Faults(server)


@pytest.fixture
def settings(server: ApiServer, tmp_path: Path) -> KubeSettings:
    return KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))


def tenant_of(faults: Faults) -> None:
    """Let the account list pods, claims and templates of one namespace alone."""
    for kind, path in PATHS.items():
        of_namespace = kind in ("pods", "resourceclaims", "resourceclaimtemplates")
        faults.plan("list", path if of_namespace else kind, forbidden(kind), ALWAYS)


async def test_nothing_is_made_of_a_cluster_of_which_nothing_may_be_read(
    faults: Faults, settings: KubeSettings
) -> None:
    for kind in PATHS:
        faults.plan("list", kind, forbidden(kind), ALWAYS)
    objects = await read_live(settings, NAMESPACE)
    with pytest.raises(UnreadKindsError, match=r"may not list nodes, deviceclasses.*pods.*dra-viewer.*403 Forbidden"):
        require_any(objects.origin)


@pytest.mark.parametrize("follows", [False, True], ids=["once", "followed"])
async def test_kinds_that_may_be_listed_in_one_namespace_are_read_there(
    faults: Faults, settings: KubeSettings, *, follows: bool
) -> None:
    tenant_of(faults)
    objects = await read_objects(settings, follows=follows)
    assert {each.kind for each in objects.origin.missing if each.namespace == NAMESPACE} == {
        "pods",
        "resourceclaims",
        "resourceclaimtemplates",
    }
    report = why(ClusterView(objects), NAMESPACE, "train")
    assert (report.cause, report.nodes) == (Cause.UNKNOWN, 0)
    require_any(objects.origin)


async def read_objects(settings: KubeSettings, *, follows: bool) -> ClusterObjects:
    if not follows:
        return await read_live(settings, NAMESPACE)
    cluster = FollowedCluster(settings, namespace=NAMESPACE)
    try:
        await cluster.start()
        return await cluster.objects()
    finally:
        await cluster.stop()


@pytest.mark.parametrize("follows", [False, True], ids=["once", "followed"])
async def test_kind_that_the_api_server_cannot_list_is_unknown_and_no_right_is_said_to_lack(
    faults: Faults, settings: KubeSettings, *, follows: bool
) -> None:
    faults.plan("list", "resourceslices", Fault(refuse=500, message="etcdserver: request timed out"), ALWAYS)
    objects = await read_objects(settings, follows=follows)
    (missing,) = (each for each in objects.origin.missing if each.served)
    assert (missing.kind, missing.forbidden) == ("resourceslices", False)
    assert "etcdserver: request timed out" in missing.reason
    with pytest.raises(UnreadKindsError, match=r"the API server did not list resourceslices: .*etcdserver"):
        devices_report(ClusterView(objects))
    assert why(ClusterView(objects), NAMESPACE, "train").cause is Cause.UNKNOWN


async def test_connection_that_ends_half_way_is_no_answer(faults: Faults, settings: KubeSettings) -> None:
    faults.plan("list", "resourceslices", Fault(lose_request=True), ALWAYS)
    with pytest.raises(ClusterError, match="list resourceslices: no answer"):
        await read_live(settings, NAMESPACE)


async def test_events_of_the_namespace_are_read_and_are_no_condition_of_an_answer(
    server: ApiServer, faults: Faults, settings: KubeSettings
) -> None:
    faults.plan("list", "/api/v1/events", forbidden("events"), ALWAYS)
    event = {"reason": "FailedScheduling", "type": "Warning"}
    kubelet = {**event, "source": {"component": "kubelet"}}
    for name, said in (("train.1", event), ("train.2", kubelet)):
        server.store.create(StoredKind.EVENT, {"metadata": {"name": name, "namespace": NAMESPACE}, **said})
    objects = await read_live(settings, NAMESPACE, ALL_KINDS)
    assert [msgspec.json.decode(each)["reason"] for each in objects.of_kind("events")] == ["FailedScheduling"]
    faults.plan("list", "events", forbidden("events"), ALWAYS)
    objects = await read_live(settings, NAMESPACE, ALL_KINDS)
    assert [each.kind for each in objects.origin.missing if each.served] == ["events"]
    assert why(ClusterView(objects), NAMESPACE, "train").cause is Cause.NOT_DEVICES
