"""The audit of kubelets finds each way in which a device may be prepared for somebody else."""

import re
from typing import Any

import pytest

from tests.controlplane.objects import DRIVER, Object
from tests.support.node.injected import expected, injected
from tests.support.node.prepared import wrongly_prepared

NODE = "127.0.0.2"


def result(device: str = "gpu-0", **fields: Any) -> Object:
    return {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **fields}


def claim(
    *results: Object, consumers: tuple[Object, ...] = ({"resource": "pods", "name": "a", "uid": "u1"},)
) -> Object:
    return {
        "metadata": {"uid": "c1", "namespace": "team", "name": "one"},
        "status": {"allocation": {"devices": {"results": list(results)}}, "reservedFor": list(consumers)},
    }


def pod(uid: str = "u1", node: str = NODE, **spec: Any) -> Object:
    return {"metadata": {"uid": uid, "namespace": "team", "name": "a"}, "spec": {"nodeName": node, **spec}}


@pytest.mark.parametrize(
    ("claims", "pods", "said"),
    [
        ([claim(result())], [pod()], []),
        ([], [pod()], ["for claim c1, which does not exist"]),
        ([claim(result("gpu-1"))], [pod()], ["for claim team/one, which is allocated \\['127.0.0.2/gpu-1'\\]"]),
        ([claim(result(driver="other.example.com"))], [pod()], ["which is allocated \\[\\]"]),
        ([claim(result(), consumers=())], [pod()], ["which no pod of the node has reserved"]),
        ([claim(result())], [pod(node="127.0.0.3")], ["which no pod of the node has reserved"]),
        ([claim(result())], [pod(uid="u2")], ["which no pod of the node has reserved"]),
    ],
)
def test_what_is_prepared_is_allocated_and_reserved_for_a_pod_of_the_node(
    claims: list[Object], pods: list[Object], said: list[str]
) -> None:
    prepared = {"c1": frozenset({f"{NODE}/gpu-0"})}
    found = list(wrongly_prepared(NODE, DRIVER, prepared, claims, pods))
    assert len(found) == len(said)
    for text, pattern in zip(found, said, strict=True):
        assert re.search(pattern, text)


def test_a_claim_reserved_for_a_pod_group_is_prepared_for_the_group_s_pods() -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g1"}
    prepared = {"c1": frozenset({f"{NODE}/gpu-0"})}
    claims = [claim(result(), consumers=(group,))]
    member = pod(schedulingGroup={"podGroupName": "gang"})
    assert list(wrongly_prepared(NODE, DRIVER, prepared, claims, [member])) == []
    assert list(wrongly_prepared(NODE, DRIVER, prepared, claims, [pod()])) != []


def test_the_variables_of_a_container_name_request_share_and_access() -> None:
    claims = {
        "a": claim(result(request="gpu/big-one", shareID="s1"), result("gpu-1", adminAccess=True)),
        "b": claim(result("gpu-2", driver="other.example.com"), result("gpu-3", request="right")),
    }
    container = {"resources": {"claims": [{"name": "a"}, {"name": "b", "request": "right"}]}}
    assert expected(claims, container, DRIVER) == {
        "DRA_GPU_BIG_ONE_0": "127.0.0.2/gpu-0#s1",
        "DRA_GPU_1": "127.0.0.2/gpu-1!admin",
        "DRA_RIGHT_1": "127.0.0.2/gpu-3",
    }
    assert expected(claims, {"resources": {"claims": [{"name": "a", "request": "gpu"}]}}, DRIVER).keys() == {
        "DRA_GPU_BIG_ONE_0",
        "DRA_GPU_1",
    }
    assert expected(claims, {}, DRIVER) == {}


def test_variables_that_are_not_the_driver_s_are_left_out() -> None:
    assert injected("DRA_GPU_0=a/b#c\nPATH=/bin\n\nDRA_X_1=a/b=c\n") == {"DRA_GPU_0": "a/b#c", "DRA_X_1": "a/b=c"}
