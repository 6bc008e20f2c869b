"""What is kept of pods that wait for a node, and of those that are gone."""

import tracemalloc
from typing import Final

import msgspec
import pytest
from dra_extender.allocator.state.reasons import SearchPaused
from dra_extender.ledger.member_fit import NODES_PER_STEP, MemberFit
from dra_extender.model.pod import read_pod

NODE: Final = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
PODS: Final = 200
VALUE_BYTES: Final = 3_000
TOO_MANY_BYTES: Final = 4_096
NODES: Final = 3 * NODES_PER_STEP + 1


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


class OneStep:
    """A deadline that pauses after one step."""

    def __init__(self) -> None:
        self._has_stepped = False

    def __call__(self) -> bool:
        if self._has_stepped:
            raise SearchPaused
        self._has_stepped = True
        return False


def test_a_judgement_pauses_after_some_nodes_and_goes_on_there(judged: list[str]) -> None:
    fit = MemberFit()
    nodes = [f"n{number}" for number in range(NODES)]
    for name in nodes:
        fit.put_node(msgspec.json.encode({**NODE, "metadata": {"name": name}}))
    data = pod(1)
    fit.put_pod(read_pod(data), data)
    for steps in (1, 2, 3):
        with pytest.raises(SearchPaused):
            fit.refusal("p1", OneStep())
        assert judged == nodes[: steps * NODES_PER_STEP]
    assert fit.refusal("p1", lambda: True) == ""
    refusal = f"0/{NODES} nodes are available: {NODES} node(s) didn't match Pod's node affinity/selector."
    assert fit.refusal("p1", OneStep()) == refusal
    assert judged == nodes


def test_a_judgement_begins_anew_when_a_node_changes(judged: list[str]) -> None:
    fit = MemberFit()
    for number in range(NODES):
        fit.put_node(msgspec.json.encode({**NODE, "metadata": {"name": f"n{number}"}}))
    data = pod(1)
    fit.put_pod(read_pod(data), data)
    with pytest.raises(SearchPaused):
        fit.refusal("p1", OneStep())
    fit.drop_node("n1")
    assert fit.refusal("p1").startswith(f"0/{NODES - 1} nodes are available: {NODES - 1} node(s)")
    assert len(judged) == NODES_PER_STEP + NODES - 1
