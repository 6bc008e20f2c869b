"""Free CPU and memory of nodes equals what a count of the final objects gives, whatever the order of events."""

import json
from typing import Any

from dra_extender.allocator.fragmentation.kinds import NO_AMOUNTS, NodeAmounts
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from hypothesis import given
from hypothesis import strategies as st

PODS, NODES = ("p1", "p2", "p3"), ("n1", "n2")
events = st.lists(
    st.one_of(
        st.tuples(
            st.just("pods"),
            st.sampled_from(PODS),
            st.sampled_from(("", *NODES)),
            st.sampled_from(("Pending", "Running", "Succeeded")),
        ),
        st.tuples(st.just("nodes"), st.sampled_from(NODES), st.sampled_from(("", "4", "8")), st.just("")),
        st.tuples(st.just("gone"), st.sampled_from((*PODS, *NODES)), st.just(""), st.just("")),
    ),
    max_size=25,
)


def pod(name: str, node: str, phase: str) -> dict[str, Any]:
    asks = {"cpu": f"{PODS.index(name) + 1}", "memory": "1Gi"}
    container = {"name": "main", "resources": {"requests": asks}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec, "status": {"phase": phase}}


def node(name: str, cpu: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": cpu, "memory": "64Gi"}} if cpu else {}
    return {"metadata": {"name": name, "uid": name}, "status": status}


@given(events)
def test_what_is_free_is_what_pods_leave(happened: list[tuple[str, str, str, str]]) -> None:
    ledger = Ledger()
    ledger.free_amounts.enabled = True
    sinks = sinks_of(ledger)
    pods, nodes = dict[str, tuple[str, str]](), dict[str, str]()
    for kind, name, value, phase in happened:
        if kind == "pods":
            # A pod keeps its node, and one that has ended does not run again.
            bound, before = pods.get(name, ("", ""))
            pods[name] = bound or value, before if before == "Succeeded" else phase
            sinks["pods"].changed(json.dumps(pod(name, *pods[name])).encode())
        elif kind == "nodes":
            nodes[name] = value
            sinks["nodes"].changed(json.dumps(node(name, value)).encode())
        elif name in PODS:
            pods.pop(name, None)
            sinks["pods"].deleted("default", name, name)
        else:
            nodes.pop(name, None)
            sinks["nodes"].deleted("", name, name)
    for name in NODES:
        running = [PODS.index(each) + 1 for each, (at, phase) in pods.items() if at == name and phase != "Succeeded"]
        cpu = nodes.get(name)
        left = NodeAmounts(1_000 * (int(cpu) - sum(running)), (64 - len(running)) * 2**30) if cpu else None
        assert ledger.free_amounts.free(name) == left
    assert ledger.free_amounts.most_cpu == max((1_000 * int(cpu) for cpu in nodes.values() if cpu), default=0)


def test_nothing_is_counted_where_it_is_not_asked_for() -> None:
    ledger = Ledger()
    sinks_of(ledger)["pods"].changed(json.dumps(pod("p1", "n1", "Running")).encode())
    assert ledger.free_amounts.asked_by("p1") == NO_AMOUNTS


def test_names_of_nodes_that_do_not_exist_are_not_kept() -> None:
    """Whoever may create pods may write any name into `nodeName`."""
    ledger = Ledger()
    ledger.free_amounts.enabled = True
    sinks = sinks_of(ledger)
    sinks["pods"].changed(json.dumps(pod("p1", "n1", "Running")).encode())
    assert ledger.free_amounts.changes.version("n1") == 0
    sinks["nodes"].changed(json.dumps(node("n1", "4")).encode())
    assert ledger.free_amounts.free("n1") == NodeAmounts(3_000, 63 * 2**30)
    assert ledger.free_amounts.changes.version("n1") == 1
