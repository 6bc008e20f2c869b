"""What happens next, and what would happen after changes: who lands where, who waits and why."""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from dra_extender.inspection.objects import KINDS, ClusterObjects, MissingKind, UnreadKindsError
from dra_extender.inspection.text.what_if import table
from dra_extender.inspection.what_if import trial
from dra_extender.inspection.what_if.changes import ChangeError, Changes, WrittenObject
from dra_extender.inspection.what_if.report import Fate, OutcomeKind, PodOutcome, WhatIfReport
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.controlplane import objects
from tests.controlplane.objects import device, device_class, pod_group, request, resource_claim, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

LANDS, WAITS, RUNS, ENDED = OutcomeKind.LANDS, OutcomeKind.WAITS, OutcomeKind.RUNS, OutcomeKind.ENDED


def after(report: WhatIfReport) -> dict[str, PodOutcome]:
    return {each.pod.removeprefix(f"{NAMESPACE}/"): each.after for each in report.pods}


def landing(report: WhatIfReport) -> dict[str, str]:
    """The node of each pod that lands, `waits` for others that have none."""
    return {name: each.node if each.kind is LANDS else str(each.kind) for name, each in after(report).items()}


def written(kind: str, item: dict[str, Any]) -> WrittenObject:
    return WrittenObject(StoredKind(kind), item, "changes.yaml:1")


async def test_without_changes_the_waiting_pods_are_placed_and_those_that_fit_nowhere_say_why(
    made: MadeCluster,
) -> None:
    made.pod("first", request("gpu", "gpu"))
    made.pod("second", request("gpu", "gpu"))

    report = await what_if(made.cluster())

    assert landing(report) == {"first": "n2", "second": "waits"}
    assert after(report)["first"].devices == ("gpu.example.com/n2/gpu-0",)
    (reason,) = after(report)["second"].reasons
    assert (reason.nodes, "in use" in reason.text) == (2, True)
    assert {each.before.kind for each in report.pods} == {WAITS}


async def test_pods_are_placed_by_priority_and_then_by_age(made: MadeCluster) -> None:
    made.pod("young", request("gpu", "gpu"))
    made.pod("older", request("gpu", "gpu"))
    made.objects["pods"][-1]["metadata"]["creationTimestamp"] = "2026-11-20T00:00:00Z"
    assert landing(await what_if(made.cluster())) == {"young": "waits", "older": "n2"}
    made.pod("urgent", request("gpu", "gpu"), priority=10)
    assert landing(await what_if(made.cluster())) == {"young": "waits", "older": "waits", "urgent": "n2"}


async def test_node_that_kube_scheduler_refuses_is_not_used_though_its_devices_are_free(made: MadeCluster) -> None:
    made.pod("large", request("gpu", "gpu"), cpu="65")
    report = await what_if(made.cluster())
    assert [(each.nodes, each.text) for each in after(report)["large"].reasons] == [(2, "Insufficient cpu")]
    assert report.verified == ""


async def test_cpu_that_a_placed_pod_takes_is_not_given_to_the_next(made: MadeCluster) -> None:
    made.gpus("n2", device("nic-0"), device("nic-1"), driver="nic.example.com")
    made.add(device_class("nic", 'device.driver == "nic.example.com"'))
    made.pod("a", request("nic", "nic"), cpu="40")
    made.pod("b", request("nic", "nic"), cpu="40")
    assert landing(await what_if(made.cluster())) == {"a": "n2", "b": "waits"}


async def test_devices_of_a_claim_that_another_pod_uses_too_stay_allocated(made: MadeCluster) -> None:
    shared = made.objects["resourceclaims"][-1]
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "uid-other"})
    made.running("busy", "n2", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))

    report = await what_if(made.cluster(), Changes(without=[(NAMESPACE, "old")]))

    assert landing(report)["train"] == "waits"
    (fate,) = next(each.claims for each in report.pods if each.pod == "ml/old")
    assert (fate.fate, fate.users) == (Fate.KEPT, ("ml/other",))


