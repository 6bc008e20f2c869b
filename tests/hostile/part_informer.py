"""Part "informer": objects of every watched kind, wrong in every way, while a neighbour's pods are scheduled."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final

from tests.controlplane.objects import on_node
from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene
from tests.hostile.verdicts import BROKEN, GROWN, STALL, Job

MODULE: Final = "service"
LIMITS: Final = (BROKEN, STALL, GROWN)
CPU_SECONDS: Final = 30.0
_OWNER: Final = {"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "uid-owner", "controller": True}
_ANNOTATIONS: Final = {
    "resource.kubernetes.io/extended-resource-claim": "true",
    "resource.kubernetes.io/pod-claim-name": "entry",
    "dra-extender.io/allocation-snapshot": "{}",
}
_DEVICE: Final = {
    "name": "d0",
    "attributes": {"a": {"string": "x"}, "v": {"version": "1.0.0"}, "i": {"int": 1}, "l": {"strings": ["a"]}},
    "capacity": {"m": {"value": "1Gi"}},
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
}
_RESULT: Final = {"request": "r", "driver": "evil.example.com", "pool": "evil", "device": "d0", "shareID": "x"}
_REQUEST: Final = {
    "name": "r",
    "exactly": {
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": "true"}}],
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "capacity": {"requests": {"m": "1Gi"}},
    },
}
_DEVICES_SPEC: Final = {
    "requests": [_REQUEST, {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "count": 1}]}],
    "constraints": [{"matchAttribute": "evil.example.com/a"}, {"distinctAttribute": "evil.example.com/v"}],
    "config": [{"requests": ["r"], "opaque": {"driver": "evil.example.com", "parameters": {"a": [1, {"b": "c"}]}}}],
}
_ALLOCATION: Final = {
    "devices": {
        "results": [_RESULT],
        "config": [{"source": "FromClaim", "opaque": {"driver": "e", "parameters": {"a": 1}}}],
    },
    "nodeSelector": on_node("n"),
    "allocationTimestamp": "2026-01-01T00:00:00Z",
}
OBJECTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "resourceclaims": {
        "spec": {"devices": _DEVICES_SPEC},
        "status": {
            "allocation": _ALLOCATION,
            "reservedFor": [{"resource": "pods", "name": "evil", "uid": "uid-owner"}],
            "devices": [{**_RESULT, "conditions": [{"type": "Ready", "status": "True"}], "data": {"a": 1}}],
        },
    },
    "resourceslices": {
        "spec": {
            "driver": "evil.example.com",
            "pool": {"name": "evil", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-1",
            "devices": [_DEVICE],
            "sharedCounters": [{"name": "s", "counters": {"c": {"value": "10"}}}],
        }
    },
    "deviceclasses": {
        "spec": {
            "selectors": [{"cel": {"expression": "true"}}],
            "config": [{"opaque": {"driver": "e", "parameters": {"a": 1}}}],
            "extendedResourceName": "example.com/evil",
        }
    },
    "pods": {
        "spec": {
            "schedulerName": "dra-scheduler",
            "priority": 1,
            "containers": [{"name": "c", "resources": {"requests": {"example.com/evil": "1"}}}],
            "resourceClaims": [
                {"name": "e", "resourceClaimName": "evil"},
                {"name": "t", "resourceClaimTemplateName": "t"},
            ],
            "nodeName": "",
            "workloadRef": {"name": "w", "podGroup": "g"},
        },
        "status": {"phase": "Pending", "nominatedNodeName": "node-1", "resourceClaimStatuses": [{"name": "e"}]},
    },
    "nodes": {
        "spec": {"unschedulable": False, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1", "example.com/evil": "1"}, "declaredFeatures": ["a"]},
    },
    "podgroups": {
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "resourceClaims": [{"name": "e", "resourceClaimName": "evil"}],
        },
        "status": {},
    },
    "devicetaintrules": {
        "spec": {
            "deviceSelector": {"driver": "evil.example.com"},
            "taint": {"key": "k", "effect": "NoExecute", "value": "v"},
        }
    },
}
_WRONG: Final = (
    *("null", "true", "0", "-1", "1.5", "1e999", "1e5", "-0", "9" * 400, "1e-999", '""', '"a"', '"\\u0000"'),
    *('"\\ud800"', "[]", "{}", "[null]", "[[]]", '{"a":null}', '{"":""}', '{"a":1,"a":2}', '"1e2147483647"'),
    *('"9999999999Ei"', '"2026-13-45T99:99:99Z"', "[" * 300 + "]" * 300, '{"a":' * 1100 + "1" + "}" * 1100),
    *("[" * 10_000 + "]" * 10_000, '"' + "a" * 100_000 + '"', "[" + ",".join(["{}"] * 5000) + "]"),
    *("{" + ",".join(f'"k{n}":{n}' for n in range(5000)) + "}", "1.50", '"\\u003c"', "\ud800"),
)
_VERBS: Final = ("ADDED", "MODIFIED", "MODIFIED", "DELETED")
_MARKED: Final = {"owner": 0.7, "annotations": 0.5, "other-uid": 0.1}
"""How often an object is controlled by a pod, has annotations that mean something, or is another object of the same name."""
_MARK: Final = "@wrong{}@"


@dataclass(frozen=True)
class _Path:
    steps: tuple[str | int, ...]


def new_events(kind: str, random: Random, *, wrong: bool) -> Gene:
    """A few objects, each with a short life of changes; `wrong` ones have parts that do not belong there."""
    return Gene("events", (), (kind,), tuple(_life(random, wrong=wrong) for _ in range(random.randrange(1, 5))))


def _life(random: Random, *, wrong: bool) -> Gene:
    steps = tuple(
        Gene(
            random.choice(_VERBS) if place else "ADDED",
            tuple(random.randrange(1000) for _ in range(random.choice((0, 2, 2, 4, 8)) if wrong else 0)),
            tuple(name for name, chance in _MARKED.items() if random.random() < chance),
        )
        for place in range(random.randrange(1, 5))
    )
    return Gene("life", (random.randrange(3),), (), steps)


def events(gene: Gene) -> list[tuple[str, str, str]]:
    """Kind, verb and JSON of each event."""
    kind = gene.texts[0]
    return [
        (kind, step.kind, _object(kind, f"evil-{number}", str(1_000_000 + 100 * number + place), step))
        for number, life in enumerate(gene.parts)
        for place, step in enumerate(life.parts)
    ]


def _object(kind: str, name: str, version: str, step: Gene) -> str:
    namespace = (
        {} if kind in {"resourceslices", "deviceclasses", "nodes", "devicetaintrules"} else {"namespace": "evil"}
    )
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, **namespace}
    if "owner" in step.texts:
        metadata["ownerReferences"] = [_OWNER]
    if "annotations" in step.texts:
        metadata["annotations"] = _ANNOTATIONS
    if "other-uid" in step.texts:
        metadata["uid"] = "uid-other"
    thing = json.loads(json.dumps({"metadata": metadata, **OBJECTS[kind]}))
    marks: list[str] = []
    for where, what in zip(step.numbers[::2], step.numbers[1::2], strict=True):
        _spoil(thing, where, what, marks)
    text = json.dumps(thing)
    for place, wrong in enumerate(marks):
        text = text.replace(f'"{_MARK.format(place)}"', wrong)
    return text


def _spoil(thing: Any, where: int, what: int, marks: list[str]) -> None:
    """Replace or drop one part of an object."""
    spec = thing.get("spec")
    fixed = {("metadata",), ("metadata", "name")}
    if isinstance(spec, dict) and "deviceSelector" in spec:
        # Without it the rule is one about all devices, and the neighbour's are tainted, as whoever may write rules can wish.
        fixed |= {("spec",), ("spec", "deviceSelector"), ("spec", "deviceSelector", "driver")}
    places = [place for place in _places(thing, ()) if place.steps not in fixed]
    *path, last = places[where % len(places)].steps
    parent = thing
    for step in path:
        parent = parent[step]
    if what % 5 == 0:
        del parent[last]
    else:
        parent[last] = _MARK.format(len(marks))
        marks.append(_WRONG[what % len(_WRONG)])


def _places(thing: Any, path: tuple[str | int, ...]) -> list[_Path]:
    steps: list[str | int] = (
        list(thing) if isinstance(thing, dict) else list(range(len(thing))) if isinstance(thing, list) else []
    )
    return [found for step in steps for found in (_Path((*path, step)), *_places(thing[step], (*path, step)))]


def _subject(kind: str, *, wrong: bool) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        place = random.randrange(len(gene.parts))
        return replace(gene, parts=(*gene.parts[:place], _life(random, wrong=wrong), *gene.parts[place + 1 :]))

    def smaller(gene: Gene) -> Any:
        for place in range(len(gene.parts)):
            if len(gene.parts) > 1:
                yield replace(gene, parts=(*gene.parts[:place], *gene.parts[place + 1 :]))
        for place, life in enumerate(gene.parts):
            for step in range(1, len(life.parts)):
                less = replace(life, parts=(*life.parts[:step], *life.parts[step + 1 :]))
                yield replace(gene, parts=(*gene.parts[:place], less, *gene.parts[place + 1 :]))

    def job(gene: Gene) -> Job:
        return {"kind": "informer", "events": events(gene)}

    def text(gene: Gene) -> str:
        return "; ".join(f"{verb} {shown[:300]}" for _, verb, shown in events(gene))

    weight = 3.0 if kind in {"resourceclaims", "pods"} else 1.0
    name = f"{kind}, {'wrong values' if wrong else 'changes'}"
    return Subject(name, partial(new_events, kind, wrong=wrong), change, job, text, smaller, weight)


PART: Final = Part(
    "informer",
    MODULE,
    lambda _: [(LIMITS, [_subject(kind, wrong=wrong) for kind in OBJECTS for wrong in (True, False)])],
    CPU_SECONDS,
)
"""Search for events that a watch does not survive."""
