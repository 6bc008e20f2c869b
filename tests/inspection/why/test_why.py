"""Why a pod waits: constructed causes, and what is said of each."""

import msgspec
import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import AssumedGate, ClusterObjects, GateState, MissingKind
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import Cause, NodeReason, WhyReport
from dra_extender.inspection.why.why import UnknownObjectError, why

from tests.controlplane.objects import consumption, counter_set, device, device_class, pod, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

MIG_3G = 42 * NANO


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.add(device_class("gpu"))
    return made


def asked(made: MadeCluster, name: str) -> WhyReport:
    return why(made.view(), NAMESPACE, name)


def only(report: WhyReport) -> NodeReason:
    assert len(report.branches) == 1
    assert len(report.branches[0].reasons) == 1
    return report.branches[0].reasons[0]


def memory(amount: str) -> str:
    return f'device.capacity["gpu.example.com"].memory.compareTo(quantity("{amount}")) >= 0'


def gpus_of(made: MadeCluster, sizes: dict[str, str]) -> None:
    made.nodes(*sizes)
    for node, size in sizes.items():
        made.gpus(node, device("gpu-0", capacity={"memory": size}))


def mig_nodes(made: MadeCluster, *nodes: str) -> None:
    made.nodes(*nodes)
    for node in nodes:
        made.partitions(
            node,
            [counter_set("gpu-0", sm="98")],
            [
                *(
                    device(f"mig-{index}", consumes=[consumption("gpu-0", groups=["mig"], sm="42")])
                    for index in range(3)
                ),
                device("vgpu-0", consumes=[consumption("gpu-0", groups=["vgpu"], sm="10")]),
            ],
        )


def test_nearest_device_is_the_one_whose_amounts_differ_least(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "20Gi", "n2": "40Gi", "n3": "10Gi"})
    made.pod("train", request("gpu", "gpu", memory("80Gi")))

    report = asked(made, "train")

    assert (report.cause, report.fitting, report.nodes) == (Cause.DEVICES, 0, 3)
    assert report.branches[0].wanted == "1 x gpu"
    reason = only(report)
    assert (reason.code, reason.nodes) == ("NO_MATCH", 3)
    assert reason.nearest is not None
    assert reason.nearest.device == "gpu.example.com/n2/gpu-0"
    assert "40Gi, wanted at least 80Gi" in reason.nearest.detail


def test_next_step_asks_for_what_the_nearest_device_has_and_names_all_nodes_that_then_fit(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "20Gi", "n2": "40Gi", "n3": "40Gi"})
    made.pod("train", request("gpu", "gpu", memory("80Gi")))

    (step,) = asked(made, "train").next

    assert step.text == "ask for memory >= 40Gi"
    assert sorted(step.nodes) == ["n2", "n3"]


def test_class_that_forbids_all_devices_is_changed_and_no_other_one_is_used(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "20Gi"})
    made.add(device_class("large", memory("80Gi")))
    made.pod("train", request("gpu", "large"))

    report = asked(made, "train")

    assert only(report).code == "NO_MATCH"
    assert [each.text for each in report.next] == ["have DeviceClass large ask for memory >= 20Gi"]


def test_device_in_use_is_said_with_its_holder_and_the_pod_to_end(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))

    report = asked(made, "train")

    nearest = only(report).nearest
    assert nearest is not None
    assert [each.holder.consumers for each in nearest.holders] == [("ml/old",)]
    assert [(each.text, each.nodes) for each in report.next] == [("end ml/old", ("n1",))]


def test_exhausted_counter_is_said_with_what_is_left_and_who_draws_on_it(made: MadeCluster) -> None:
    mig_nodes(made, "n1")
    made.running("a", "n1", "mig-0", request("gpu", "gpu"))
    made.running("b", "n1", "mig-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", 'device.driver == "gpu.example.com"'))

    report = asked(made, "train")

    reason = next(each for each in report.branches[0].reasons if each.code in ("COUNTERS", "GROUPS"))
    assert reason.nearest is not None
    short = reason.nearest.shortage
    assert short is None or (short.counter, short.needed, short.left, short.total) == (
        "sm",
        MIG_3G,
        14 * NANO,
        98 * NANO,
    )
    assert {each.holder.consumers for each in reason.nearest.holders} == {("ml/a",), ("ml/b",)}
    assert report.next[0].text in ("end ml/a", "end ml/b")
    assert report.next[0].nodes == ("n1",)