async def test_drained_node_takes_no_pod_and_its_own_move_or_wait(made: MadeCluster) -> None:
    report = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert landing(report) == {"old": "n2"}
    assert report.pods[0].evicted
    assert report.changes == (
        "node n1 cordoned, 1 pod evicted",
        "ml/old has no controller: create it again after the end; kubectl drain needs --force",
    )
    made.running("busy", "n2", "gpu-0", request("gpu", "gpu"))
    assert landing(await what_if(made.cluster(), Changes(drained=["n1"]))) == {"old": "waits"}


async def test_a_pod_that_a_new_taint_evicts_is_named(made: MadeCluster) -> None:
    taint = {"key": "broken", "effect": "NoExecute"}
    rule = {"metadata": {"name": "broken"}, "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}}
    report = await what_if(made.cluster(), Changes(objects=[written("devicetaintrules", rule)]))
    assert report.notes == (
        (
            "kube-controller-manager evicts pod ml/old, which is counted as running here: claim gpu: "
            "device gpu.example.com/n1/gpu-0 has taint broken:NoExecute, which the allocation does not tolerate"
        ),
    )
    made.objects["devicetaintrules"] = [rule]
    assert (await what_if(made.cluster(), Changes(drained=["n2"]))).notes == ()


async def test_a_pod_whose_device_a_written_slice_lacks_is_named(made: MadeCluster) -> None:
    (was,) = (item for item in made.objects["resourceslices"] if item["spec"]["nodeName"] == "n1")
    other = {**was, "spec": {**was["spec"], "devices": [device("gpu-9")]}}
    report = await what_if(made.cluster(), Changes(objects=[written("resourceslices", other)]))
    (note,) = report.notes
    assert note.startswith("pod ml/old, which is counted as running here, has device gpu.example.com/n1/gpu-0: ")
    made.objects["resourceslices"].remove(was)
    assert (await what_if(made.cluster(), Changes(drained=["n2"]))).notes == ()


async def test_many_evicted_pods_are_counted(made: MadeCluster) -> None:
    made.gpus("n3", *(device(f"gpu-{number}") for number in range(20)))
    for number in range(20):
        made.running(f"run-{number}", "n3", f"gpu-{number}", request("gpu", "gpu"))
    taint = {"key": "broken", "effect": "NoExecute"}
    rule = {"metadata": {"name": "broken"}, "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}}
    report = await what_if(made.cluster(), Changes(objects=[written("devicetaintrules", rule)]))
    assert (len(report.notes), report.notes[-1]) == (11, "kube-controller-manager evicts 11 further pods")


async def test_evicted_pod_is_placed_again_after_those_that_waited_before(made: MadeCluster) -> None:
    assert landing(await what_if(made.cluster(), Changes(evicted=[(NAMESPACE, "old")]))) == {"old": "n1"}
    made.pod("train", request("gpu", "gpu"), nodeSelector={"kubernetes.io/hostname": "n1"})
    report = await what_if(made.cluster(), Changes(evicted=[(NAMESPACE, "old")]))
    assert landing(report) == {"train": "n1", "old": "n2"}
    assert report.changes == ("pod ml/old evicted", "ml/old has no controller: create it again after the end")


async def test_only_evicted_pods_without_a_controller_are_lost(made: MadeCluster) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "uid": "r", "controller": True}
    made.objects["pods"][-1]["metadata"]["ownerReferences"] = [owner]
    made.nodes("n3", "n4")
    for name in ("n3", "n4"):
        made.running(f"bare-{name}", name, "gpu-0", request("gpu", "gpu"))
    report = await what_if(made.cluster(), Changes(evicted=[(NAMESPACE, "old")], drained=["n3", "n4"]))
    assert report.changes[-1] == (
        "ml/bare-n3, ml/bare-n4 have no controller: create them again after the end; kubectl drain needs --force"
    )
    report = await what_if(made.cluster(), Changes(evicted=[(NAMESPACE, "bare-n3")], drained=["n1"]))
    assert report.changes[-1] == "ml/bare-n3 has no controller: create it again after the end"


async def test_reserved_devices_are_taken_before_any_pod_is_placed(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"), priority=2_000_000_000)
    report = await what_if(made.cluster(), Changes(reserved=["gpu"]))
    assert landing(report) == {"train": "waits", "what-if/reserved-1": "n2"}
    report = await what_if(made.cluster(), Changes(reserved=["gpu"] * 2, without=[(NAMESPACE, "old")]))
    assert landing(report) == {"old": "ended", "train": "waits", "what-if/reserved-1": "n1", "what-if/reserved-2": "n2"}
    assert report.changes == ("pod ml/old ended", "a device of class gpu reserved", "a device of class gpu reserved")


async def test_evicted_pod_gets_a_new_claim_from_its_template(made: MadeCluster) -> None:
    pod, claim = made.objects["pods"][-1], made.objects["resourceclaims"][-1]
    made.objects["resourceclaims"].clear()
    uid = pod["metadata"]["uid"]
    made.add(template("one", request("gpu", "gpu")))
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "claim-old"}]
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "old", "uid": uid, "controller": True}
    ]
    made.add(claim)

    report = await what_if(made.cluster(), Changes(drained=["n1"]))

    assert landing(report) == {"old": "n2"}
    assert [(each.claim, each.fate) for each in report.pods[0].claims] == [("claim-old", Fate.GENERATED)]


