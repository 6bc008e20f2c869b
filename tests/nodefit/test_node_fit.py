"""Node fit: what kube-scheduler's own filters say of a pod and a node, from the objects alone."""

import time
from typing import Any

import msgspec
import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.device import DeviceTaint
from dra_extender.nodefit.node_fit import NodeFilter, NodeFit, NodeRefusal, fit_node_from, read_node_fit, reported
from dra_extender.nodefit.pod_needs import HostPort, conflicting, pod_needs_from, read_pod_needs

from tests.controlplane.objects import node, pod

Json = dict[str, Any]


def fit(*objects: Json) -> NodeFit:
    by_kind = {
        kind: [msgspec.json.encode(each) for each in objects if each["kind"] == kind] for kind in ("Node", "Pod")
    }
    return read_node_fit(by_kind["Node"], by_kind["Pod"], {"example.com/gpu"})


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
            free=NANO,
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


def test_extended_resource_is_counted_where_the_node_lists_it_and_left_to_device_classes_elsewhere() -> None:
    wanted = pod("train", "ml", extended={"example.com/gpu": "2"})
    assert texts(fit(node("n1", extended={"example.com/gpu": "1"}), wanted)) == ["Insufficient example.com/gpu"]
    assert texts(fit(node("n1"), wanted)) == []
    gone = node("n1", extended={"example.com/gpu": "0"})
    assert texts(fit(gone, wanted)) == [], "a device plugin that is gone leaves a zero behind"
    other = pod("train", "ml", extended={"example.com/other": "1"})
    assert texts(fit(node("n1"), other)) == ["Insufficient example.com/other"]


@pytest.mark.parametrize(
    ("toleration", "said"),
    [
        ({}, ["node(s) had untolerated taint(s)"]),
        (
            {"tolerations": [{"key": "team", "operator": "Equal", "value": "b"}]},
            ["node(s) had untolerated taint(s)"],
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


def test_every_untolerated_taint_is_told_and_kube_scheduler_names_none() -> None:
    tainted = node("n1")
    tainted["spec"] = {
        "taints": [
            {"key": "team", "value": "a", "effect": "NoSchedule"},
            {"key": "upkeep", "effect": "NoExecute"},
            {"key": "old", "effect": "PreferNoSchedule"},
        ]
    }
    (refusal,) = refusals(fit(tainted, pod("train", "ml")))
    assert refusal.text == "node(s) had untolerated taint(s)"
    assert refusal.description == "node(s) had untolerated taint(s): team=a:NoSchedule, upkeep:NoExecute"


def test_taint_behind_that_of_a_cordoned_node_is_told_too() -> None:
    cordoned = node("n1")
    mark = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] = {"unschedulable": True, "taints": [mark, {"key": "team", "value": "a", "effect": "NoSchedule"}]}
    found = refusals(fit(cordoned, pod("train", "ml")))
    assert [each.filter for each in found] == [NodeFilter.UNSCHEDULABLE, NodeFilter.TAINTS]
    assert found[1].taints == (DeviceTaint(key="team", value="a", effect="NoSchedule"),)


def test_pod_that_tolerates_the_mark_of_cordoned_nodes_may_go_there() -> None:
    cordoned = node("n1")
    cordoned["spec"] = {"unschedulable": True}
    tolerant = pod("train", "ml", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert texts(fit(cordoned, tolerant)) == []


def test_no_filter_is_asked_after_the_first_that_rejects_and_that_one_names_all_resources() -> None:
    tainted = node("n1", cpu="1", memory="1Gi", pods=0)
    wanted = pod("train", "ml", extended={"cpu": "2", "memory": "2Gi"})
    assert reported(refusals(fit(tainted, wanted))) == ("Too many pods", "Insufficient cpu", "Insufficient memory")
    tainted["spec"] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
    assert reported(refusals(fit(tainted, wanted))) == ("node(s) had untolerated taint(s)",)
    assert reported(()) == ()


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
        ({"affinity": [{"key": "zone", "operator": "Gt", "values": ["1"]}]}, False),
        ({"affinity": []}, False),
    ],
)
def test_node_selector_and_required_affinity_decide_by_labels(fields: Json, *, fits: bool) -> None:
    if "affinity" in fields:
        terms = {"nodeSelectorTerms": [{"matchExpressions": fields["affinity"]}]}
        fields = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    made = fit(node("n1", labels={"zone": "a"}), pod("train", "ml", **fields))
    assert texts(made) == ([] if fits else ["node(s) didn't match Pod's node affinity/selector"])


def test_malformed_term_leaves_the_other_terms_in_force() -> None:
    """As LazyErrorNodeSelector of component-helpers, which kube-scheduler asks."""
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "Nonsense"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert texts(fit(node("n1"), pod("train", "ml", affinity={"nodeAffinity": required}))) == []


def test_node_without_allocatable_takes_no_pod_unless_the_caller_says_what_it_has() -> None:
    bare = {"kind": "Node", "metadata": {"name": "n1"}}
    wanted = pod("train", "ml", cpu="1", extended={"example.com/other": "1"})
    assert texts(fit(bare, wanted)) == ["Too many pods", "Insufficient cpu", "Insufficient example.com/other"]
    unlisted = {"cpu": 2 * NANO, "pods": NANO}
    made = NodeFit([fit_node_from(bare, unlisted)], [pod_needs_from(wanted)])
    assert texts(made) == ["Insufficient example.com/other"]


def test_pod_that_is_there_again_takes_what_it_needs_once() -> None:
    made = fit(node("n1", cpu="4"), running("old", cpu="3"), pod("train", "ml", cpu="2"))
    again = running("old", cpu="2")
    for _ in range(2):
        made.add(read_pod_needs(msgspec.json.encode(again)))
    assert texts(made) == []
    assert [each.key for each in made.running_on("n1")] == ["ml/old"]
    again["status"] = {"phase": "Failed"}
    made.add(pod_needs_from(again))
    assert made.running_on("n1") == []
    assert texts(fit(node("n1", pods=1), again, pod("train", "ml"))) == []


def test_amounts_are_compared_in_the_units_that_kube_scheduler_rounds_up_to() -> None:
    old = running("old", extended={"cpu": "999500u", "memory": "8500m"})
    made = fit(node("n1", cpu="1", memory="10"), old, pod("train", "ml", extended={"cpu": "1m", "memory": "1500m"}))
    assert texts(made) == ["Insufficient cpu", "Insufficient memory"]


def test_objects_that_cannot_be_read_count_as_absent() -> None:
    made = read_node_fit(
        [b"{}", b"no json", msgspec.json.encode(node("n1"))], [b"[]", msgspec.json.encode(pod("train", "ml"))]
    )
    assert texts(made) == []
    assert made.needs("ml/absent") is None
    assert texts(made, on="n9") == ["node is not known"]


def with_condition(kind: str, status: str, **spec: Any) -> Json:
    made = node("n1")
    made["status"]["conditions"] = [{"type": kind, "status": status}]
    return made | ({"spec": spec} if spec else {})


@pytest.mark.parametrize(
    ("kind", "status", "key"),
    [
        pytest.param("Ready", "False", "not-ready", id="not-ready"),
        pytest.param("Ready", "Unknown", "unreachable", id="unreachable"),
        pytest.param("DiskPressure", "True", "disk-pressure", id="disk-pressure"),
        pytest.param("NetworkUnavailable", "True", "network-unavailable", id="no-network"),
    ],
)
def test_condition_keeps_pods_away_as_the_taint_that_the_node_gets_for_it(kind: str, status: str, key: str) -> None:
    bad = with_condition(kind, status)
    (refusal,) = refusals(fit(bad, pod("train", "ml")))
    assert refusal.description == f"node(s) had untolerated taint(s): node.kubernetes.io/{key}:NoSchedule"
    tolerant = pod("train", "ml", tolerations=[{"key": f"node.kubernetes.io/{key}", "operator": "Exists"}])
    assert refusals(fit(bad, tolerant)) == ()


def test_condition_whose_taint_is_there_is_told_once() -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    (refusal,) = refusals(fit(with_condition("Ready", "False", taints=[taint]), pod("train", "ml")))
    assert refusal.taints == (DeviceTaint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),)


