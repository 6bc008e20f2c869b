"""What is said of a bound pod: its devices, and what keeps it from starting."""

from typing import Any

import pytest
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, pod, request
from tests.support.inspection.made_cluster import NAMESPACE, Json, MadeCluster

HEAD = "ml/train  dra-extender-scheduler, is bound to node n1"
ALONE = "  why n1: its devices fit on no other node now"
LOOK = "  next  look at the Events of its kubelet: kubectl describe pod train -n ml"


@pytest.fixture
def made() -> MadeCluster:
    """A pod that runs with a GPU that was allocated 40 s ago."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    claim_status(made)["allocation"]["allocationTimestamp"] = "2026-11-25T09:46:00Z"
    return made


def claim_status(made: MadeCluster) -> Json:
    status: Json = made.objects["resourceclaims"][-1]["status"]
    return status


def pending(made: MadeCluster) -> None:
    made.objects["pods"][-1]["status"]["phase"] = "Pending"


def driver_reports(made: MadeCluster, **condition: str) -> None:
    entry = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": [condition]}
    claim_status(made)["devices"] = [entry]


def event(made: MadeCluster, reason: str, message: str, reporter: str) -> None:
    pod_uid = made.objects["pods"][-1]["metadata"]["uid"]
    made.add(
        {
            "kind": "Event",
            "metadata": {"name": f"train.{reason}".lower(), "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": pod_uid},
            "reason": reason,
            "message": message,
            "lastTimestamp": "2026-11-25T09:45:40Z",
            "source": {"component": reporter},
        }
    )


def lines(made: MadeCluster) -> list[str]:
    return tree(why(made.view(), NAMESPACE, "train")).splitlines()


def test_devices_of_a_pod_that_runs_are_named_with_their_claim_and_request(made: MadeCluster) -> None:
    assert lines(made) == [
        HEAD,
        "└ claim gpu (ml/claim-train), request gpu: gpu.example.com/n1/gpu-0, allocated",
        "    40s ago",
        ALONE,
    ]
    (found,) = why(made.view(), NAMESPACE, "train").devices
    assert (found.subject, found.claim, found.request) == ("claim gpu", "ml/claim-train", "gpu")
    assert found.device == "gpu.example.com/n1/gpu-0"


def test_alternative_that_a_request_got_is_named(made: MadeCluster) -> None:
    claim_status(made)["allocation"]["devices"]["results"][0]["request"] = "gpu/small"
    del claim_status(made)["allocation"]["allocationTimestamp"]
    assert lines(made)[1:] == [
        "└ claim gpu (ml/claim-train), request gpu/small: gpu.example.com/n1/gpu-0",
        ALONE,
    ]


def test_what_kube_scheduler_said_before_it_bound_the_pod_is_not_repeated(made: MadeCluster) -> None:
    event(made, "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.", "dra-extender-scheduler")
    assert not any("Insufficient cpu" in line for line in lines(made))


def test_pod_without_devices_is_bound_and_no_more(made: MadeCluster) -> None:
    made.objects["pods"].clear()
    made.add(pod("train", NAMESPACE, nodeName="n1"))
    assert lines(made) == [HEAD]


def test_what_the_driver_reports_of_a_pod_that_does_not_start_is_said(made: MadeCluster) -> None:
    pending(made)
    driver_reports(made, type="Ready", status="False", reason="NotPrepared", message="no such partition")
    assert lines(made) == [
        f"{HEAD} and Pending there",
        "└ claim gpu (ml/claim-train), request gpu: gpu.example.com/n1/gpu-0, allocated",
        "    40s ago",
        "  driver reports Ready False: NotPrepared: no such partition",
        ALONE,
        LOOK,
    ]


def test_event_of_the_kubelet_is_quoted_and_nobody_is_sent_to_look_for_it(made: MadeCluster) -> None:
    pending(made)
    event(made, "FailedPrepareDynamicResources", "prepare gpu-0: device is busy", "kubelet")
    assert lines(made)[1:3] == [
        "  Event 1m ago, Pod ml/train: FailedPrepareDynamicResources: prepare gpu-0:",
        "      device is busy",
    ]
    assert LOOK not in lines(made)


def test_event_of_another_component_is_quoted(made: MadeCluster) -> None:
    pending(made)
    event(made, "FailedAttachVolume", "volume is in use", "attachdetach-controller")
    assert "  Event 1m ago, Pod ml/train: FailedAttachVolume: volume is in use" in lines(made)
    assert LOOK in lines(made)


def not_reserved(made: MadeCluster) -> None:
    claim_status(made)["reservedFor"] = []


def not_allocated(made: MadeCluster) -> None:
    del claim_status(made)["allocation"]


def absent(made: MadeCluster) -> None:
    made.objects["resourceclaims"].clear()


@pytest.mark.parametrize(
    ("change", "said"),
    [(not_reserved, "is not reserved for it"), (not_allocated, "is not allocated"), (absent, "does not exist")],
)
def test_claim_with_which_the_kubelet_starts_no_pod_is_named(made: MadeCluster, change: Any, said: str) -> None:
    pending(made)
    change(made)
    assert f"  its kubelet would not start it: claim gpu: claim claim-train {said}" in " ".join(lines(made)).replace(
        "       ", " "
    )
    assert why(made.view(), NAMESPACE, "train").refused == (f"claim gpu: claim claim-train {said}",)
    made.objects["pods"][-1]["status"]["phase"] = "Running"
    assert why(made.view(), NAMESPACE, "train").refused == ()


def test_bound_pod_whose_device_is_published_no_more_says_so(made: MadeCluster) -> None:
    made.objects["resourceslices"][-1]["spec"]["devices"] = [device("gpu-1")]
    note = "claim gpu: device gpu.example.com/n1/gpu-0: generation 1 of its pool does not publish it"
    assert why(made.view(), NAMESPACE, "train").notes == (note,)


def test_bound_pod_whose_device_gets_a_taint_says_that_it_is_evicted(made: MadeCluster) -> None:
    made.objects["resourceslices"][-1]["spec"]["devices"][0]["taints"] = [{"key": "e.com/x", "effect": "NoExecute"}]
    (note,) = why(made.view(), NAMESPACE, "train").notes
    assert note.startswith("kube-controller-manager evicts it: claim gpu: device gpu.example.com/n1/gpu-0 has taint")


def test_pod_that_was_given_a_node_without_a_scheduler_has_to_be_created_again(made: MadeCluster) -> None:
    pending(made)
    claim_status(made).clear()
    made.objects["pods"][-1]["spec"]["nodeName"] = "n9"
    report = why(made.view(), NAMESPACE, "train")
    assert [step.text for step in report.next] == [
        "create the pod again without spec.nodeName, so that a scheduler allocates its claims"
    ]
    assert report.notes == ("node n9 does not exist",)
