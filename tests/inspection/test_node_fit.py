"""Node fit: what kube-scheduler's own filters say of a pod and a node, from the objects alone."""

from typing import Any

import msgspec
import pytest
from dra_extender.inspection.node_fit import NodeFilter, NodeFit, NodeRefusal
from dra_extender.model.quantity import NANO

from tests.controlplane.objects import node, pod

Json = dict[str, Any]


def fit(*objects: Json) -> NodeFit:
    by_kind = {
        kind: [msgspec.json.encode(each) for each in objects if each["kind"] == kind] for kind in ("Node", "Pod")
    }
    return NodeFit(by_kind["Node"], by_kind["Pod"], {"example.com/gpu"})


def refusals(made: NodeFit, name: str = "ml/train", on: str = "n1", **more: Any) -> tuple[NodeRefusal, ...]:
    needs = made.needs(name)
    assert needs is not None
    return made.refusals(needs, on, **more)


def texts(made: NodeFit, **more: Any) -> list[str]:
    return [each.text for each in refusals(made, **more)]


def running(name: str, **fields: Any) -> Json:
    made = pod(name, "ml", **fields)
    made["spec"]["nodeName"] = "n1"
    return made


def test_pod_that_fits_has_no_refusal() -> None:
    assert refusals(fit(node("n1"), pod("train", "ml"))) == ()


def test_amount_that_running_pods_leave_does_not_suffice() -> None:
    made = fit(node("n1", cpu="4"), running("old", cpu="3"), pod("train", "ml", cpu="1500m"))
    assert refusals(made) == (
        NodeRefusal(
            filter=NodeFilter.RESOURCES,
            text="Insufficient cpu",
            resource="cpu",
            needed=1_500_000_000,
            left=NANO,
        ),
    )


def test_pods_that_have_ended_and_pods_that_are_to_go_take_nothing() -> None:
    ended = running("ended", cpu="3")
    ended["status"] = {"phase": "Succeeded"}
    made = fit(node("n1", cpu="4"), ended, running("old", cpu="3"), pod("train", "ml", cpu="1500m"))
    assert texts(made) == ["Insufficient cpu"]
    assert texts(made, released=("ml/old",)) == []


def test_number_of_pods_is_limited_by_the_node() -> None:
    assert texts(fit(node("n1", pods=1), running("old"), pod("train", "ml"))) == ["Too many pods"]


def test_sidecars_count_beside_containers_and_init_containers_by_their_largest() -> None:
    def init(cpu: str, **fields: Any) -> Json:
        return {"name": f"init-{cpu}", "resources": {"requests": {"cpu": cpu}}, **fields}

    made = fit(
        node("n1", cpu="4"),
        pod("train", "ml", cpu="1", initContainers=[init("1", restartPolicy="Always"), init("3500m")]),
    )
    assert [(each.text, each.needed) for each in refusals(made)] == [("Insufficient cpu", 4_500_000_000)]


def test_amounts_of_the_pod_as_a_whole_and_its_overhead_count() -> None:
    made = fit(
        node("n1", cpu="4"),
        pod("train", "ml", cpu="1", resources={"requests": {"cpu": "4"}}, overhead={"cpu": "500m"}),
    )
    assert [each.needed for each in refusals(made)] == [4_500_000_000]


def test_extended_resource_is_counted_where_the_node_lists_it_and_left_to_device_classes_elsewhere() -> None:
    wanted = pod("train", "ml", extended={"example.com/gpu": "2"})
    assert texts(fit(node("n1", extended={"example.com/gpu": "1"}), wanted)) == ["Insufficient example.com/gpu"]
    assert texts(fit(node("n1"), wanted)) == []
    other = pod("train", "ml", extended={"example.com/other": "1"})
    assert texts(fit(node("n1"), other)) == ["Insufficient example.com/other"]


@pytest.mark.parametrize(
    ("toleration", "said"),
    [
        ({}, ["node(s) had untolerated taint {team: a}"]),
        (
            {"tolerations": [{"key": "team", "operator": "Equal", "value": "b"}]},
            ["node(s) had untolerated taint {team: a}"],
        ),
        ({"tolerations": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]}, []),
        ({"tolerations": [{"operator": "Exists"}]}, []),
    ],
)
def test_taint_keeps_pods_away_that_do_not_tolerate_it(toleration: Json, said: list[str]) -> None:
    tainted = node("n1")
    tainted["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
    assert texts(fit(tainted, pod("train", "ml", **toleration))) == said


def test_taint_that_only_prefers_other_nodes_keeps_no_pod_away() -> None:
    tainted = node("n1")
    tainted["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "PreferNoSchedule"}]}
    assert texts(fit(tainted, pod("train", "ml"))) == []


def test_cordoned_node_is_named_once_and_not_by_the_taint_that_marks_it() -> None:
    cordoned = node("n1")
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] = {"unschedulable": True, "taints": [taint]}
    assert texts(fit(cordoned, pod("train", "ml"))) == ["node(s) were unschedulable"]


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"affinity": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}, False),
        ({"affinity": [{"key": "zone", "operator": "Exists"}]}, True),
        ({"affinity": [{"key": "zone", "operator": "Nonsense"}]}, False),
    ],
)
def test_node_selector_and_required_affinity_decide_by_labels(fields: Json, *, fits: bool) -> None:
    if "affinity" in fields:
        terms = {"nodeSelectorTerms": [{"matchExpressions": fields["affinity"]}]}
        fields = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    made = fit(node("n1", labels={"zone": "a"}), pod("train", "ml", **fields))
    assert texts(made) == ([] if fits else ["node(s) didn't match Pod's node affinity/selector"])


def test_objects_that_cannot_be_read_count_as_absent() -> None:
    made = NodeFit(
        [b"{}", b"no json", msgspec.json.encode(node("n1"))], [b"[]", msgspec.json.encode(pod("train", "ml"))]
    )
    assert texts(made) == []
    assert made.needs("ml/absent") is None
    assert texts(made, on="n9") == ["node is not known"]