async def test_evicted_pod_whose_claim_others_keep_waits_for_the_node_of_its_devices(made: MadeCluster) -> None:
    claim = made.objects["resourceclaims"][-1]
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "uid-other"})
    report = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert landing(report) == {"old": "waits"}
    assert report.pods[0].claims[0].fate is Fate.KEPT


async def test_pods_of_daemon_sets_stay_on_a_drained_node(made: MadeCluster) -> None:
    made.objects["pods"][-1]["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "driver", "uid": "d", "controller": True}
    ]
    report = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert (report.pods, report.changes) == ((), ("node n1 cordoned, 0 pods evicted, 1 stay",))


async def test_pods_without_devices_are_placed_after_the_others_where_there_is_room(made: MadeCluster) -> None:
    for name, priority in (("plain-0", 10), ("plain-1", 10)):
        made.pod(name, request("gpu", "gpu"), priority=priority, cpu="40")
        del made.objects["pods"][-1]["spec"]["resourceClaims"]
    made.pod("train", request("gpu", "gpu"), cpu="40")

    report = await what_if(made.cluster())

    assert landing(report) == {"plain-0": "n1", "plain-1": "waits", "train": "n2"}
    assert [each.pod for each in report.pods if each.plain] == ["ml/plain-0", "ml/plain-1"]
    assert table(report).splitlines()[:5] == [
        "next 2 pods land and 1 waits",
        "",
        "POD       NOW    NEXT",
        "ml/train  waits  lands on n2 (gpu-0)",
        "of those that ask for no devices 1 pod lands and 1 waits",
    ]


async def test_copies_of_a_node_have_its_devices_under_new_names(made: MadeCluster) -> None:
    for name in ("a", "b", "c"):
        made.pod(name, request("gpu", "gpu"))
    report = await what_if(made.cluster(), Changes(added=[("n1", 2)]))
    assert sorted(landing(report).values()) == ["n1-added-1", "n1-added-2", "n2"]
    assert sum("added" in "".join(each.devices) for each in after(report).values()) == 2


async def test_copy_of_a_drained_node_takes_its_pods(made: MadeCluster) -> None:
    made.running("busy", "n2", "gpu-0", request("gpu", "gpu"))
    changes = Changes(added=[("n1", 1)], drained=["n1"])
    assert landing(await what_if(made.cluster(), changes)) == {"old": "n1-added-1"}


async def test_created_objects_take_part(made: MadeCluster) -> None:
    more = resource_slice("more", pool="more", node="n2", devices=[device("gpu-9")], driver="nic.example.com")
    changes = Changes(
        objects=[
            written("deviceclasses", device_class("nic", 'device.driver == "nic.example.com"')),
            written("resourceslices", more),
            written("resourceclaims", with_mode(resource_claim("new", NAMESPACE, request("nic", "nic")))),
            written("pods", pod("newcomer", "new")),
        ]
    )
    report = await what_if(made.cluster(), changes)
    assert landing(report) == {"newcomer": "n2"}
    assert report.pods[0].before.kind is OutcomeKind.ABSENT


