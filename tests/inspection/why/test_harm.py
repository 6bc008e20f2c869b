"""What harms nobody is named first, who leaves by himself is waited for, and the end of a pod has its price."""

from typing import Any

import msgspec
import pytest
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import DEVICES_AND_NODES, DEVICES_ONLY, NextStep
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import DRIVER, device, device_class, pod, pod_group, request, resource_claim
from tests.support.inspection.made_cluster import NAMESPACE, TRIED, Json, MadeCluster

BROKEN = {"key": "example.com/broken", "effect": "NoSchedule"}
GOING = "2026-11-25T09:46:10Z"
FAR_SELECTOR = 'device.attributes["gpu.example.com"].model == "B"'


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    return made


def found(made: MadeCluster) -> tuple[NextStep, ...]:
    return why(made.view(), NAMESPACE, "train").next


def texts(made: MadeCluster) -> list[str]:
    return [each.text for each in found(made)]


def lines_of(made: MadeCluster) -> list[str]:
    """The lines of the steps."""
    lines = tree(why(made.view(), NAMESPACE, "train")).split("\n")
    return lines[next(place for place, line in enumerate(lines) if line.startswith("  next")) : -1]


def last_pod(made: MadeCluster, **spec: Any) -> Json:
    made.objects["pods"][-1]["spec"].update(spec)
    metadata: Json = made.objects["pods"][-1]["metadata"]
    return metadata


def held(made: MadeCluster, name: str, node: str, gpu: str = "gpu-0", *, going: bool = False, **spec: Any) -> None:
    made.running(name, node, gpu, request("r", "gpu"))
    metadata = last_pod(made, **spec)
    if going:
        metadata["deletionTimestamp"] = GOING


# What harms nobody comes first.


