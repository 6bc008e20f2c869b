"""A node that is not ready, cordoned, tainted or being deleted is no place to send a pod to, whatever is free there."""

from typing import Any

import pytest
from dra_extender.inspection.why.report import Cause
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, pod_group, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

Json = dict[str, Any]


def not_ready(node: Json) -> None:
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


def cordoned(node: Json) -> None:
    node["spec"] = {"unschedulable": True}


def tainted(node: Json) -> None:
    node["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}


def deleting(node: Json) -> None:
    node["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z"


LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
CLOSINGS = [pytest.param(each, id=each.__name__) for each in (not_ready, cordoned, tainted, deleting)]


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes with one GPU each."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0", capacity={"memory": "40Gi"}))
    return made


@pytest.mark.parametrize("close", CLOSINGS)
def test_closed_node_does_not_count_among_those_that_fit(made: MadeCluster, close: Any) -> None:
    close(made.objects["nodes"][1])
    made.pod("train", request("gpu", "gpu"))

    report = why(made.view(), NAMESPACE, "train")

    assert (report.cause, report.fitting, report.nodes) == (Cause.NOT_DEVICES, 1, 2)
    assert report.summary == "devices would suffice on 1 of 2 nodes"


@pytest.mark.parametrize("close", CLOSINGS)
def test_no_advice_sends_a_pod_to_a_closed_node_unless_it_opens_the_node(made: MadeCluster, close: Any) -> None:
    close(made.objects["nodes"][1])
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", LARGE))

    steps = [step.text for step in why(made.view(), NAMESPACE, "train").next if "n2" in step.nodes]

    assert all(any(opening in text for opening in ("check n2", "uncordon n2", "tolerate")) for text in steps)


@pytest.mark.parametrize("close", CLOSINGS)
def test_no_advice_places_a_member_of_a_gang_on_a_closed_node_unless_it_opens_the_node(
    made: MadeCluster, close: Any
) -> None:
    close(made.objects["nodes"][1])
    made.add(pod_group("team", NAMESPACE, min_count=2))
    for name in ("w1", "w2"):
        made.pod(name, request("gpu", "gpu", LARGE), schedulingGroup={"podGroupName": "team"})

    steps = [step.text for step in why(made.view(), NAMESPACE, "w1").next if step.nodes]
    assert all(any(opening in text for opening in ("uncordon n2", "tolerate team=a")) for text in steps)
    assert bool(steps) is (close in (cordoned, tainted))


def test_node_that_is_not_ready_is_to_be_checked_and_its_condition_not_tolerated(made: MadeCluster) -> None:
    not_ready(made.objects["nodes"][1])
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))

    report = why(made.view(), NAMESPACE, "train")

    assert (report.cause, report.fitting) == (Cause.NODES, 0)
    assert report.next[0].text == "check n2, which is unreachable"
    assert "tolerate" not in " ".join(step.text for step in report.next)


def test_condition_with_a_taint_for_each_effect_is_named_once(made: MadeCluster) -> None:
    for node in made.objects["nodes"]:
        effects = ("NoSchedule", "NoExecute")
        node["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": effect} for effect in effects]}
    made.pod("train", request("gpu", "gpu"))
    assert [step.text for step in why(made.view(), NAMESPACE, "train").next] == [
        "check n1, which is not-ready",
        "check n2, which is not-ready",
    ]