async def test_claim_whose_spec_is_replaced_gives_its_devices_back(made: MadeCluster) -> None:
    made.running("busy", "n2", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))
    same = with_mode(resource_claim("claim-busy", NAMESPACE, request("gpu", "gpu")))
    assert landing(await what_if(made.cluster(), Changes(objects=[written("resourceclaims", same)]))) == {
        "train": "waits"
    }
    other = with_mode(resource_claim("claim-busy", NAMESPACE, request("gpu", "gpu", count=2)))
    report = await what_if(made.cluster(), Changes(objects=[written("resourceclaims", other)]))
    assert landing(report) == {"train": "n2"}
    assert report.changes == ("ResourceClaim ml/claim-busy replaced by a new one, whose spec differs",)


@pytest.mark.parametrize(("free", "landed"), [(1, {"WAITS"}), (2, {"LANDS"})])
async def test_gang_lands_as_a_whole_or_waits_as_a_whole(made: MadeCluster, free: int, landed: set[str]) -> None:
    made.add(pod_group("band", NAMESPACE, min_count=2))
    if free == 2:
        made.nodes("n3")
        made.gpus("n3", device("gpu-0"))
    for name in ("band-0", "band-1"):
        made.pod(name, request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    made.pod("alone", request("gpu", "gpu"), priority=-1)

    report = await what_if(made.cluster())

    found = after(report)
    assert {found["band-0"].kind.name, found["band-1"].kind.name} == landed
    assert (found["alone"].kind is LANDS) == (free == 1)


@pytest.mark.parametrize(
    ("cpu", "nodes", "landed"),
    [
        pytest.param(["40", "40"], ["64"], {"waits"}, id="room-for-one"),
        pytest.param(["40", "40"], ["64", "64"], {"n1", "n2"}, id="room-on-two-nodes"),
        pytest.param(["40", "1"], ["64", "16"], {"n1", "n2"}, id="first-member-may-use-one-node"),
    ],
)
async def test_members_of_a_gang_need_room_beside_each_other(
    cpu: list[str], nodes: list[str], landed: set[str]
) -> None:
    made = MadeCluster()
    made.add(device_class("gpu"), pod_group("team", NAMESPACE, min_count=2))
    for number, each in enumerate(nodes, start=1):
        made.add(objects.node(f"n{number}", cpu=each))
        made.gpus(f"n{number}", *(device(f"gpu-{index}") for index in range(2 if len(nodes) == 1 else 1)))
    for number, each in enumerate(cpu):
        made.pod(f"worker-{number}", request("gpu", "gpu"), cpu=each, schedulingGroup={"podGroupName": "team"})
    assert set(landing(await what_if(made.cluster())).values()) == landed


async def test_member_of_a_gang_that_asks_for_no_devices_counts_as_one(made: MadeCluster) -> None:
    made.add(pod_group("band", NAMESPACE, min_count=2))
    made.pod("band-0", request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    made.pod("band-1", request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    del made.objects["pods"][-1]["spec"]["resourceClaims"]
    assert landing(await what_if(made.cluster())) == {"band-0": "n2", "band-1": "n1"}


async def test_template_of_a_pod_group_makes_one_claim_for_all_members(made: MadeCluster) -> None:
    made.add(template("one", request("gpu", "gpu")))
    made.add(pod_group("band", NAMESPACE, min_count=2, templates={"gpu": "one"}))
    for name in ("band-0", "band-1"):
        made.pod(name, request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
        made.objects["pods"][-1]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    found = after(await what_if(made.cluster()))
    assert {each.devices for each in found.values()} == {("gpu.example.com/n2/gpu-0",)}


async def test_extended_resource_gets_the_claim_that_a_bind_makes(made: MadeCluster) -> None:
    made.add(device_class("backing", extendedResourceName="example.com/gpu"))
    made.pod("train", request("gpu", "gpu"), extended={"example.com/gpu": "1"})
    del made.objects["pods"][-1]["spec"]["resourceClaims"]
    made.pod("other", request("gpu", "gpu"), priority=-1)
    found = after(await what_if(made.cluster()))
    assert (found["train"].node, found["train"].devices) == ("n2", ("gpu.example.com/n2/gpu-0",))
    assert found["other"].kind is WAITS


async def test_pods_beyond_the_bound_are_said_to_be_left_out(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MOST_PODS", 1)
    made.pod("a", request("gpu", "gpu"))
    made.pod("b", request("gpu", "gpu"))
    found = after(await what_if(made.cluster()))
    assert found["a"].kind is LANDS
    assert found["b"].reasons[0].text == "not tried: 1 pods are before it in the queue"


async def test_namespace_whose_pods_take_too_long_leaves_time_to_the_others(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "NAMESPACE_SECONDS", 0.0)
    for name in ("a", "b"):
        made.pod(name, request("gpu", "gpu"), priority=1)
    made.add(resource_claim("claim-c", "dev", request("gpu", "gpu", allocationMode="ExactCount")))
    made.add(objects.pod("c", "dev", claims={"gpu": "claim-c"}))
    found = after(await what_if(made.cluster()))
    assert found["a"].node == "n2"
    assert "not tried: placing pods of namespace ml has taken 0 s" in found["b"].reasons[0].text
    assert "in use" in found["dev/c"].reasons[0].text


@pytest.mark.parametrize("kind", KINDS)
async def test_kind_without_which_nothing_can_be_said_is_named(made: MadeCluster, kind: str) -> None:
    made.missing = (MissingKind(kind=kind, reason=f"list {kind}: 403 Forbidden"),)
    with pytest.raises(UnreadKindsError, match=rf"may not list {kind} \(ClusterRole dra-viewer.*403 Forbidden"):
        await what_if(made.cluster())


@pytest.mark.parametrize("seed", range(40))
async def test_objects_of_any_shape_are_answered_or_refused_with_a_sentence(made: MadeCluster, seed: int) -> None:
    """A snapshot may have been made by anybody."""
    made.add(template("one", request("gpu", "gpu")))
    made.add(pod_group("band", NAMESPACE, min_count=1, templates={"gpu": "one"}))
    made.pod("band-0", request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    chance = random.Random(seed)
    for _ in range(2):
        kind = chance.choice([kind for kind, found in made.objects.items() if found])
        damage(chance.choice(made.objects[kind]), chance)
    everything = Changes(drained=["n1"], added=[("n1", 1)], without=[(NAMESPACE, "band-0")])
    for changes, subject in ((everything, None), (None, (NAMESPACE, "one")), (None, (NAMESPACE, "old"))):
        with suppress(ChangeError):
            assert table(await what_if(made.cluster(), changes, subject, most=2)).endswith("\n")


def damage(item: Any, chance: random.Random) -> None:
    """Replace or delete one value, somewhere below."""
    while True:
        key = chance.choice(list(item) if isinstance(item, dict) else range(len(item)))
        below = item[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.8:
            item = below
            continue
        junk: Any = chance.choice([None, 0, -1, "", [], {}, [None], True, 1e308, "\x1b[2J", "x" * 300])
        if chance.random() < 0.2:
            del item[key]
        else:
            item[key] = junk
        return


async def test_an_allocation_that_the_api_server_would_refuse_lands_nowhere(made: MadeCluster) -> None:
    made.gpus("n2", device("fabric-0", bindingConditions=["Attached"]), driver="nic.example.com")
    made.add(device_class("nic", 'device.driver == "nic.example.com"'))
    made.pod("train", request("nic", "nic"))
    (reason,) = after(await what_if(made.cluster()))["train"].reasons
    assert "must be set together" in reason.text


async def test_binding_conditions_are_taken_as_reported_and_said(made: MadeCluster) -> None:
    made.gpus(
        "n2",
        device("fabric-0", bindingConditions=["Attached"], bindingFailureConditions=["Failed"]),
        driver="nic.example.com",
    )
    made.add(device_class("nic", 'device.driver == "nic.example.com"'))
    made.pod("train", request("nic", "nic"))
    found = after(await what_if(made.cluster()))["train"]
    assert (found.kind, found.conditions) == (LANDS, ("Attached",))


async def test_gated_pod_waits_and_names_its_gates(made: MadeCluster) -> None:
    made.pod("train", request("gpu", "gpu"), schedulingGates=[{"name": "example.com/quota"}])
    (reason,) = after(await what_if(made.cluster()))["train"].reasons
    assert reason.text == "scheduling gates: example.com/quota"


async def test_answer_does_not_depend_on_the_order_of_the_objects(made: MadeCluster) -> None:
    made.nodes(*(f"m{number}" for number in range(9)))
    for number in range(9):
        made.gpus(f"m{number}", device("gpu-0"), device("gpu-1"))
        made.pod(f"train-{number}", request("gpu", "gpu", count=1 + number % 3))
    changes = Changes(drained=["n1"], added=[("m0", 2)], without=[(NAMESPACE, "train-3")])
    reports = [await what_if(shuffled(made.cluster(), seed), changes) for seed in range(4)]
    assert all(each == reports[0] for each in reports)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(without=[("ml", "nobody")]), "--without: pod ml/nobody does not exist in a test"),
        (Changes(evicted=[("ml", "nobody")]), "--evict: pod ml/nobody does not exist in a test"),
        (Changes(without=[("ml", "ol-d")]), "pod ml/ol-d does not exist in a test; nearest name old"),
        (Changes(drained=["n-1"]), "node n-1 does not exist in a test; nearest name n1"),
        (Changes(evicted=[("ml", "waiting")]), "--evict: expected a pod that has a node, ml/waiting has none"),
        (Changes(reserved=["none"]), "DeviceClass none does not exist in a test"),
        (Changes(reserved=["ml/none"]), "claim ml/none does not exist in a test"),
        (Changes(reserved=["a.example.com/n1/x"]), "device a.example.com/n1/x does not exist in a test"),
        (Changes(reserved=["1 +"]), "expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression, got '1 [+]'"),
        (Changes(drained=["n9"]), "--drain: node n9 does not exist in a test"),
        (Changes(added=[("n9", 1)]), "--add-nodes: node n9 does not exist in a test"),
        (Changes(added=[("n1", 5_001)]), "--add-nodes: expected at most 5000 nodes in all"),
    ],
)
async def test_change_that_cannot_be_made_is_refused_in_the_words_of_its_option(
    made: MadeCluster, changes: Changes, said: str
) -> None:
    made.pod("waiting", request("gpu", "gpu"))
    with pytest.raises(ChangeError, match=said):
        await what_if(made.cluster(), changes)


def shuffled(objects: ClusterObjects, seed: int) -> ClusterObjects:
    def mixed(found: Sequence[bytes]) -> list[bytes]:
        return random.Random(seed).sample(list(found), len(found))

    return ClusterObjects(objects.origin, {kind: mixed(found) for kind, found in objects.by_kind.items()})


def with_mode(claim: dict[str, Any]) -> dict[str, Any]:
    for each in claim["spec"]["devices"]["requests"]:
        each["exactly"].setdefault("allocationMode", "ExactCount")
    return claim


def pod(name: str, claim: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]},
    }


def template(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    claim = with_mode(resource_claim(name, NAMESPACE, *requests))
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


async def test_pod_that_a_change_makes_says_which_name_does_not_exist(made: MadeCluster) -> None:
    made.add(objects.resource_claim_template("large-gpu", NAMESPACE, request("gpu", "gpu")))
    made.pod("other", request("gpu", "tpu"))
    new = objects.pod("new", NAMESPACE, templates={"gpu": "large-gpuu"})

    report = await what_if(made.cluster(), Changes(objects=(written("pods", new),)))

    reasons = {name: [each.text for each in outcome.reasons] for name, outcome in after(report).items()}
    assert reasons["new"] == ['claim "gpu" is not created yet: from template large-gpuu; nearest name large-gpu']
    assert reasons["other"] == [
        'claim "gpu", request "gpu": device class does not exist: device class tpu; there are gpu'
    ]
