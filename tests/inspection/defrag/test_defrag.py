"""Which pods are moved, which are not and why, and that `what-if` plays what is found."""

from functools import partial
from typing import Any

import pytest
from dra_extender.inspection.defrag import goals, search
from dra_extender.inspection.defrag.defrag import FindGoal, defrag
from dra_extender.inspection.defrag.report import DefragReport, Finding
from dra_extender.inspection.objects import BUDGETS, MissingKind, UnreadKindsError
from dra_extender.inspection.text.defrag import text
from dra_extender.inspection.what_if.changes import ChangeError, Changes
from dra_extender.inspection.what_if.report import OutcomeKind
from dra_extender.inspection.what_if.what_if import what_if

from tests.controlplane.objects import device, device_class, pod_group, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, budget

TRAIN = (NAMESPACE, "train")
FIT: FindGoal = partial(goals.fit_pod, key=TRAIN)


def small_pods(made: MadeCluster, **fields: Any) -> MadeCluster:
    """Two nodes with two GPUs each; pods `a` on n1 and `b` on n2 have one GPU each, and `train` wants two of one node."""
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for name, place in (("a", "n1"), ("b", "n2")):
        made.gpus(place, device("gpu-0"), device("gpu-1"))
        made.running(name, place, "gpu-0", request("gpu", "gpu"))
        owned(made)
    made.pod("train", request("gpu", "gpu", count=2), **fields)
    return made


@pytest.fixture
def made() -> MadeCluster:
    return small_pods(MadeCluster())