def test_toleration_that_every_pod_gets_opens_no_node_that_is_not_ready() -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    given = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert texts(fit(with_condition("Ready", "False", taints=[taint]), pod("train", "ml", tolerations=[given]))) != []


def test_node_that_is_being_deleted_takes_no_pod() -> None:
    gone = node("n1")
    gone["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z"
    assert [each.filter for each in refusals(fit(gone, pod("train", "ml")))] == [NodeFilter.DELETING]


def with_port(made: Json, **port: Any) -> Json:
    made["spec"]["containers"][0]["ports"] = [port]
    return made


TAKEN = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("taken", "wanted", "free"),
    [
        pytest.param(TAKEN, TAKEN, False, id="same"),
        pytest.param(TAKEN, {"hostPort": 8081}, True, id="other-port"),
        pytest.param(TAKEN, {"hostPort": 8080, "protocol": "UDP"}, True, id="other-protocol"),
        pytest.param(TAKEN, {"hostPort": 8080, "hostIP": "10.0.0.1"}, False, id="all-addresses-taken"),
        pytest.param({**TAKEN, "hostIP": "10.0.0.1"}, TAKEN, False, id="all-addresses-wanted"),
        pytest.param({**TAKEN, "hostIP": "10.0.0.1"}, {**TAKEN, "hostIP": "10.0.0.2"}, True, id="other-address"),
        pytest.param(TAKEN, {"containerPort": 8080}, True, id="no-host-port"),
    ],
)
def test_port_of_the_host_is_taken_once(taken: Json, wanted: Json, *, free: bool) -> None:
    made = fit(node("n1"), with_port(running("old"), **taken), with_port(pod("train", "ml"), **wanted))
    assert texts(made) == ([] if free else ["node(s) didn't have free ports for the requested pod ports"])
    assert texts(made, released=("ml/old",)) == []


def test_time_to_compare_ports_is_linear_in_them() -> None:
    """A manifest has room for thousands of ports; to compare each pair of these takes many seconds."""
    used, requested = (
        [HostPort(port=first + number, protocol="TCP", address="0.0.0.0") for number in range(10_000)]  # noqa: S104
        for first in (1, 20_000)
    )
    began = time.process_time()
    assert not list(conflicting(requested, used))
    assert time.process_time() - began < 2


def test_every_port_of_a_pod_on_the_network_of_the_host_is_one_of_the_host() -> None:
    wanted = with_port(pod("train", "ml", hostNetwork=True), containerPort=8080)
    assert texts(fit(node("n1"), with_port(running("old"), **TAKEN), wanted)) != []
