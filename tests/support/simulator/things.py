"""Small API objects for the simulator's tests."""

from collections.abc import Mapping
from typing import Any

from dra_extender.simulator.apiserver.objects import Json

DRIVER = "gpu.example.com"


class Steady:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


def node(name: str, labels: Mapping[str, str] | None = None, **allocatable: str) -> Json:
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "status": {"allocatable": dict(allocatable)}}


def pod(name: str, *claims: str, requests: Mapping[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "pause", "resources": {"requests": dict(requests or {})}}
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    base = {"schedulerName": "dra-extender-scheduler", "containers": [container], "resourceClaims": entries}
    return {"metadata": {"name": name}, "spec": {**base, **spec}}


def claim(name: str, *requests: str) -> Json:
    each = [{"name": name, "exactly": {"deviceClassName": "gpu"}} for name in requests or ("gpu",)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": each}}}


def template(name: str, labels: Mapping[str, str] | None = None) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"metadata": {"labels": dict(labels or {})}, "spec": claim("x")["spec"]},
    }


def result(request: str = "gpu", /, **fields: Any) -> Json:
    return {"request": request, "driver": DRIVER, "pool": "node-1", "device": "gpu-0", **fields}


def allocation(*results: Json, **fields: Any) -> Json:
    return {"devices": {"results": list(results or (result(),))}, **fields}


def consumer(name: str, uid: str) -> Json:
    return {"resource": "pods", "name": name, "uid": uid}
