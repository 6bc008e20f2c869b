"""Why all pods wait: rows by cause with the oldest pod, and a limit that is named."""

from itertools import count
from typing import Any

import pytest
from dra_extender.inspection.text.why import waiting_tree
from dra_extender.inspection.why.report import Cause
from dra_extender.inspection.why.waiting import waiting

from tests.controlplane.objects import device, device_class, pod, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

OLD = "2026-11-25T08:46:40Z"


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes, one with a GPU that is in use."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    return made


def reported(made: MadeCluster, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made.objects["pods"][-1]["status"] = {"phase": "Pending", "conditions": [condition]}


def rows(made: MadeCluster, *arguments: Any, **more: Any) -> list[tuple[Cause, str, int, str]]:
    return [(each.cause, each.text, each.pods, each.oldest) for each in waiting(made.view(), *arguments, **more).causes]


def test_pods_are_grouped_by_cause_with_the_oldest_of_each(made: MadeCluster) -> None:
    for name in ("train-0", "train-1", "train-2"):
        made.pod(name, request("gpu", "gpu"))
    made.objects["pods"][-1]["metadata"]["creationTimestamp"] = OLD
    made.pod("large", request("gpu", "gpu", count=1, selectors=[{"cel": {"expression": "false"}}]))
    made.pod("gated", request("gpu", "gpu"), schedulingGates=[{"name": "example.com/quota"}])
    made.add(pod("absent", NAMESPACE, claims={"gpu": "none"}))
    made.add(pod("plain", NAMESPACE))
    reported(made, "0/2 nodes are available: 2 Insufficient cpu. preemption: none.")

    assert rows(made) == [
        (Cause.DEVICES, "matching devices are in use", 3, "ml/train-2"),
        (Cause.CLAIMS, "claim does not exist", 1, "ml/absent"),
        (Cause.GATED, "example.com/quota", 1, "ml/gated"),
        (Cause.DEVICES, "no device matches the selectors", 1, "ml/large"),
        (Cause.NO_DEVICES, "Insufficient cpu", 1, "ml/plain"),
    ]


def test_pods_that_run_have_ended_or_go_do_not_wait(made: MadeCluster) -> None:
    made.pod("ended", request("gpu", "gpu"))
    made.objects["pods"][-1]["status"] = {"phase": "Succeeded"}
    made.pod("gone", request("gpu", "gpu"))
    made.objects["pods"][-1]["metadata"]["deletionTimestamp"] = OLD

    assert waiting(made.view()).pods == 0


def test_one_namespace_can_be_asked_for(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"))
    made.add(pod("plain", "other"))

    assert [row[3] for row in rows(made, "other")] == ["other/plain"]


def test_pod_that_has_devices_but_no_node_to_run_on_has_that_as_its_cause(made: MadeCluster) -> None:
    made.gpus("n2", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), nodeSelector={"zone": "b"})

    assert rows(made) == [(Cause.NODES, "node(s) didn't match Pod's node affinity/selector", 1, "ml/train")]


def test_equal_pods_are_evaluated_once(made: MadeCluster) -> None:
    for number in range(20):
        made.pod(f"train-{number}", request("gpu", "gpu"))

    report = waiting(made.view(), most_evaluated=2)

    assert (report.pods, report.unasked, [each.pods for each in report.causes]) == (20, 0, [20])


def test_limit_of_work_is_named_and_the_oldest_pods_come_before_it(made: MadeCluster) -> None:
    for number in range(3):
        made.pod(f"train-{number}", request("gpu", "gpu", f"{number} == 7"))
    made.objects["pods"][-1]["metadata"]["creationTimestamp"] = OLD

    report = waiting(made.view(), most_evaluated=3)

    assert (report.pods, report.unasked) == (3, 2)
    assert [each.oldest for each in report.causes] == ["ml/train-2"]
    assert report.notes == ("2 pods were not looked at: 3 nodes were evaluated, which is the limit",)


def test_pods_for_which_every_node_is_searched_are_judged_by_some_of_the_nodes(made: MadeCluster) -> None:
    """A selector that fails names its node, so that no node has the result of another one."""
    names = [f"m{number:03}" for number in range(200)]
    made.nodes(*names)
    for name in names:
        made.gpus(name, device("gpu-0"))
    for number in range(2):
        made.pod(f"train-{number}", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "A"'))
    made.pod("other", request("gpu", "gpu"))

    report = waiting(made.view(), most_searched=128)

    assert [(each.text, each.pods) for each in report.causes] == [
        ("selector failed on a device", 2),
        ("kube-scheduler has not reported why", 1),
    ]
    assert report.notes == ("2 pods were judged by 51 of 202 nodes",)
    assert waiting(made.view()).notes == ()


def test_what_is_special_about_the_oldest_pod_of_a_cause_is_said(made: MadeCluster) -> None:
    for name in ("first", "second"):
        made.add(pod(name, NAMESPACE, claims={"gpu": f"absent-{name}"}))

    (row,) = waiting(made.view()).causes

    assert (row.text, row.pods, row.detail) == ("claim does not exist", 2, "ml/absent-first")
    assert "oldest ml/first 12m: ml/absent-first" in waiting_tree(waiting(made.view()))


def test_tree_has_a_row_for_each_cause(made: MadeCluster) -> None:
    for name in ("train-0", "train-1"):
        made.pod(name, request("gpu", "gpu"))
    made.pod("gated", request("gpu", "gpu"), schedulingGates=[{"name": "example.com/quota\x1b[2J"}])

    assert waiting_tree(waiting(made.view())) == (
        "3 pods wait; 2 nodes\n"
        "2 pods  devices: matching devices are in use (gpu)\n"
        "        oldest ml/train-0 12m\n"
        " 1 pod  scheduling gates: example.com/quota\\u001b[2J\n"
        "        pod ml/gated 12m\n"
    )
    assert waiting_tree(waiting(made.view()), 40).splitlines()[1:3] == [
        "2 pods  devices: matching devices are in",
        "        use (gpu)",
    ]
    empty = MadeCluster()
    assert waiting_tree(waiting(empty.view())) == "no pod waits; 0 nodes\n"


def test_limit_of_time_is_named_and_the_oldest_pods_come_before_it(made: MadeCluster) -> None:
    """Every look at the clock takes ten seconds, and there is one before each pod."""
    for number in range(10):
        made.pod(f"pod-{number}", request("gpu", "gpu"), schedulingGates=[{"name": f"example.com/{number}"}])
        made.objects["pods"][-1]["metadata"]["creationTimestamp"] = f"2026-11-25T08:{50 - number}:40Z"
    seconds = count(0, 10)
    report = waiting(made.view(lambda: float(next(seconds))))
    assert report.notes == ("4 pods were not looked at: 60 s were up, which is the limit",)
    assert (report.pods, report.unasked) == (10, 4)
    assert {each.oldest for each in report.causes} == {f"ml/pod-{number}" for number in range(4, 10)}