def test_conflict_of_groups_names_the_groups_in_force_and_whose_they_are(made: MadeCluster) -> None:
    mig_nodes(made, "n1")
    made.running("desk", "n1", "vgpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "mig"))
    made.add(device_class("mig", 'device.driver == "gpu.example.com"', "size(device.attributes) == 0"))

    report = asked(made, "train")

    reason = only(report)
    assert reason.code == "GROUPS"
    assert reason.nearest is not None
    assert reason.nearest.in_force == ("vgpu",)
    assert [(each.groups, each.holder.claim) for each in reason.nearest.holders] == [(("vgpu",), "ml/claim-desk")]
    assert [each.text for each in report.next] == ["end ml/desk"]


def test_several_pods_are_ended_only_where_one_is_not_enough(made: MadeCluster) -> None:
    made.nodes("n1")
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [
            *(
                device(f"small-{index}", attributes={"kind": "small"}, consumes=[consumption("gpu-0", sm="14")])
                for index in range(7)
            ),
            device("whole", attributes={"kind": "whole"}, consumes=[consumption("gpu-0", sm="84")]),
        ],
    )
    made.running("a", "n1", "small-0", request("gpu", "gpu"))
    made.running("b", "n1", "small-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].kind == "whole"'))

    assert [each.text for each in asked(made, "train").next] == ["end ml/a"]


def test_taint_is_said_and_tolerating_it_is_the_next_step(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", device("gpu-0", taints=[{"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}]))
    made.pod("train", request("gpu", "gpu"))

    report = asked(made, "train")

    reason = only(report)
    assert reason.nearest is not None
    assert "example.com/broken=yes:NoSchedule" in reason.nearest.detail
    assert [(each.text, each.nodes) for each in report.next] == [
        ("tolerate example.com/broken=yes:NoSchedule", ("n1",))
    ]


