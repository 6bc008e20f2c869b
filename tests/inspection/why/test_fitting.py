"""A pod that fits: where, why it is not bound yet, and no advice that hurts another pod."""

from typing import Any

import pytest
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import DEVICES_AND_NODES, Cause, WhyReport
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    """A free GPU on n1, and one on n2 that pod `old` has."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    made.running("old", "n2", "gpu-0", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))
    made.add({**made.objects["pods"][0], "metadata": {"name": "seen", "namespace": NAMESPACE}})
    return made


def answer(made: MadeCluster) -> WhyReport:
    return why(made.view(), NAMESPACE, "train")


def status(made: MadeCluster, message: str, **more: Any) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    train = next(each for each in made.objects["pods"] if each["metadata"]["name"] == "train")
    train["status"] = {"phase": "Pending", "conditions": [condition] if message else [], **more}


@pytest.mark.parametrize(
    ("message", "unbound"),
    [
        pytest.param("", "kube-scheduler has not reported on it", id="unreported"),
        pytest.param("0/2 nodes are available: 2 Insufficient cpu.", "holds no longer", id="stale-cpu"),
        pytest.param("0/2 nodes are available: 2 cannot allocate all claims.", "holds no longer", id="stale-devices"),
    ],
)
def test_pod_that_fits_is_said_to_fit_and_why_it_is_not_bound(made: MadeCluster, message: str, unbound: str) -> None:
    status(made, message)
    report = answer(made)
    assert (report.cause, report.usable, report.next, report.branches) == (Cause.NOT_DEVICES, ("n1",), (), ())
    assert [unbound in each for each in report.unbound] == [True]
    assert "  fits n1; not bound yet: " in tree(report)


def test_nominated_node_is_said(made: MadeCluster) -> None:
    status(made, "", nominatedNodeName="n1")
    assert answer(made).unbound == (
        "kube-scheduler has nominated node n1 and waits until the pods that it preempted there have ended",
    )


def test_what_is_not_judged_is_not_called_old(made: MadeCluster) -> None:
    status(made, "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
    report = answer(made)
    assert (report.unbound, report.next) == ((), ())
    assert "  has its devices on n1" in tree(report)


def test_pod_with_devices_on_a_closed_node_alone_gets_no_advice_that_does_not_let_it_run(made: MadeCluster) -> None:
    for each in made.objects["nodes"]:
        each["spec"] = {"unschedulable": True}
    report = answer(made)
    assert report.cause is Cause.NODES
    assert {each.text for each in report.next} == {"uncordon n1"}
    assert all(each.verified == DEVICES_AND_NODES for each in report.next)


def test_no_pod_is_to_be_ended_on_nodes_that_the_pod_may_not_use(made: MadeCluster) -> None:
    train = next(each for each in made.objects["pods"] if each["metadata"]["name"] == "train")
    train["spec"]["nodeSelector"] = {"team": "a"}
    made.running("older", "n1", "gpu-0", request("r", "gpu"))
    (step,) = answer(made).next
    assert step.text.startswith("ask for no node selector and no node affinity, end ")
    assert step.verified == DEVICES_AND_NODES
