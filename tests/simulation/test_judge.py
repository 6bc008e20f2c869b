"""What the judge finds after each write, by looking where it touches something, is what it finds when it looks at everything."""

import random
from typing import Any, Final

import msgspec
from dra_extender.inspection.audit.findings import (
    AWAY,
    CAPACITY_EXCEEDED,
    COUNTER_OVERDRAWN,
    DEVICE_TWICE,
    GROUPS_CONFLICT,
    KUBELET,
    NEIGHBOURS,
    NO_FINALIZER,
    SHARE_TWICE,
    UNREADABLE,
)
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.simulator.apiserver.objects import Json, StoredKind, key_of
from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane import objects
from tests.controlplane.objects import DRIVER
from tests.simulation.cluster import NAMESPACE, WHOLE, request, slices
from tests.simulation.judge import ALWAYS, RIVAL, Judge
from tests.support.examples import examples

NODES: Final = ("node-0", "node-1")
CLAIMS: Final = ("a", "b", "c", f"{RIVAL}0", "dra-extender-guard-0")
PODS: Final = ("p", "q")
DEVICES: Final = {"whole-0": 2, "mig-0": 1, "mig-1": 1, "vgpu-0": 1, "vgpu-1": 1, "shared-0": 4, "gone": 1}
"""Devices that claims have, and how often."""
SHARES: Final = ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001")
Write = tuple[StoredKind, Json, bool]


def random_write(chance: random.Random) -> Write:
    """Some object in some state, and whether it is deleted."""
    kind = chance.choices((StoredKind.CLAIM, StoredKind.POD, StoredKind.SLICE, StoredKind.NODE), (8, 4, 2, 1))[0]
    make = {StoredKind.CLAIM: _claim, StoredKind.POD: _pod, StoredKind.SLICE: _slice, StoredKind.NODE: _node}[kind]
    thing = make(chance)
    thing["metadata"].setdefault("uid", thing["metadata"]["name"])
    return kind, thing, chance.random() < 0.15


def _claim(chance: random.Random) -> Json:
    claim = objects.resource_claim(chance.choice(CLAIMS), NAMESPACE, request(WHOLE))
    claim["metadata"]["finalizers"] = [FINALIZER] if chance.random() < 0.9 else []
    if chance.random() < 0.8:
        here = chance.choice(NODES)
        results = [_result(chance, here) for _ in range(chance.choice((1, 1, 2)))]
        name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [here]}]}
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        selector = {"nodeSelectorTerms": [chance.choice((name, name, zone))]}
        claim["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
    users = chance.sample(PODS, chance.choice((0, 1, 1, 2)))
    reserved = [{"resource": "pods", "name": name, "uid": name} for name in users]
    claim.setdefault("status", {})["reservedFor"] = reserved
    return claim


def _result(chance: random.Random, node: str) -> Json:
    device = chance.choices(list(DEVICES), list(DEVICES.values()))[0]
    result: dict[str, Any] = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    if device == "shared-0" and chance.random() < 0.9:
        result["shareID"] = chance.choice(SHARES)
        result["consumedCapacity"] = {"memory": chance.choice(("10Gi", "30Gi", "30Gi", "30Gi", "much"))}
    return result


def _pod(chance: random.Random) -> Json:
    name = chance.choice(PODS)
    claims = {each: each for each in chance.sample(CLAIMS, chance.choice((1, 1, 2)))}
    pod = objects.pod(name, NAMESPACE, claims=claims)
    if chance.random() < 0.7:
        pod["spec"]["nodeName"] = chance.choice(NODES)
    pod["status"] = {"phase": chance.choice(("Pending", "Running", "Running", "Succeeded"))}
    return pod


def _slice(chance: random.Random) -> Json:
    absent = frozenset(chance.sample(list(DEVICES), chance.choice((0, 0, 1))))
    found = chance.choice(slices(chance.choice(NODES), chance.choice((1, 2)), absent))
    if chance.random() < 0.3 and "devices" in found["spec"]:
        rule = chance.choice(('device.attributes["gpu.example.com"].kind == "whole"', "true"))
        found["spec"]["devices"][0]["compatibleOnlyWith"] = {"expression": rule}
    return found


def _node(chance: random.Random) -> Json:
    return objects.node(chance.choice(NODES), labels={"zone": chance.choice(("a", "b"))})


def tell(judge: Judge, write: Write) -> None:
    kind, thing, gone = write
    judge.change(key_of(kind, thing), None if gone else msgspec.json.encode(thing))


@examples(150)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_what_is_judged_where_a_write_touches_something_is_what_is_found_in_full(seed: int) -> None:
    chance, judge = random.Random(seed), Judge("default")
    for number in range(40):
        write = random_write(chance)
        tell(judge, write)
        assert judge.broken() == judge.broken_in_full(), (number, write)


def test_random_writes_break_every_rule() -> None:
    """So the comparison is about each of them."""
    chance, judge = random.Random(1), Judge("default")
    found: set[str] = set()
    for _ in range(4_000):
        tell(judge, random_write(chance))
        found |= {each.partition(":")[0] for each in judge.broken()}
    assert found == ALWAYS | {"bound twice"}
    named = {UNREADABLE, NO_FINALIZER, CAPACITY_EXCEEDED, GROUPS_CONFLICT, COUNTER_OVERDRAWN, DEVICE_TWICE, NEIGHBOURS}
    assert named | {SHARE_TWICE, AWAY, KUBELET} == ALWAYS


def test_an_object_that_cannot_be_read_counts_as_it_was() -> None:
    judge = Judge("default")
    claim = objects.resource_claim("a", NAMESPACE, request(WHOLE))
    key = key_of(StoredKind.CLAIM, claim)
    claim["status"] = {"allocation": {"devices": {"results": [_result(random.Random(1), NODES[0])]}}}
    judge.change(key, msgspec.json.encode(claim))
    found = judge.broken()
    assert found
    assert judge.change(key, b'{"metadata": 1}')[1] is not None
    assert judge.broken() == found
    judge.change(key, None)
    assert judge.broken() == []