def test_fewer_devices_that_fit_elsewhere_come_before_the_end_of_a_pod_for_cpu(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.gpus("n2", device("gpu-0"))
    made.add(pod("large", NAMESPACE, cpu="64", nodeName="n1"))
    made.pod("train", request("gpu", "gpu", count=2), cpu="10")
    assert texts(made) == ["ask for 1 device", "end ml/large"]


def test_change_that_may_not_be_enough_comes_before_the_end_of_a_pod(made: MadeCluster) -> None:
    """Node n2 is closed to the pod whatever its device is."""
    made.nodes("n2")
    made.objects["nodes"][1]["metadata"]["labels"] = {"zone": "b"}
    made.objects["nodes"][0]["metadata"]["labels"] = {"zone": "a"}
    made.gpus("n1", device("gpu-0"))
    made.gpus("n2", device("gpu-0", taints=[BROKEN]))
    held(made, "old", "n1")
    made.pod("train", request("gpu", "gpu"), nodeSelector={"zone": "a"})
    assert lines_of(made) == [
        "  next  tolerate example.com/broken:NoSchedule  ok on n2 (devices only)",
        "  next  end ml/old  ok on n1",
        "        ml/old: no owner, priority 0, 12m old",
    ]


def test_set_of_changes_that_harms_nobody_is_preferred(made: MadeCluster) -> None:
    """The nearest device is held by a pod; that of n2 needs a toleration and another selector."""
    made.nodes("n2")
    made.gpus("n1", device("gpu-0", attributes={"model": "B"}, taints=[BROKEN]))
    made.gpus("n2", device("gpu-0", attributes={"model": "A"}, taints=[BROKEN]))
    held(made, "old", "n1")
    made.pod("train", request("gpu", "gpu", FAR_SELECTOR))
    steps = found(made)
    assert [(each.text, each.harmful) for each in steps] == [
        ('ask for model == "A", tolerate example.com/broken:NoSchedule', False)
    ]


# Who leaves by himself.


def test_pod_that_leaves_on_another_node_is_waited_for(made: MadeCluster) -> None:
    made.nodes("n2", "n3", "n4", "n5", "n6")
    for number in range(1, 7):
        made.gpus(f"n{number}", device("gpu-0"))
        held(made, f"h{number}", f"n{number}", going=number == 6)
    made.pod("train", request("gpu", "gpu"))
    assert lines_of(made) == [
        "  next  wait until claim ml/claim-h6 is released, whose pods are being deleted",
        "      ok on n6",
    ]


def test_two_pods_that_leave_are_waited_for_rather_than_one_ended(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"), device("gpu-2"), device("gpu-3"))
    for number, going in enumerate((False, True, True)):
        held(made, f"h{number}", "n1", f"gpu-{number}", going=going)
    made.pod("train", request("gpu", "gpu", count=3))
    (step,) = [each for each in found(made) if not each.text.startswith("ask")]
    assert step.text == (
        "wait until claim ml/claim-h1 is released, whose pods are being deleted, "
        "wait until claim ml/claim-h2 is released, whose pods are being deleted"
    )
    assert (step.harmful, step.ends, step.verified) == (False, (), DEVICES_AND_NODES)


def test_claim_without_pods_that_is_being_deleted_is_waited_for(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    held(made, "old", "n1")
    claim = made.objects["resourceclaims"][-1]
    claim["metadata"]["deletionTimestamp"] = GOING
    claim["status"]["reservedFor"] = []
    made.pod("train", request("gpu", "gpu"))
    assert [(each.text, each.harmful) for each in found(made)] == [
        ("wait until claim ml/claim-old is gone, which is being deleted", False)
    ]


def test_claim_that_no_pod_uses_harms_whose_it_is(made: MadeCluster) -> None:
    made.nodes("n2")
    made.gpus("n1", device("gpu-0"))
    made.gpus("n2", device("gpu-0", taints=[BROKEN]))
    held(made, "old", "n1")
    made.objects["resourceclaims"][-1]["status"]["reservedFor"] = []
    made.pod("train", request("gpu", "gpu"))
    assert texts(made) == [
        "tolerate example.com/broken:NoSchedule",
        "delete claim ml/claim-old, which no pod uses",
    ]


def test_pod_that_leaves_beside_one_that_stays_is_not_ended_again(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    held(made, "old", "n1", going=True)
    made.add(pod("other", NAMESPACE, claims={"gpu": "claim-old"}, nodeName="n1"))
    reference = {"resource": "pods", "name": "other", "uid": made.objects["pods"][-1]["metadata"]["uid"]}
    made.objects["resourceclaims"][-1]["status"]["reservedFor"].append(reference)
    made.pod("train", request("gpu", "gpu"))
    (step,) = found(made)
    assert (step.text, [each.pod for each in step.ends]) == ("end ml/other", ["ml/other"])


def test_pod_that_leaves_is_waited_for_where_cpu_is_short(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(pod("small", NAMESPACE, cpu="10", nodeName="n1"))
    made.add(pod("large", NAMESPACE, cpu="53", nodeName="n1"))
    last_pod(made)["deletionTimestamp"] = GOING
    made.pod("train", request("gpu", "gpu"), cpu="10")
    assert texts(made) == ["ask for 1 of cpu", "wait until ml/large is deleted"]


def test_pod_is_ended_beside_one_that_leaves_where_cpu_is_short(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    for name, cpu in (("first", "30"), ("second", "31"), ("third", "3")):
        made.add(pod(name, NAMESPACE, cpu=cpu, nodeName="n1"))
    last_pod(made)["deletionTimestamp"] = GOING
    made.pod("train", request("gpu", "gpu"), cpu="33")
    (step,) = found(made)
    assert step.text == "wait until ml/third is deleted, end ml/first"
    assert [each.pod for each in step.ends] == ["ml/first"]


def test_end_of_a_pod_frees_its_port_of_the_host_too(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    port = [
        {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "60"}}}
    ]
    made.add(pod("large", NAMESPACE, nodeName="n1"))
    last_pod(made, containers=port)
    made.pod("train", request("gpu", "gpu"))
    last_pod(made, containers=port)
    assert texts(made) == ["ask for other ports of the host, ask for 4 of cpu", "end ml/large"]


def test_no_more_is_waited_for_than_is_short(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    for name, cpu in (("first", "30"), ("second", "31"), ("third", "3")):
        made.add(pod(name, NAMESPACE, cpu=cpu, nodeName="n1"))
        if name != "first":
            last_pod(made)["deletionTimestamp"] = GOING
    made.pod("train", request("gpu", "gpu"), cpu="60")
    assert texts(made) == ["wait until ml/second is deleted, end ml/first"]


# What a step was not tried with.


@pytest.mark.parametrize(
    ("reported", "untried"),
    [
        ("1 node(s) had volume node affinity conflict", "volumes"),
        ("1 node(s) didn't match pod anti-affinity rules", "other pods"),
        ("1 node(s) are asleep", "what else kube-scheduler reports"),
    ],
)
def test_step_says_what_it_was_not_tried_with(made: MadeCluster, reported: str, untried: str) -> None:
    made.add(pod("large", NAMESPACE, cpu="60", nodeName="n1"))
    made.add(pod("train", NAMESPACE, cpu="10"))
    message = f"0/2 nodes are available: 1 Insufficient cpu, {reported}."
    made.objects["pods"][-1]["status"] = {"conditions": [{**TRIED, "message": message}]}
    steps = " ".join(" ".join(lines_of(made)).split())
    assert steps == (
        f"next ask for 4 of cpu ok on n1 (not tried: {untried}) next end ml/large ok on n1 (not tried: {untried}) "
        "ml/large: no owner, priority 0, 12m old"
    )
    assert {each.verified for each in found(made)} == {DEVICES_ONLY}


# The price.


def test_price_of_the_end_of_a_pod_is_named(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    held(made, "old", "n1", priority=100)
    last_pod(made).update(
        creationTimestamp="2026-11-25T06:40:00Z",
        ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "train-1", "uid": "u", "controller": True}],
    )
    made.pod("train", request("gpu", "gpu"))
    assert lines_of(made) == [
        "  next  end ml/old  ok on n1",
        "        ml/old: Job train-1, priority 100, 3h old",
    ]
    (step,) = found(made)
    assert msgspec.to_builtins(step.ends) == (
        {"pod": "ml/old", "owner": "Job train-1", "priority": 100, "age": 11200.0},
    )


def test_price_says_that_the_pod_is_a_member_of_a_gang(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    for name, fewest in (("ring", 2), ("loose", None)):
        made.add(pod_group(name, NAMESPACE, min_count=fewest))
    held(made, "old", "n1", schedulingGroup={"podGroupName": "ring"})
    made.pod("train", request("r", "gpu"))
    assert lines_of(made)[1] == "        ml/old: no owner, priority 0, 12m old; member of gang ring"
    made.objects["pods"][0]["spec"]["schedulingGroup"]["podGroupName"] = "loose"
    assert lines_of(made)[1] == "        ml/old: no owner, priority 0, 12m old"


def test_price_has_each_pod_that_uses_the_claim_and_says_how_many_more(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    held(made, "h0", "n1")
    claim = made.objects["resourceclaims"][-1]
    for number in range(1, 6):
        made.add(pod(f"h{number}", NAMESPACE, claims={"gpu": "claim-h0"}, nodeName="n1"))
        uid = made.objects["pods"][-1]["metadata"]["uid"]
        claim["status"]["reservedFor"].append({"resource": "pods", "name": f"h{number}", "uid": uid})
    made.pod("train", request("gpu", "gpu"))
    lines = lines_of(made)
    assert lines[0] == "  next  end ml/h0, ml/h1, ml/h2, ml/h3, ml/h4, ml/h5  ok on n1"
    assert lines[4:] == ["        ml/h3: no owner, priority 0, 12m old", "        and 2 more pods"]


def test_placeholder_of_a_negative_priority_is_ended_on_another_node_than_the_nearest(made: MadeCluster) -> None:
    made.nodes("n2")
    for name, node, priority in (("old", "n1", 0), ("placeholder", "n2", -10)):
        made.gpus(node, device("gpu-0"))
        held(made, name, node, priority=priority)
    made.pod("train", request("r", "gpu"))
    assert texts(made) == ["end ml/placeholder"]


def test_pods_of_low_priority_are_ended_first(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    held(made, "a", "n1", priority=1000)
    held(made, "b", "n1", "gpu-1", priority=10)
    made.pod("train", request("gpu", "gpu"))
    assert texts(made) == ["end ml/b"]


def test_advice_to_end_a_pod_comes_after_advice_that_harms_nobody(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    claim = resource_claim("full", NAMESPACE, request("gpu", "gpu"))
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    made.add(claim, pod("train", NAMESPACE, claims={"gpu": "full"}))
    assert [(each.text, each.harmful) for each in found(made)] == [("end a pod that uses the claim", True)]


def test_advice_to_end_a_pod_for_another_member_of_the_gang_is_harmful_too(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    claim = resource_claim("full", NAMESPACE, request("gpu", "gpu"))
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    group: Any = {"schedulingGroup": {"podGroupName": "train"}}
    made.add(pod_group("train", NAMESPACE, min_count=2))
    made.pod("train", request("gpu", "gpu"), **group)
    made.add(claim, pod("train-1", NAMESPACE, claims={"gpu": "full"}, **group))
    assert [(each.text, each.harmful) for each in found(made)] == [("train-1: end a pod that uses the claim", True)]
