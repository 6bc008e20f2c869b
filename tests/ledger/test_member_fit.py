"""What is kept of pods that wait for a node, and of those that are gone."""

import tracemalloc
from typing import Final

import msgspec
from dra_extender.ledger.member_fit import MemberFit
from dra_extender.model.pod import read_pod

NODE: Final = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
PODS: Final = 200
VALUE_BYTES: Final = 3_000
TOO_MANY_BYTES: Final = 4_096


def pod(number: int, value_bytes: int = VALUE_BYTES) -> bytes:
    """A member of a PodGroup that no node can take, with much text about why."""
    value = f"{number}{'x' * value_bytes}"
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}
    needs = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spec = {"schedulingGroup": {"podGroupName": "g"}, "containers": [{"name": "main"}], "affinity": needs}
    name = f"p{number}"
    return msgspec.json.encode({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": spec})


def test_the_answer_about_a_pod_that_is_gone_keeps_nothing_of_the_pod() -> None:
    fit = MemberFit()
    fit.put_node(msgspec.json.encode(NODE))
    tracemalloc.start()
    try:
        for number in range(PODS):
            data = pod(number)
            fit.put_pod(read_pod(data), data)
            assert "node affinity" in fit.refusal(f"p{number}")
            fit.drop_pod(f"p{number}")
        del data
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < PODS * VALUE_BYTES / 2


def test_pods_that_need_the_same_of_a_node_have_equal_digests() -> None:
    fit = MemberFit()
    for name, number in (("first", 1), ("second", 1), ("third", 2)):
        data = pod(number).replace(f'"p{number}"'.encode(), f'"{name}"'.encode())
        fit.put_pod(read_pod(data), data)
    assert fit.digest("first") == fit.digest("second") != fit.digest("third")


def test_needs_that_are_too_large_to_be_compared_with_thousands_of_nodes_are_not_judged() -> None:
    fit = MemberFit()
    fit.put_node(msgspec.json.encode(NODE))
    for number in (1, 2):
        data = pod(number, TOO_MANY_BYTES)
        fit.put_pod(read_pod(data), data)
    assert fit.refusal("p1") == ""
    assert fit.admits("p1", "n1")
    assert fit.digest("p1") != fit.digest("p2")
