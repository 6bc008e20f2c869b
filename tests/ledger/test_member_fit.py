"""What is kept of pods that wait for a node, and of those that are gone."""

import tracemalloc
from typing import Final

import msgspec
from dra_extender.ledger.member_fit import MemberFit
from dra_extender.model.pod import read_pod

NODE: Final = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
PODS: Final = 20
VALUE_BYTES: Final = 100_000


def pod(number: int) -> bytes:
    """A member of a PodGroup that no node can take, with much text about why."""
    value = f"{number}{'x' * VALUE_BYTES}"
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
    assert kept < PODS * VALUE_BYTES / 5


def test_pods_that_need_the_same_of_a_node_have_equal_digests() -> None:
    fit = MemberFit()
    for name, number in (("first", 1), ("second", 1), ("third", 2)):
        data = pod(number).replace(f'"p{number}"'.encode(), f'"{name}"'.encode())
        fit.put_pod(read_pod(data), data)
    assert fit.digest("first") == fit.digest("second") != fit.digest("third")
