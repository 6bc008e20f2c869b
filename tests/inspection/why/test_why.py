"""Why a pod waits: constructed causes, and what is said of each."""

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import AssumedGate, ClusterObjects, GateState, MissingKind, UnknownObjectError
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import Cause, NodeReason, WhyReport
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import consumption, counter_set, device, device_class, pod, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


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


def test_class_that_forbids_all_devices_is_changed_and_no_other_one_is_used(made: MadeCluster) -> None:
    gpus_of(made, {"n1": "20Gi"})
    made.add(device_class("large", memory("80Gi")))
    made.pod("train", request("gpu", "large"))

    report = asked(made, "train")

    assert only(report).code == "NO_MATCH"
    assert [each.text for each in report.next] == ["have DeviceClass large ask for memory >= 20Gi"]


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