def owned(made: MadeCluster, kind: str = "ReplicaSet") -> None:
    """The last pod belongs to a controller of this kind."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "owner", "controller": kind != "Node"}
    made.objects["pods"][-1]["metadata"]["ownerReferences"] = [owner]


def pod_named(made: MadeCluster, name: str) -> dict[str, Any]:
    return next(each for each in made.objects["pods"] if each["metadata"]["name"] == name)


def moved(report: DefragReport) -> dict[str, str]:
    """The node on which each moved pod lands."""
    return {move.pod.partition("/")[2]: move.after.node for move in report.moves}


def staying(report: DefragReport) -> dict[str, str]:
    return {pod.partition("/")[2]: each.reason for each in report.staying for pod in each.pods}


async def test_pod_that_fits_needs_no_move(made: MadeCluster) -> None:
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"), device("gpu-1"))
    report = await defrag(made.cluster(), FIT)
    assert (report.finding, report.moves, report.fewest) == (Finding.MET, (), True)
    assert text(report).splitlines()[:3] == [
        "pod ml/train fits without a move",
        "",
        "ml/train lands on n3 (gpu-0, gpu-1)",
    ]


@pytest.mark.parametrize("asked", ["gpu.example.com/n1/gpu-0", "big", 'has(device.attributes["gpu.example.com"].big)'])
async def test_device_is_free_by_name_by_class_and_by_expression(asked: str) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"), device_class("big", 'has(device.attributes["gpu.example.com"].big)'))
    made.gpus("n1", device("gpu-0", attributes={"big": True}), device("gpu-1"))
    made.running("a", "n1", "gpu-0", request("gpu", "gpu"))
    report = await defrag(made.cluster(), partial(goals.free_device, device=asked))
    assert moved(report) == {"a": "n1"}
    assert report.moves[0].after.devices == ("gpu.example.com/n1/gpu-1",)
    assert report.lands is not None
    assert report.lands.devices == ("gpu.example.com/n1/gpu-0",)
    assert report.lands.unjudged == ()
    assert report.what_if == ("--reserve", asked, "--evict", "ml/a")
    played = await what_if(made.cluster(), Changes(reserved=[asked], evicted=[(NAMESPACE, "a")]))
    assert [(row.pod, row.after.devices) for row in played.pods] == [
        ("ml/a", report.moves[0].after.devices),
        ("what-if/reserved-1", report.lands.devices),
    ]


async def test_shared_device_is_free_when_nobody_has_a_share_of_it() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    shared = [device(f"gpu-{number}", capacity={"memory": "16Gi"}, allowMultipleAllocations=True) for number in (0, 1)]
    made.gpus("n1", *shared)
    for number, name in enumerate(("a", "b")):
        asked = request("gpu", "gpu", capacity={"requests": {"memory": "8Gi"}})
        made.running(name, "n1", "gpu-0", asked)
        owned(made)
        (result,) = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": f"0000000{number}-0000-0000-0000-000000000000", "consumedCapacity": {"memory": "8Gi"}}
    report = await defrag(made.cluster(), partial(goals.free_device, device="gpu.example.com/n1/gpu-0"))
    assert moved(report) == {"a": "n1", "b": "n1"}
    assert {move.after.devices for move in report.moves} == {("gpu.example.com/n1/gpu-1",)}


async def test_node_is_emptied_of_what_a_drain_evicts() -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    for name, kind in (("own", "DaemonSet"), ("static", "Node"), ("plain", "ReplicaSet")):
        made.pod(name, request("gpu", "gpu"))
        owned(made, kind)
        spec = made.objects["pods"][-1]["spec"]
        spec["nodeName"] = "n1"
        del spec["resourceClaims"]
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"), most_moves=0)
    assert (report.goal, report.pod, report.lands) == ("node n1 is empty", "", None)
    assert moved(report) == {"a": "n2", "plain": "n2"}
    assert report.what_if == ("--drain", "n1")


async def test_node_is_empty_once_what_leaves_by_itself_has_left_and_not_while_a_pod_cannot_be_read() -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    made.running("leaving", "n1", "gpu-1", request("gpu", "gpu"))
    pod_named(made, "leaving")["metadata"]["deletionTimestamp"] = "2026-11-25T09:40:00Z"
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"))
    assert moved(report) == {"a": "n2"}
    del pod_named(made, "leaving")["metadata"]["deletionTimestamp"]
    pod_named(made, "leaving")["spec"]["containers"] = "none"
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"))
    assert (report.finding, staying(report)) == (Finding.NONE, {"leaving": "cannot be read"})


async def test_pod_that_is_being_deleted_needs_no_room_beside_the_pod_in_its_place() -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    made.running("leaving", "n1", "gpu-1", request("gpu", "gpu"))
    pod_named(made, "leaving")["metadata"]["deletionTimestamp"] = "2026-11-25T09:40:00Z"
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"))
    made.pod("replacement", request("gpu", "gpu"), priority=1)
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"))
    assert moved(report) == {"a": "n3"}
    played = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert {row.pod: (row.after.kind, row.after.node) for row in played.pods} == {
        "ml/a": (OutcomeKind.LANDS, "n3"),
        "ml/leaving": (OutcomeKind.ENDED, ""),
        "ml/replacement": (OutcomeKind.LANDS, "n2"),
    }
    assert played.changes == ("node n1 cordoned, 1 pod evicted, 1 ended",)


async def test_node_from_which_a_pod_can_go_nowhere_names_the_pod() -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    pod_named(made, "a")["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"))
    assert (report.finding, report.pod, report.bound) == (Finding.NONE, "ml/a", "")
    assert {reason.text for reason in report.reasons} == {
        "node(s) were unschedulable",
        "node(s) didn't match Pod's node affinity/selector",
    }
    assert "ml/a fits nowhere, though all pods that may be moved have ended" in text(report)


async def test_claim_fits_with_the_pod_that_waits_for_it_or_without_one(made: MadeCluster) -> None:
    goal: FindGoal = partial(goals.fit_claim, key=(NAMESPACE, "claim-train"))
    report = await defrag(made.cluster(), goal)
    assert (report.goal, report.pod, report.what_if) == ("claim ml/claim-train fits", "ml/train", ("--evict", "ml/a"))
    made.objects["pods"].pop()
    report = await defrag(made.cluster(), goal)
    assert (report.pod, report.what_if) == ("ml/reserved-1", ("--reserve", "ml/claim-train", "--evict", "ml/a"))


async def test_pod_that_a_budget_protects_stays_and_another_one_moves(made: MadeCluster) -> None:
    pod_named(made, "a")["metadata"]["labels"] = {"app": "a"}
    made.add(budget(0, {"matchLabels": {"app": "a"}}))
    report = await defrag(made.cluster(), FIT)
    assert moved(report) == {"b": "n1"}
    assert staying(report) == {"a": "PodDisruptionBudget ml/keep forbids it"}


def both_of_n1_in_the_way(allowed: int) -> MadeCluster:
    """The GPUs of n1 are those of `a` and `c`, which one budget protects; n3 has room for both."""
    made = small_pods(MadeCluster())
    made.running("c", "n1", "gpu-1", request("gpu", "gpu"))
    owned(made)
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"))
    for name in ("a", "c"):
        pod_named(made, name)["metadata"]["labels"] = {"app": "a"}
    pod_named(made, "train")["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    made.add(budget(allowed, {"matchLabels": {"app": "a"}}))
    return made


@pytest.mark.parametrize(("allowed", "expected"), [(1, []), (2, ["a", "c"])])
async def test_budget_counts_the_pods_that_move_together(allowed: int, expected: list[str]) -> None:
    report = await defrag(both_of_n1_in_the_way(allowed).cluster(), FIT)
    assert (sorted(moved(report)), report.bound) == (expected, "")
    if allowed == 1:
        assert staying(report) == dict.fromkeys(("a", "c"), "PodDisruptionBudget ml/keep forbids it together")


async def test_node_whose_pods_may_not_move_says_which_budget_forbids_it() -> None:
    report = await defrag(both_of_n1_in_the_way(1).cluster(), partial(goals.empty_node, node="n1"))
    assert report.finding is Finding.NONE
    assert staying(report) == dict.fromkeys(("a", "c"), "PodDisruptionBudget ml/keep forbids it together")
    assert "ml/a, ml/c: PodDisruptionBudget ml/keep forbids it together" in text(report)


async def test_pods_of_a_higher_priority_than_the_pod_that_is_to_fit_stay() -> None:
    made = small_pods(MadeCluster(), priority=5)
    pod_named(made, "a")["spec"]["priority"] = 7
    report = await defrag(made.cluster(), FIT)
    assert moved(report) == {"b": "n1"}
    assert staying(report) == {"a": "priority above 5"}


@pytest.mark.parametrize(
    ("priority", "most", "finding"),
    [(7, None, Finding.PLAN), (7, 6, Finding.NONE), (7, 7, Finding.PLAN), (2_000_000_000, None, Finding.NONE)],
)
async def test_pods_above_a_priority_and_those_of_the_system_stay(
    priority: int, most: int | None, finding: Finding
) -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    pod_named(made, "a")["spec"]["priority"] = priority
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"), most_priority=most)
    assert report.finding is finding


async def test_of_equally_few_moves_the_lower_priority_moves_and_no_pod_is_lost(made: MadeCluster) -> None:
    pod_named(made, "a")["spec"]["priority"] = -1
    pod_named(made, "b")["spec"]["priority"] = -5
    assert moved(await defrag(made.cluster(), FIT)) == {"b": "n1"}
    del pod_named(made, "b")["metadata"]["ownerReferences"]
    assert moved(await defrag(made.cluster(), FIT)) == {"a": "n2"}


async def test_pod_without_a_controller_is_said_to_be_lost(made: MadeCluster) -> None:
    for name in ("a", "b"):
        del pod_named(made, name)["metadata"]["ownerReferences"]
    report = await defrag(made.cluster(), FIT)
    assert [move.controller for move in report.moves] == [""]
    assert "ml/a has no controller: create it again after the end" in text(report)


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
async def test_pods_that_belong_to_their_node_do_not_move(made: MadeCluster, kind: str) -> None:
    for each in ("a", "b"):
        pod_named(made, each)["metadata"]["ownerReferences"][0]["kind"] = kind
    report = await defrag(made.cluster(), FIT)
    assert (report.finding, report.bound, report.staying) == (Finding.NONE, "", ())


@pytest.mark.parametrize("field", ["deletionTimestamp", "phase"])
async def test_pod_that_leaves_by_itself_is_no_move(made: MadeCluster, field: str) -> None:
    for name in ("a", "b"):
        if field == "phase":
            pod_named(made, name)["status"]["phase"] = "Failed"
        else:
            pod_named(made, name)["metadata"][field] = "2026-11-25T09:40:00Z"
    assert (await defrag(made.cluster(), FIT)).finding is Finding.NONE


async def test_pods_that_share_a_claim_move_both() -> None:
    made = small_pods(MadeCluster())
    pod_named(made, "b")["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    shared = pod_named(made, "a")
    second = {**shared, "metadata": {**shared["metadata"], "name": "a2", "uid": "uid-a2"}}
    made.add(second)
    claim = next(each for each in made.objects["resourceclaims"] if each["metadata"]["name"] == "claim-a")
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "a2", "uid": "uid-a2"})
    report = await defrag(made.cluster(), FIT)
    assert moved(report) == {"a": "n2", "a2": "n2"}
    assert {move.after.devices for move in report.moves} == {("gpu.example.com/n2/gpu-1",)}


async def test_members_of_a_gang_move_together_or_not_at_all() -> None:
    made = small_pods(MadeCluster())
    made.add(pod_group("band", NAMESPACE, min_count=2))
    for name in ("a", "b"):
        pod_named(made, name)["spec"]["schedulingGroup"] = {"podGroupName": "band"}
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"))
    report = await defrag(made.cluster(), FIT, most_moves=1)
    assert (report.finding, report.bound) == (Finding.NONE, "1 move, which is the limit")
    report = await defrag(made.cluster(), FIT)
    assert sorted(moved(report)) == ["a", "b"]


async def test_node_is_emptied_of_one_member_of_a_gang_while_the_others_stay_where_they_are() -> None:
    made = small_pods(MadeCluster())
    made.objects["pods"].pop()
    made.add(pod_group("band", NAMESPACE, min_count=2))
    for name in ("a", "b"):
        pod_named(made, name)["spec"]["schedulingGroup"] = {"podGroupName": "band"}
    report = await defrag(made.cluster(), partial(goals.empty_node, node="n1"))
    assert moved(report) == {"a": "n2"}


async def test_members_of_the_gang_that_is_to_fit_stay(made: MadeCluster) -> None:
    made.add(pod_group("band", NAMESPACE, min_count=1))
    for name in ("a", "train"):
        pod_named(made, name)["spec"]["schedulingGroup"] = {"podGroupName": "band"}
    report = await defrag(made.cluster(), FIT)
    assert moved(report) == {"b": "n1"}
    assert staying(report) == {"a": "member of the PodGroup that is to fit"}


async def test_pod_that_would_land_next_keeps_a_place(made: MadeCluster) -> None:
    """A GPU is free for `a` only as long as `next` does not land there, which is before it in the queue."""
    pod_named(made, "b")["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    made.pod("next", request("gpu", "gpu"), nodeSelector={"kubernetes.io/hostname": "n2"})
    assert (await defrag(made.cluster(), FIT)).finding is Finding.NONE


async def test_devices_that_several_nodes_reach_are_freed_from_any_of_them() -> None:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.add(resource_slice("net", pool="net", allNodes=True, devices=[device("gpu-0"), device("gpu-1")]))
    made.gpus("n1", device("gpu-0"))
    made.running("a", "n1", "gpu-0", request("gpu", "gpu"))
    owned(made)
    (result,) = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
    result["pool"] = "net"
    made.pod("train", request("gpu", "gpu", count=2), nodeSelector={"kubernetes.io/hostname": "n2"})
    report = await defrag(made.cluster(), FIT)
    assert moved(report) == {"a": "n1"}
    assert report.moves[0].after.devices == ("gpu.example.com/n1/gpu-0",)


async def test_pod_with_admin_access_is_not_in_the_way(made: MadeCluster) -> None:
    watch = request("gpu", "gpu", adminAccess=True)
    made.running("monitor", "n1", "gpu-1", watch)
    owned(made)
    (result,) = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
    result["adminAccess"] = True
    assert moved(await defrag(made.cluster(), FIT)) == {"a": "n2"}


async def test_pod_of_a_scheduler_that_never_acted_is_marked(made: MadeCluster) -> None:
    pod_named(made, "train")["spec"]["schedulerName"] = "absent"
    pod_named(made, "train")["status"] = {}
    report = await defrag(made.cluster(), FIT)
    assert report.lands is not None
    assert report.lands.unjudged[0].startswith("no scheduler named absent has acted")


@pytest.mark.parametrize(
    ("find_goal", "said"),
    [
        (partial(goals.fit_pod, key=(NAMESPACE, "none")), "--pod: pod ml/none does not exist in a test"),
        (
            partial(goals.fit_pod, key=(NAMESPACE, "a")),
            "--pod: expected a pod that waits for a node, ml/a is on node n1",
        ),
        (partial(goals.fit_claim, key=(NAMESPACE, "no")), "--claim: claim ml/no does not exist in a test"),
        (partial(goals.fit_claim, key=(NAMESPACE, "claim-a")), "--claim: expected a claim without devices"),
        (partial(goals.empty_node, node="n9"), "--empty-node: node n9 does not exist in a test"),
        (partial(goals.free_device, device="none"), "DeviceClass none does not exist in a test"),
        (
            partial(goals.free_device, device="gpu.example.com/n1/gpu-9"),
            "device gpu.example.com/n1/gpu-9 does not exist",
        ),
        (partial(goals.free_device, device="ml/claim-a"), "--free-device: expected a DeviceClass, DRIVER/POOL/DEVICE"),
        (
            partial(goals.free_device, device="device.("),
            "expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression",
        ),
    ],
)
async def test_wrong_question_is_refused(made: MadeCluster, find_goal: FindGoal, said: str) -> None:
    with pytest.raises(ChangeError) as problem:
        await defrag(made.cluster(), find_goal)
    assert str(problem.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "limit", "bound"),
    [
        ("MOST_SETS", 1, "1 set of pods was tried, which is the limit"),
        ("SECONDS", -1.0, "sets of pods were tried for -1 s, which is the limit"),
        ("MOST_KEPT", 1, "1 set of pods was to be tried, which is the limit"),
    ],
)
async def test_bound_that_ends_the_search_is_named(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch, name: str, limit: float, bound: str
) -> None:
    monkeypatch.setattr(search, name, limit)
    monkeypatch.setattr(search, "MOST_NODES", 0)
    report = await defrag(made.cluster(), FIT)
    assert (report.finding, report.fewest, report.bound) == (Finding.NONE, False, bound)
    assert bound in " ".join(text(report).split())


async def test_plan_that_is_found_before_all_smaller_sets_are_tried_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_SETS", 3)
    report = await defrag(both_of_n1_in_the_way(2).cluster(), FIT)
    assert (report.finding, report.fewest) == (Finding.PLAN, False)
    assert "whether fewer are enough is not known: 3 sets of pods were tried" in " ".join(text(report).split())


async def test_without_the_right_to_read_there_is_no_answer_and_unread_budgets_are_noted(made: MadeCluster) -> None:
    made.missing = (MissingKind(kind=BUDGETS, reason="forbidden"),)
    report = await defrag(made.cluster(), FIT)
    assert report.notes == ("PodDisruptionBudgets were not read",)
    made.missing = (MissingKind(kind="pods", reason="forbidden"),)
    with pytest.raises(UnreadKindsError):
        await defrag(made.cluster(), FIT)


async def test_same_objects_have_the_same_answer_and_nothing_of_them_changes(made: MadeCluster) -> None:
    objects = made.cluster()
    reports = [await defrag(objects, FIT) for _ in range(2)]
    assert reports[0] == reports[1]
    assert objects == made.cluster()


async def test_thousands_of_pods_have_an_answer() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    for number in range(200):
        name = f"n{number:03}"
        made.nodes(name)
        made.gpus(name, *(device(f"gpu-{index}") for index in range(4)))
        for index in range(1 if number == 120 else 3):
            made.running(f"p-{number:03}-{index}", name, f"gpu-{index}", request("gpu", "gpu"))
            owned(made)
        for index in range(3):
            made.pod(f"plain-{number:03}-{index}", request("gpu", "gpu"))
            owned(made)
            spec = made.objects["pods"][-1]["spec"]
            del spec["resourceClaims"]
            spec["nodeName"] = name
    made.pod("train", request("gpu", "gpu", count=4))
    report = await defrag(made.cluster(), FIT)
    assert list(moved(report)) == ["p-120-0"]
