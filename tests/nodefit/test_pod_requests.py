"""What a pod asks for, case by case: `resource.PodRequests` of component-helpers, and the defaults of the API server."""

from typing import Any

import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.nodefit.pod_needs import pod_needs_from

Json = dict[str, Any]


def asks(limits: Json | None = None, requests: Json | None = None, *, sidecar: bool = False, **more: str) -> Json:
    made: Json = {"name": "c", "resources": {"requests": {**(requests or {}), **more}, "limits": limits or {}}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def amounts(**spec: Any) -> dict[str, float]:
    needs = pod_needs_from({"metadata": {"name": "p"}, "spec": spec})
    return {name: amount / NANO for name, amount in needs.amounts.items()}


CASES: dict[str, tuple[Json, dict[str, float]]] = {
    "nothing": ({}, {}),
    "containers": ({"containers": [asks(cpu="1"), asks(cpu="500m", memory="1")]}, {"cpu": 1.5, "memory": 1}),
    "limit without a request": (
        {"containers": [asks({"cpu": "2", "memory": "8"}, cpu="1")]},
        {"cpu": 1, "memory": 8},
    ),
    "larger init container": ({"containers": [asks(cpu="1")], "initContainers": [asks(cpu="2")]}, {"cpu": 2}),
    "smaller init container": ({"containers": [asks(cpu="3")], "initContainers": [asks(cpu="2")]}, {"cpu": 3}),
    "init containers are not added": ({"initContainers": [asks(cpu="2"), asks(cpu="3")]}, {"cpu": 3}),
    "sidecar beside containers": (
        {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="2", sidecar=True)]},
        {"cpu": 3},
    ),
    "init container after a sidecar": (
        {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="1", sidecar=True), asks(cpu="3500m")]},
        {"cpu": 4.5},
    ),
    "init container before a sidecar": (
        {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="3"), asks(cpu="1", sidecar=True)]},
        {"cpu": 3},
    ),
    "sidecars between init containers": (
        {
            "containers": [asks(cpu="1")],
            "initContainers": [asks(cpu="1", sidecar=True), asks(cpu="5"), asks(cpu="2", sidecar=True), asks(cpu="1")],
        },
        {"cpu": 6},
    ),
    "overhead": (
        {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m", "memory": "1"}},
        {"cpu": 1.25, "memory": 1},
    ),
    "the pod as a whole": (
        {"containers": [asks(cpu="1", memory="1")], "resources": {"requests": {"cpu": "4"}}},
        {"cpu": 4, "memory": 1},
    ),
    "the pod as a whole with less than its containers": (
        {"containers": [asks(cpu="4")], "resources": {"requests": {"cpu": "1"}}},
        {"cpu": 1},
    ),
    "the pod as a whole with overhead": (
        {"containers": [asks(cpu="1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "500m"}},
        {"cpu": 4.5},
    ),
    "limit of the whole beside requests of containers": (
        {"containers": [asks(cpu="1")], "resources": {"limits": {"cpu": "8", "memory": "2"}}},
        {"cpu": 1, "memory": 2},
    ),
    "huge pages of the whole": (
        {"containers": [asks(requests={"hugepages-2Mi": "4"})], "resources": {"limits": {"hugepages-2Mi": "8"}}},
        {"hugepages-2Mi": 8},
    ),
    "the whole knows no storage and no extended resources": (
        {"resources": {"requests": {"ephemeral-storage": "1", "example.com/gpu": "1", "cpu": "1"}}},
        {"cpu": 1},
    ),
    "resources that are counted": (
        {
            "containers": [
                asks(
                    requests={
                        "ephemeral-storage": "1",
                        "example.com/gpu": "2",
                        "attachable-volumes-x": "3",
                        "kubernetes.io/batch": "4",
                        "deviceclass.resource.kubernetes.io/gpu": "5",
                    }
                )
            ]
        },
        {
            "ephemeral-storage": 1,
            "example.com/gpu": 2,
            "attachable-volumes-x": 3,
            "kubernetes.io/batch": 4,
            "deviceclass.resource.kubernetes.io/gpu": 5,
        },
    ),
    "resources that are counted nowhere": (
        {"containers": [asks(requests={"storage": "1", "requests.example.com/gpu": "1", "pods": "3"})]},
        {},
    ),
    "fractions are rounded up once, in the sum": (
        {"containers": [asks(cpu="300u", memory="400m"), asks(cpu="300u", memory="400m")]},
        {"cpu": 0.001, "memory": 1},
    ),
    "what is no quantity": ({"containers": [asks(cpu="much", memory="1")]}, {"memory": 1}),
}


@pytest.mark.parametrize(("spec", "wanted"), CASES.values(), ids=CASES)
def test_pod_asks_for_what_kube_scheduler_adds_up(spec: Json, wanted: dict[str, float]) -> None:
    assert amounts(**spec) == wanted