def test_missing_class_is_said_with_the_class_of_the_nearest_name(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.add(device_class("gpu.example.com"))
    made.pod("train", request("gpu", "gpu.example.co"))

    report = asked(made, "train")

    assert only(report).code == "CLASS_MISSING"
    assert [(each.text, each.nodes) for each in report.next] == [("use the DeviceClass gpu.example.com", ("n1",))]


def test_fewer_devices_are_the_next_step_where_no_node_has_so_many(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    made.pod("train", request("gpu", "gpu", count=8))

    assert [(each.text, each.nodes) for each in asked(made, "train").next] == [("ask for 3 devices", ("n1",))]


def test_claim_that_does_not_exist_is_the_cause_for_the_pod_as_a_whole(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.add(pod("train", NAMESPACE, claims={"gpu": "absent"}))

    report = asked(made, "train")

    assert report.cause is Cause.CLAIMS
    assert only(report).code == "CLAIM_MISSING"
    assert "ml/absent" in only(report).text


def test_pod_whose_devices_are_there_waits_for_something_else(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.pod("train", request("gpu", "gpu"))
    made.objects["pods"][-1]["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes: Insufficient cpu.",
            }
        ]
    }

    report = asked(made, "train")

    assert (report.cause, report.fitting) == (Cause.NOT_DEVICES, 1)
    assert report.said == "0/1 nodes: Insufficient cpu."


def test_what_has_nothing_to_do_with_devices_comes_first(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.running("bound", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("gated", request("gpu", "gpu"), schedulingGates=[{"name": "example.com/quota"}])
    made.add(pod("plain", NAMESPACE))

    view = made.view()
    assert why(view, NAMESPACE, "bound").cause is Cause.BOUND
    gated = why(view, NAMESPACE, "gated")
    assert gated.cause is Cause.GATED
    assert "example.com/quota" in gated.summary
    assert why(view, NAMESPACE, "plain").cause is Cause.NO_DEVICES


def test_awaited_condition_is_said_with_its_device_and_the_end_of_the_wait(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus(
        "n1", device("gpu-0", bindsToNode=True, bindingConditions=["Attached"], bindingFailureConditions=["Failed"])
    )
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["nodeName"] = ""
    allocation = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0]["bindingConditions"] = ["Attached"]
    allocation["allocationTimestamp"] = "2026-11-25T09:46:00Z"

    report = asked(made, "train")

    assert report.cause is Cause.CONDITIONS
    (awaited,) = report.awaited
    assert (awaited.device, awaited.conditions, awaited.state) == ("gpu.example.com/n1/gpu-0", ("Attached",), "pending")
    assert awaited.limit - report.origin.taken_at == 560


def test_asking_changes_nothing_so_that_the_same_question_has_the_same_answer(made: MadeCluster) -> None:
    mig_nodes(made, "n1", "n2")
    made.running("a", "n1", "mig-0", request("gpu", "gpu"))
    made.running("b", "n1", "mig-1", request("gpu", "gpu"))
    made.running("c", "n2", "vgpu-0", request("gpu", "gpu"))
    made.add(device_class("mig", 'device.driver == "gpu.example.com"', "size(device.attributes) == 0"))
    made.pod("first", request("gpu", "gpu", memory("80Gi")))
    made.pod("second", request("gpu", "mig"))

    view = made.view()
    before = [why(view, NAMESPACE, name) for name in ("first", "second")]
    assert [why(view, NAMESPACE, name) for name in ("first", "second")] == before
    assert before == [asked(made, name) for name in ("first", "second")]


def test_unknown_pod_is_said_with_where_it_was_looked_for(made: MadeCluster) -> None:
    with pytest.raises(UnknownObjectError, match="pod ml/nobody does not exist in a test"):
        asked(made, "nobody")


def test_template_that_could_not_be_read_is_to_be_looked_for(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.add(pod("train", NAMESPACE, templates={"gpu": "absent"}))
    made.missing = (MissingKind(kind="resourceclaimtemplates", reason="403 Forbidden"),)

    (step,) = asked(made, "train").next
    assert (step.text, step.nodes) == ("look whether ResourceClaimTemplate ml/absent exists", ())


def test_nodes_are_not_judged_where_nodes_or_pods_could_not_be_read(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "40Gi"})
    cluster = made.cluster()
    assert ClusterView(cluster).node_fit is not None
    for absent in ("nodes", "pods"):
        by_kind = {kind: found for kind, found in cluster.by_kind.items() if kind != absent}
        assert ClusterView(ClusterObjects(cluster.origin, by_kind)).node_fit is None
    named = msgspec.structs.replace(cluster.origin, missing=(MissingKind(kind="nodes", reason="403 Forbidden"),))
    by_kind = {**cluster.by_kind, "nodes": [b'{"metadata": {"name": "n1"}}']}
    assert ClusterView(ClusterObjects(named, by_kind)).node_fit is None, "of these nodes nothing but the names is known"


@pytest.mark.parametrize(("state", "serves"), [(GateState.ON, True), (GateState.UNKNOWN, True), (GateState.OFF, False)])
def test_device_class_serves_an_extended_resource_unless_the_gate_is_off(
    made: MadeCluster, state: GateState, *, serves: bool
) -> None:
    gpus_of(made, {"n1": "40Gi"})
    made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.add(pod("train", NAMESPACE, cpu="0", extended={"example.com/gpu": "1"}))
    cluster = made.cluster()
    gates = (AssumedGate(gate="DRAExtendedResource", state=state),)
    view = ClusterView(ClusterObjects(msgspec.structs.replace(cluster.origin, gates=gates), cluster.by_kind))
    report = why(view, NAMESPACE, "train")
    assert report.fitting == serves
    fit = view.node_fit
    assert fit is not None
    needs = fit.needs("ml/train")
    assert needs is not None
    assert [each.text for each in fit.refusals(needs, "n1")] == ([] if serves else ["Insufficient example.com/gpu"])
    if not serves:
        assert "DRAExtendedResource is off" in tree(report)


def test_no_more_pods_are_ended_than_necessary_where_two_are_not_enough(made: MadeCluster) -> None:
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(5)))
    for number in range(5):
        made.running(f"old-{number}", "n1", f"gpu-{number}", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", count=3))

    ends = [each.text for each in asked(made, "train").next if each.text.startswith("end ")]

    assert ends == ["end ml/old-0, ml/old-1, ml/old-2"]
