"""What Events and other objects say of a pod that waits, beside its devices."""

from typing import Any

import msgspec
import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects, MissingKind
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import Cause, ReasonKind, WhyReport
from dra_extender.inspection.why.reported import reported_reasons
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.why import why
from dra_extender.scheduling.evaluation.filter_result import FURTHER_REASONS

from tests.controlplane.objects import device, device_class, pod, pod_group, request, resource_claim_template
from tests.support.inspection.made_cluster import NAMESPACE, Json, MadeCluster

QUOTA = (
    'PodResourceClaim gpu: failed to create ResourceClaim: resourceclaims "train-gpu-x7k2p" is forbidden: '
    "exceeded quota: gpus, requested: gpu.deviceclass.resource.k8s.io/devices=1, used: 2, limited: 2"
)
ADMIN = (
    'PodResourceClaim gpu: ResourceClaim.resource.k8s.io "train-gpu-x7k2p" is invalid: spec.devices.requests[0].adminAccess: '
    "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the namespace"
)
INVALID = (
    'PodResourceClaim gpu: ResourceClaim.resource.k8s.io "train-gpu-x7k2p" is invalid: spec.devices: Required value'
)


@pytest.fixture
def made() -> MadeCluster:
    """One node with a free GPU."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    return made


def event(reason: str, message: str, about: Json, *, minutes: int = 3, reporter: str = "resource_claim") -> Json:
    metadata = about["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}.{minutes}".lower(), "namespace": NAMESPACE},
        "involvedObject": {"kind": about["kind"], "namespace": NAMESPACE, "name": name, "uid": uid},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": f"2026-11-25T09:{46 - minutes}:40Z",
        "source": {"component": reporter},
    }


def without_claim(made: MadeCluster, name: str = "train", **fields: Any) -> Json:
    """A pod whose claim its template does not make."""
    made.add(resource_claim_template("wanted", NAMESPACE, request("gpu", "gpu")))
    made.add(pod(name, NAMESPACE, templates={"gpu": "wanted"}, **fields))
    return made.objects["pods"][-1]


def asked(made: MadeCluster, name: str = "train") -> WhyReport:
    return why(made.view(), NAMESPACE, name)


@pytest.mark.parametrize(
    ("message", "step"),
    [
        pytest.param(QUOTA, "end what uses ResourceQuota ml/gpus, or raise it", id="quota"),
        pytest.param(
            ADMIN, "set the label resource.kubernetes.io/admin-access=true on namespace ml", id="admin-access"
        ),
        pytest.param(INVALID, "correct ResourceClaimTemplate ml/wanted", id="invalid"),
        pytest.param("PodResourceClaim gpu: webhook says no", "", id="unknown"),
    ],
)
def test_claim_that_is_not_created_is_explained_by_the_event_of_the_pod(
    made: MadeCluster, message: str, step: str
) -> None:
    waiting = without_claim(made)
    made.add(event("FailedResourceClaimCreation", message, waiting))

    report = asked(made)

    assert report.cause is Cause.CLAIMS
    assert [(each.subject, each.message, each.age) for each in report.events] == [("Pod ml/train", message, 180.0)]
    assert [each.text for each in report.next] == ([step] if step else [])
    text = " ".join(tree(report).split())
    assert f"Event 3m ago, Pod ml/train: FailedResourceClaimCreation: {message}" in text
    assert "kube-controller-manager" not in text


def test_newest_event_counts_and_none_of_an_earlier_pod_of_the_name(made: MadeCluster) -> None:
    waiting = without_claim(made)
    earlier = {**waiting, "metadata": {**waiting["metadata"], "uid": "earlier"}}
    made.add(
        event("FailedResourceClaimCreation", "old", waiting, minutes=9),
        event("FailedResourceClaimCreation", "new", waiting, minutes=4),
        event("FailedResourceClaimCreation", "of another pod", earlier, minutes=1),
    )
    assert [each.message for each in asked(made).events] == ["new"]


def test_event_about_a_claim_that_is_there_by_now_is_not_reported(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.add(event("FailedResourceClaimCreation", QUOTA, made.objects["pods"][-1]))
    assert asked(made).events == ()


def test_event_of_the_pod_group_says_why_its_claim_is_not_created(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE, min_count=1))
    without_claim(made, schedulingGroup={"podGroupName": "team"})
    made.add(event("FailedResourceClaimCreation", QUOTA, made.objects["podgroups"][-1]))
    assert [each.subject for each in asked(made).events] == ["PodGroup ml/team"]


def test_event_of_the_owner_says_why_members_of_a_gang_are_missing(made: MadeCluster) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "uid": "job-1"}}
    made.add(pod_group("team", NAMESPACE, min_count=2))
    made.pod("train", request("gpu", "gpu"), schedulingGroup={"podGroupName": "team"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-1", "controller": True}
    made.objects["pods"][-1]["metadata"]["ownerReferences"] = [owner]
    made.add(event("FailedCreate", 'pods "w-2" is forbidden: exceeded quota: pods', job, reporter="job-controller"))

    report = asked(made)

    assert report.cause is Cause.POD_GROUP
    assert [(each.subject, each.reporter) for each in report.events] == [("Job ml/work", "job-controller")]


def test_without_an_event_it_is_said_what_is_not_known(made: MadeCluster) -> None:
    without_claim(made)
    (step,) = asked(made).next
    assert step.text == (
        "wait; no Event says why the claim is not created, so it is not known whether kube-controller-manager runs"
    )


def test_events_that_may_not_be_read_are_to_be_looked_at(made: MadeCluster) -> None:
    without_claim(made)
    made.missing = (MissingKind(kind="events", reason="user u cannot list events"),)
    (step,) = asked(made).next
    assert step.text == "look at the Events of the pod, which were not read: user u cannot list events"


def test_events_of_the_namespace_of_the_pod_alone_suffice(made: MadeCluster) -> None:
    waiting = without_claim(made)
    made.add(event("FailedResourceClaimCreation", INVALID, waiting))
    objects = made.cluster()
    missing = (MissingKind(kind="events", reason="cannot list", namespace=NAMESPACE),)
    origin = msgspec.structs.replace(objects.origin, missing=missing)
    report = why(ClusterView(ClusterObjects(origin, objects.by_kind)), NAMESPACE, "train")
    assert [each.message for each in report.events] == [INVALID]


@pytest.mark.parametrize(
    "reported",
    [
        pytest.param('persistentvolumeclaim "data" not found', id="volume"),
        pytest.param("1 node(s) didn't match pod affinity rules", id="affinity"),
        pytest.param("1 something of a plugin of ours", id="unknown-plugin"),
    ],
)
def test_where_devices_would_suffice_kube_scheduler_is_quoted_and_no_device_is_advised(
    made: MadeCluster, reported: str
) -> None:
    made.nodes("n2")
    made.gpus("n2", device("gpu-0"))
    made.running("old", "n2", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))
    made.objects["pods"][-1]["status"]["conditions"][0]["message"] = f"0/2 nodes are available: {reported}."

    report = asked(made)

    assert (report.cause, report.summary) == (Cause.NOT_DEVICES, "devices would suffice on 1 of 2 nodes")
    assert f"kube-scheduler reports: {reported}" in " ".join(tree(report).split())
    assert report.next == ()


def test_event_of_the_scheduler_counts_where_the_pod_has_no_condition(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    waiting = made.objects["pods"][-1]
    waiting["status"] = {}
    message = '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    made.add(event("FailedScheduling", message, waiting, reporter="dra-extender-scheduler"))
    report = asked(made)
    assert (report.said, report.scheduler_absent) == (message, "")


def misspelt(made: MadeCluster, name: str = "dra-extender-schedular") -> None:
    made.pod("train", request("gpu", "gpu"), scheduler=name)
    made.objects["pods"][-1]["status"] = {}


def test_scheduler_of_which_no_object_has_a_trace_is_named_with_the_nearest_that_acted(made: MadeCluster) -> None:
    misspelt(made)
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    report = asked(made)
    assert report.scheduler_absent == (
        "no scheduler named dra-extender-schedular has acted on any pod of this cluster; nearest name dra-extender-scheduler"
    )
    assert report.scheduler_absent in " ".join(tree(report).split())


def test_scheduler_without_any_other_is_named_alone(made: MadeCluster) -> None:
    misspelt(made)
    assert (
        asked(made).scheduler_absent == "no scheduler named dra-extender-schedular has acted on any pod of this cluster"
    )


@pytest.mark.parametrize("trace", ["bound pod", "condition", "event", "reservation"])
def test_any_trace_of_a_scheduler_counts(made: MadeCluster, trace: str) -> None:
    name = "dra-extender-schedular"
    misspelt(made)
    if trace == "event":
        reported = event("FailedScheduling", "0/1 nodes", {**pod("gone", NAMESPACE)}, reporter=name)
        made.add(reported)
    else:
        made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
        other, claim = made.objects["pods"][-1], made.objects["resourceclaims"][-1]
        other["spec"]["schedulerName"] = name
        if trace != "bound pod":
            del other["spec"]["nodeName"]
        if trace == "condition":
            other["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
            claim["status"] = {}
    assert asked(made).scheduler_absent == ""


def test_condition_that_the_api_server_gives_a_gated_pod_is_no_trace(made: MadeCluster) -> None:
    misspelt(made)
    made.pod("gated", request("gpu", "gpu"), scheduler="dra-extender-schedular")
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    made.objects["pods"][-1]["status"] = {"conditions": [gated]}
    assert asked(made).scheduler_absent != ""


def test_list_of_pods_that_wait_names_the_scheduler_that_nobody_runs(made: MadeCluster) -> None:
    misspelt(made)
    made.pod("other", request("gpu", "gpu"))
    texts = {each.oldest: each.text for each in waiting(made.view()).causes}
    assert texts["ml/train"].startswith("no scheduler named dra-extender-schedular has acted on any pod")
    assert texts["ml/other"] == "kube-scheduler has not reported why"


def test_event_of_the_extender_about_devices_is_left_to_the_reasons_of_the_nodes(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.add(
        event("DevicesUnavailable", "1 of 1 nodes", made.objects["pods"][-1], reporter="dra-extender"),
        event("BindingFailed", "the device was lost", made.objects["pods"][-1], reporter="dra-extender"),
    )
    assert [each.reason for each in asked(made).events] == ["BindingFailed"]


def read(message: str) -> list[tuple[int, str, ReasonKind]]:
    return [(each.nodes, each.text, each.kind) for each in reported_reasons(message)]


def test_each_reason_has_its_number_of_nodes_and_what_it_is_about() -> None:
    message = (
        "0/12 nodes are available: 3 Insufficient cpu, 4 node(s) had untolerated taint {team: a}, "
        "5 node(s) didn't match Pod's node affinity/selector. preemption: 0/12 nodes are available: "
        "12 No preemption victims found for incoming pod."
    )
    assert read(message) == [
        (3, "Insufficient cpu", ReasonKind.RESOURCES),
        (4, "node(s) had untolerated taint {team: a}", ReasonKind.TAINTS),
        (5, "node(s) didn't match Pod's node affinity/selector", ReasonKind.AFFINITY),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Too many pods", ReasonKind.RESOURCES),
        ("Insufficient example.com/gpu", ReasonKind.RESOURCES),
        ("node(s) were unschedulable", ReasonKind.UNSCHEDULABLE),
        ("node(s) didn't match pod anti-affinity rules", ReasonKind.OTHER_PODS),
        ("node(s) didn't match pod topology spread constraints", ReasonKind.OTHER_PODS),
        ("node(s) didn't have free ports for the requested pod ports", ReasonKind.PORTS),
        ("node(s) had volume node affinity conflict", ReasonKind.VOLUMES),
        ("cannot allocate all claims", ReasonKind.DEVICES),
        *((Rejection(code=code, claim="gpu", request="gpu").summary, ReasonKind.DEVICES) for code in Code),
        ('node(s): claim "insufficient" does not exist', ReasonKind.DEVICES),
        (f"node(s): {FURTHER_REASONS}", ReasonKind.DEVICES),
        ("something new", ReasonKind.OTHER),
    ],
)
def test_kind_follows_from_the_words_of_kube_scheduler(text: str, kind: ReasonKind) -> None:
    assert read(f"0/1 nodes are available: 1 {text}.") == [(1, text, kind)]


def test_message_of_another_form_is_one_reason() -> None:
    assert read("") == []
    assert read('resourceclaim "gpu" not found') == [(0, 'resourceclaim "gpu" not found', ReasonKind.DEVICES)]
    assert read("0/3 nodes are available: waiting for something.") == [(0, "waiting for something", ReasonKind.OTHER)]


def test_message_without_end_is_read_to_a_limit() -> None:
    assert len(read("0/9 nodes are available: " + ", ".join(f"1 reason {n}" for n in range(100_000)))) == 64
    assert len(read("x" * 10_000_000)[0][1]) == 16_384
    assert read("0/1 nodes are available: " + "9" * 10_000 + " many")[0][0] <= 999_999_999
