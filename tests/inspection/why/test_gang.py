"""The plan of a gang where the running extender holds devices for some of its members already."""

from typing import Any

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import Cause, MemberState
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.why import why
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.metadata import Moment
from dra_extender.model.pod_group import read_pod_group
from dra_extender.scheduling.hold_report import FORMAT, HeldClaim, HeldNode, HoldReport

from tests.controlplane.objects import DRIVER, device, device_class, pod_group, request
from tests.support.inspection.made_cluster import NAMESPACE, NOW, MadeCluster


def held(pod: str, gpu: str) -> HeldClaim:
    """A GPU of n1 that the extender holds for this member."""
    return HeldClaim(
        claim_uid=f"uid-resourceclaim-{NAMESPACE}-claim-{pod}",
        claim=f"claim-{pod}",
        namespace=NAMESPACE,
        pods=((f"{NAMESPACE}/{pod}", f"uid-pod-{NAMESPACE}-{pod}"),),
        until=Moment(NOW + 25),
        nominated=False,
        nodes=(HeldNode(node="n1", devices=(DeviceHolding(driver=DRIVER, pool="n1", device=gpu),)),),
    )


def view(**last: Any) -> ClusterView:
    """A gang of three, devices are held for two of its members; `last` are fields of the spec of the third one."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"), pod_group("team", NAMESPACE, min_count=3))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.gpus("n2", device("gpu-0"))
    for number in range(3):
        made.pod(f"train-{number}", request("gpu", "gpu"), schedulingGroup={"podGroupName": "team"})
    made.objects["pods"][-1]["spec"].update(last)
    made.running("old", "n2", "gpu-0", request("gpu", "gpu"))
    found = made.cluster()
    report = HoldReport(format=FORMAT, taken_at=Moment(NOW), holds=(held("train-0", "gpu-0"), held("train-1", "gpu-1")))
    return ClusterView(ClusterObjects(found.origin, found.by_kind, holds=report))


def test_members_whose_devices_are_held_have_their_node_and_the_end_of_the_hold() -> None:
    gang = why(view(), NAMESPACE, "train-2").gang

    assert gang is not None
    (placed, blocked) = gang.members
    assert (placed.state, placed.names, placed.nodes) == (MemberState.PLACED, ("train-0", "train-1"), ("n1", "n1"))
    assert placed.until == NOW + 25
    assert (blocked.state, blocked.names) == (MemberState.BLOCKED, ("train-2",))
    assert (gang.placed, gang.total, gang.min_count) == (2, 3, 3)


def test_tree_says_where_and_until_when_devices_are_held_and_what_lets_the_gang_fit() -> None:
    lines = tree(why(view(), NAMESPACE, "train-2")).splitlines()

    assert "├ ok       train-0..1  held on n1 until 09:47:05Z" in lines
    assert "  next  end ml/old  ok, the gang fits" in lines


def test_what_is_held_stays_held_after_an_answer() -> None:
    asked = view()
    before = [why(asked, NAMESPACE, f"train-{number}") for number in range(3)]
    assert len(asked.ledger.holds) == 2
    assert [why(asked, NAMESPACE, f"train-{number}") for number in range(3)] == before


OBSTACLES = [
    pytest.param(
        {"schedulingGates": [{"name": "example.com/wait"}]},
        "pod has scheduling gates: example.com/wait",
        "wait until the scheduling gates of train-2 are removed: example.com/wait, end ml/old",
        id="gate",
    ),
    pytest.param(
        {"nodeSelector": {"zone": "b"}},
        "kube-scheduler finds no node for the pod: 0/2 nodes are available: 2 node(s) didn't match Pod's node "
        "affinity/selector; no node has label zone",
        "train-2: ask for no node selector and no node affinity, end ml/old",
        id="selector",
    ),
]


@pytest.mark.parametrize(("fields", "text", "step"), OBSTACLES)
def test_member_that_cannot_come_is_said_first_with_what_helps(fields: dict[str, Any], text: str, step: str) -> None:
    report = why(view(**fields), NAMESPACE, "train-0")

    assert report.cause is Cause.POD_GROUP
    assert report.summary.endswith(f"all 3 needed; train-2: {text}")
    assert report.gang is not None
    (unready, *others) = report.gang.members
    assert (unready.state, unready.names, unready.text) == (MemberState.UNREADY, ("train-2",), text)
    assert {each.state for each in others} == {MemberState.WAITING}
    assert [(each.subject, each.reasons[0].code) for each in report.branches] == [
        ("claim gpu, request gpu of pod train-2", "IN_USE")
    ]
    assert [each.text for each in report.next] == [step]


@pytest.mark.parametrize(("fields", "text", "step"), OBSTACLES)
def test_member_that_the_gang_does_not_need_blocks_nobody(fields: dict[str, Any], text: str, step: str) -> None:
    made = view(**fields)
    made.ledger.pod_groups.put(read_pod_group(msgspec.json.encode(pod_group("team", NAMESPACE, min_count=2))))
    report = why(made, NAMESPACE, "train-0")

    assert report.gang is not None
    assert [each.state for each in report.gang.members] == [MemberState.PLACED, MemberState.UNREADY]
    assert report.gang.members[-1].text == text
    assert step not in [each.text for each in report.next]


def test_many_gated_members_are_not_tried_without_their_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"), pod_group("team", NAMESPACE, min_count=3))
    made.gpus("n1", device("gpu-0"), device("gpu-1"), device("gpu-2"))
    for number in range(3):
        gates = {"schedulingGates": [{"name": "example.com/wait"}]} if number else {}
        made.pod(f"train-{number}", request("gpu", "gpu"), schedulingGroup={"podGroupName": "team"}, **gates)
    text = "wait until the scheduling gates of train-1, train-2 are removed: example.com/wait"
    (tried,) = why(made.view(), NAMESPACE, "train-0").next
    monkeypatch.setattr("dra_extender.inspection.why.gang._MOST_CHANGED", 1)
    (advised,) = why(made.view(), NAMESPACE, "train-0").next

    assert (tried.text, tried.nodes, advised.text, advised.nodes) == (text, ("n1",), text, ())


def test_member_that_cannot_come_has_its_own_cause() -> None:
    report = why(view(nodeSelector={"zone": "b"}), NAMESPACE, "train-2")

    assert report.cause is not Cause.POD_GROUP
    assert report.gang is not None
    assert report.gang.members[0].names == ("train-2",)


def test_overview_counts_no_member_as_placeable_if_all_nodes_are_closed() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.objects["nodes"][0]["spec"] = {"unschedulable": True}
    made.add(device_class("gpu"), pod_group("team", NAMESPACE, min_count=2))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    for number in range(2):
        made.pod(f"train-{number}", request("gpu", "gpu"), schedulingGroup={"podGroupName": "team"})
    (row,) = waiting(made.view()).causes
    assert "can be placed" not in row.detail
    assert "train-0: kube-scheduler finds no node for the pod: 0/1 nodes are available: 1 node(s) were" in row.detail


def test_member_whose_scheduler_has_not_acted_is_named() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"), pod_group("team", NAMESPACE, min_count=2))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.pod("train-0", request("r", "gpu"), schedulingGroup={"podGroupName": "team"})
    made.pod("train-1", request("r", "gpu"), schedulingGroup={"podGroupName": "team"}, scheduler="volcano")
    made.objects["pods"][-1]["status"] = {"phase": "Pending"}
    assert why(made.view(), NAMESPACE, "train-0").notes == (
        "train-1: no scheduler named volcano has acted on any pod of this cluster; dra-extender-scheduler acted",
    )
