"""Pods over which a plain depth-first search takes for ever: one node each, and whether the pod fits there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.allocator_cluster import CLASS, DRIVER, Cluster, Object, claim, cluster
from tests.controlplane import objects

_NOWHERE: Final = 'device.driver == "nobody"'


@dataclass(frozen=True, slots=True)
class BlowUp:
    """A cluster of one node and a pod; `fits` is the right answer."""

    name: str
    fill: Callable[[], Cluster]
    fits: bool


def _gpus(count: int, roots: Sequence[int] = ()) -> Sequence[Object]:
    return [
        objects.device(f"gpu-{number:03}", attributes={"root": roots[number] if roots else 0})
        for number in range(count)
    ]


def _one_too_many() -> Cluster:
    made = cluster(1, lambda _: _gpus(31))
    made.claims = [claim(objects.request("gpu", CLASS, count=32))]
    return made


def _impossible_last() -> Cluster:
    made = cluster(1, lambda _: _gpus(16))
    requests = [objects.request(f"gpu-{number}", CLASS) for number in range(12)]
    made.claims = [claim(*requests, objects.request("none", CLASS, _NOWHERE))]
    return made


def _group_last() -> Cluster:
    """Four groups that are one device too small come first."""
    roots = [number // 24 for number in range(96)] + [4] * 25
    made = cluster(1, lambda _: _gpus(len(roots), roots))
    made.claims = [claim(objects.request("gpu", CLASS, count=25), constraints=[{"matchAttribute": f"{DRIVER}/root"}])]
    return made


def _alternatives() -> Cluster:
    made = cluster(1, lambda _: _gpus(64))
    requests: list[Object] = [
        {
            "name": f"gpu-{number}",
            "firstAvailable": [{"name": f"a{each}", "deviceClassName": CLASS} for each in range(8)],
        }
        for number in range(8)
    ]
    made.claims = [claim(*requests, objects.request("none", CLASS, _NOWHERE))]
    return made


def _partitions() -> Cluster:
    """Of 32 equal partitions the counters admit 16."""
    parts = [
        objects.device(f"part-{number:02}", consumes=[objects.consumption("gpu", memory="1Gi")]) for number in range(32)
    ]
    made = cluster(1, lambda _: parts, [objects.counter_set("gpu", memory="16Gi")])
    made.claims = [claim(objects.request("part", CLASS, count=17))]
    return made


BLOW_UPS: Final = (
    BlowUp("32 of 31 devices", _one_too_many, fits=False),
    BlowUp("12 equal requests and an impossible one", _impossible_last, fits=False),
    BlowUp("the group that is large enough comes last", _group_last, fits=True),
    BlowUp("8 requests of 8 alternatives and an impossible one", _alternatives, fits=False),
    BlowUp("counters for 16 partitions, 17 wanted", _partitions, fits=False),
)
