"""Part "lives": pods, claims and PodGroups that refer to each other, whose marks come and go from one event to the next."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from tests.controlplane.objects import on_node
from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene
from tests.hostile.verdicts import BROKEN, GROWN, STALL, Job

MODULE: Final = "lives"
LIMITS: Final = (BROKEN, STALL, GROWN)
CPU_SECONDS: Final = 30.0
_KINDS: Final = ("pods", "resourceclaims", "podgroups")
_FAMILIES: Final = 2
_OBJECTS: Final = {"pods": 1, "resourceclaims": 3, "podgroups": 1}
"""How many of each kind a family has, which all refer to its first of each."""
_OFTEN: Final = 6
"""How much more often the kind is changed that a sequence is about."""
_MOST_CHANGES: Final = 48
_MARKED: Final = 0.6
"""How often a mark is there when an object appears."""
_RARE: Final = 0.08
"""The same for marks that end the life of an object, or make others meaningless."""
_DELETE: Final = 0.3
_TIME: Final = "2026-01-01T00:00:00Z"
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_RESULT: Final = {"request": "r", "driver": "evil.example.com", "pool": "evil", "device": "e0"}
_EXACTLY: Final = {"deviceClassName": "all", "allocationMode": "ExactCount", "count": 1}
_SPEC: Final = {"devices": {"requests": [{"name": "r", "exactly": _EXACTLY}]}}

Json = dict[str, Any]
Mark = Callable[[Json, int], None]


def _metadata(**changes: Any) -> Mark:
    return lambda thing, number: thing["metadata"].update(_numbered(changes, number))


def _status(**changes: Any) -> Mark:
    return lambda thing, number: thing.setdefault("status", {}).update(_numbered(changes, number))


def _spec(**changes: Any) -> Mark:
    return lambda thing, number: thing.setdefault("spec", {}).update(_numbered(changes, number))


def _numbered(changes: Mapping[str, Any], number: int) -> Json:
    """A copy in which "#" is the number of the object."""
    made: Json = json.loads(json.dumps(changes).replace("#", str(number)))
    return made


def _annotated(**annotations: str) -> Mark:
    return lambda thing, number: thing["metadata"].setdefault("annotations", {}).update(annotations)


def _owned(**owner: Any) -> Mark:
    return _metadata(ownerReferences=[{"controller": True, "name": "evil-#", **owner}])


_EVERY: Final[Mapping[str, Mark]] = {
    "other UID": _metadata(uid="uid-evil-other-#"),
    "deleting": _metadata(deletionTimestamp=_TIME, deletionGracePeriodSeconds=0),
    "finalizer": _metadata(finalizers=[_FINALIZER]),
    "labels": _metadata(labels={"a": "#"}),
}
MARKS: Final[Mapping[str, Mapping[str, Mark]]] = {
    "resourceclaims": {
        **_EVERY,
        "owned by pod": _owned(apiVersion="v1", kind="Pod", uid="uid-evil-pods-#"),
        "owned by group": _owned(apiVersion="scheduling.k8s.io/v1alpha3", kind="PodGroup", uid="uid-evil-podgroups-#"),
        "for extended resources": _annotated(**{"resource.kubernetes.io/extended-resource-claim": "true"}),
        "for an entry": _annotated(**{"resource.kubernetes.io/pod-claim-name": "t"}),
        "allocated": _status(allocation={"devices": {"results": [_RESULT]}, "nodeSelector": on_node("node-1")}),
        "reserved for pod": _status(reservedFor=[{"resource": "pods", "name": "evil-#", "uid": "uid-evil-pods-#"}]),
        "reserved for group": _status(
            reservedFor=[
                {
                    "apiGroup": "scheduling.k8s.io",
                    "resource": "podgroups",
                    "name": "evil-#",
                    "uid": "uid-evil-podgroups-#",
                }
            ]
        ),
        "driver's status": _status(devices=[{**_RESULT, "conditions": [{"type": "Ready", "status": "False"}]}]),
        "no status": lambda thing, _: thing.pop("status", None),
    },
    "pods": {
        **_EVERY,
        "uses claim": _spec(resourceClaims=[{"name": "c", "resourceClaimName": "evil-#"}]),
        "uses template": _spec(resourceClaims=[{"name": "t", "resourceClaimTemplateName": "evil-#"}]),
        "extended resources": _spec(
            containers=[{"name": "c", "resources": {"requests": {"example.com/evil": "1"}}}],
        ),
        "more than there is": _spec(
            containers=[{"name": "c", "resources": {"requests": {"example.com/evil": "1000"}}}],
        ),
        "on a node": _spec(nodeName="node-1"),
        "in the group": _spec(
            workloadRef={"name": "w", "podGroup": "evil-#"}, schedulingGroup={"podGroupName": "evil-#"}
        ),
        "knows its claim": _status(resourceClaimStatuses=[{"name": "t", "resourceClaimName": "evil-#"}]),
        "knows its extended claim": _status(
            extendedResourceClaimStatus={
                "resourceClaimName": "evil-#",
                "requestMappings": [
                    {"containerName": "c", "resourceName": "example.com/evil", "requestName": "container-0-request-0"}
                ],
            }
        ),
        "running": _status(phase="Running"),
        "over": _status(phase="Failed"),
        "nominated": _status(nominatedNodeName="node-2"),
    },
    "podgroups": {
        **_EVERY,
        "gang": _spec(schedulingPolicy={"gang": {"minCount": 2}}),
        "gang of many": _spec(schedulingPolicy={"gang": {"minCount": 1000}}),
        "claims": _spec(resourceClaims=[{"name": "t", "resourceClaimName": "evil-#"}]),
        "templates": _spec(resourceClaims=[{"name": "t", "resourceClaimTemplateName": "evil-#"}]),
        "knows its claim": _status(resourceClaimStatuses=[{"name": "t", "resourceClaimName": "evil-#"}]),
    },
}
"""What events may add to an object or leave out again, by kind."""
_LAST: Final = frozenset({"other UID", "deleting", "no status", "on a node", "running", "over", "in the group"})
_ONE_OF: Final = (
    frozenset({"uses claim", "uses template", "extended resources", "more than there is"}),
    frozenset({"owned by pod", "owned by group"}),
)
"""Marks of which most objects have one when they appear."""


def new_lives(about: str, random: Random) -> Gene:
    """All objects appear in any order; then some, most often of one kind, are changed, deleted, and added again."""
    kinds = (*_KINDS, *(about for _ in range(_OFTEN) if about in _KINDS))
    objects = [(kind, number) for kind in _KINDS for number in range(_FAMILIES * _OBJECTS[kind])]
    random.shuffle(objects)
    state: dict[tuple[str, int], tuple[str, ...]] = {}
    steps = []
    for place in range(len(objects) + random.randrange(_MOST_CHANGES // 3, _MOST_CHANGES)):
        if place < len(objects):
            known = objects[place]
        else:
            kind = random.choice(kinds)
            known = kind, random.randrange(_FAMILIES * _OBJECTS[kind])
        marks = _flipped(random, known[0], state.get(known))
        verb = "MODIFIED" if known in state else "ADDED"
        if verb == "MODIFIED" and random.random() < _DELETE:
            verb = "DELETED"
            marks = random.choice((marks, state.pop(known)))
        else:
            state[known] = marks
        steps.append(Gene(verb, (known[1],), (known[0], *marks)))
    return Gene("lives", (), (), tuple(steps))


def _flipped(random: Random, kind: str, marks: tuple[str, ...] | None) -> tuple[str, ...]:
    """Marks of a new object, or those before with one or two that came or went."""
    if marks is None:
        drawn = {name for name in MARKS[kind] if random.random() < (_RARE if name in _LAST else _MARKED)}
        for alternatives in _ONE_OF:
            if random.random() > _RARE:
                drawn = drawn - alternatives | {random.choice(sorted(alternatives))}
        return tuple(name for name in MARKS[kind] if name in drawn)
    flipped = {_drawn(random, kind, marks) for _ in range(random.choice((1, 1, 2)))}
    return tuple(name for name in MARKS[kind] if (name in marks) != (name in flipped))


def _drawn(random: Random, kind: str, marks: tuple[str, ...]) -> str:
    """As often one that is there as one that is not."""
    return random.choice(marks if marks and random.random() < 0.7 else tuple(MARKS[kind]))


def events(gene: Gene) -> list[tuple[str, str, str]]:
    """Kind, verb and JSON of each event."""
    return [
        (step.texts[0], step.kind, json.dumps(_object(step, 1_000_000 + place)))
        for place, step in enumerate(gene.parts)
    ]


def _object(step: Gene, version: int) -> Json:
    kind, *marks = step.texts
    number = step.numbers[0]
    metadata = {
        "name": f"evil-{number}",
        "namespace": "evil",
        "uid": f"uid-evil-{kind}-{number}",
        "resourceVersion": str(version),
        "creationTimestamp": _TIME,
    }
    bodies: Mapping[str, Json] = {
        "resourceclaims": {"spec": _SPEC, "status": {}},
        "pods": {
            "spec": {"schedulerName": "dra-scheduler", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        },
        "podgroups": {"spec": {}, "status": {}},
    }
    thing: Json = json.loads(json.dumps({"metadata": metadata, **bodies[kind]}))
    for name in marks:
        MARKS[kind][name](thing, number % _FAMILIES)
    return thing


def _subject(about: str) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        other = new_lives(about, random)
        place = random.randrange(len(gene.parts))
        if random.random() < 0.5:
            return replace(gene, parts=(*gene.parts[:place], *other.parts)[: 2 * _MOST_CHANGES])
        step = gene.parts[place]
        kind, *marks = step.texts
        flipped = replace(step, texts=(kind, *_flipped(random, kind, tuple(marks))))
        return replace(gene, parts=(*gene.parts[:place], flipped, *gene.parts[place + 1 :]))

    def smaller(gene: Gene) -> Iterator[Gene]:
        for place in range(len(gene.parts)):
            if len(gene.parts) > 1:
                yield replace(gene, parts=(*gene.parts[:place], *gene.parts[place + 1 :]))
        for place, step in enumerate(gene.parts):
            for mark in range(1, len(step.texts)):
                less = replace(step, texts=(*step.texts[:mark], *step.texts[mark + 1 :]))
                yield replace(gene, parts=(*gene.parts[:place], less, *gene.parts[place + 1 :]))

    def job(gene: Gene) -> Job:
        return {"kind": "lives", "events": events(gene)}

    def text(gene: Gene) -> str:
        return "; ".join(
            f"{step.kind} {step.texts[0]} {step.numbers[0]} ({', '.join(step.texts[1:])})" for step in gene.parts
        )

    weight = 3.0 if about == "resourceclaims" else 1.0
    return Subject(about, partial(new_lives, about), change, job, text, smaller, weight)


PART: Final = Part(
    "lives", MODULE, lambda _: [(LIMITS, [_subject(kind) for kind in (*_KINDS, "all kinds")])], CPU_SECONDS
)
"""Search for sequences of events after which a background task is dead, or a neighbour's pod is not placed."""
