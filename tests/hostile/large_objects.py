"""Large objects of every watched kind that API validation admits, with the bytes in one or a few places."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.hostile.genes import Gene, changed

Json = dict[str, Any]
SIZES: Final = tuple(kib * 1024 for kib in (10, 20, 40, 100, 250, 500, 1000))
NAME: Final = "evil-@name@"
VERSION: Final = "@version@"
_LONG: Final = 10 * 1024
_ALPHABETS: Final[tuple[Callable[[int, int], str], ...]] = (
    lambda place, size: (str(place) + "x" * size)[:size],
    lambda place, size: str(place) + "\u00e9" * (size // 2),
    lambda place, size: str(place) + "x" * max(0, size - 8) + "\U0001f600",
    lambda place, size: str(place) + "\u4e2d" * (size // 3),
    lambda place, size: str(place) + "\U0001f600" * (size // 4),
    lambda place, size: str(place) + '"' * (size // 2),
    lambda _, size: "x" * size,
)
"""Texts of about so many bytes: each its own, with characters that Python keeps in more bytes than UTF-8, or all alike."""


@dataclass(frozen=True)
class Place:
    """Where bytes go: a list or map in the object, how many entries the API admits, and the longest text of one."""

    path: tuple[str | int, ...]
    most: int
    longest: int
    entry: Callable[[int, str], Any]
    keyed: bool = False


def _named(place: int, text: str) -> str:
    return f"n{place}-{text}"[:63]


def _body(place: int, text: str) -> Json:
    return {
        "name": f"r{place}",
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        **_selectors(text),
    }


def _selectors(text: str) -> Json:
    return {"selectors": [{"cel": {"expression": f"device.driver == {json.dumps(text, ensure_ascii=False)}"}}]}


def _opaque(text: str) -> Json:
    return {"opaque": {"driver": "evil.example.com", "parameters": {"a": text}}}


_MANY: Final = 100_000
_METADATA: Final = (
    Place(("metadata", "annotations"), _MANY, 200_000, lambda _, text: text, keyed=True),
    Place(("metadata", "labels"), _MANY, 63, lambda _, text: text, keyed=True),
    Place(("metadata", "finalizers"), _MANY, 63, lambda place, text: f"example.com/{_named(place, text)}"),
    Place(
        ("metadata", "ownerReferences"),
        _MANY,
        253,
        lambda place, text: {"apiVersion": "v1", "kind": "Pod", "name": text, "uid": f"uid-{place}"},
    ),
    Place(
        ("metadata", "managedFields"),
        _MANY,
        128,
        lambda place, text: {
            "manager": text,
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:l{place}": {}}}},
        },
    ),
)
_CLAIM: Final = (
    Place(
        ("spec", "devices", "requests"),
        32,
        60,
        lambda place, text: {"name": f"r{place}", "exactly": _body(place, text)},
    ),
    Place(
        ("spec", "devices", "requests"),
        32,
        _LONG,
        lambda place, text: {"name": f"r{place}", "exactly": _body(place, text)},
    ),
    Place(
        ("spec", "devices", "requests"),
        32,
        _LONG,
        lambda place, text: {
            "name": f"r{place}",
            "firstAvailable": [_body(each, text[: 1 + each]) for each in range(8)],
        },
    ),
    Place(
        ("spec", "devices", "requests"),
        32,
        63,
        lambda place, text: {
            "name": f"r{place}",
            "firstAvailable": [
                {**_body(each, text), "tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(16)]}
                for each in range(8)
            ],
        },
    ),
    Place(
        ("spec", "devices", "requests"),
        32,
        63,
        lambda place, text: {
            "name": f"r{place}",
            "exactly": {**_body(place, ""), "capacity": {"requests": {f"c{n}": "1.5Gi" for n in range(32)}}},
        },
    ),
    Place(
        ("spec", "devices", "requests", 0, "exactly", "selectors"),
        31,
        _LONG,
        lambda _, text: _selectors(text)["selectors"][0],
    ),
    Place(
        ("spec", "devices", "constraints"),
        32,
        63,
        lambda place, text: {
            "requests": [f"r{n}" for n in range(32)],
            "matchAttribute": f"a.example.com/{_named(place, text)[:32]}",
        },
    ),
    Place(("spec", "devices", "config"), 32, _LONG, lambda _, text: {"requests": ["r"], **_opaque(text)}),
    Place(
        ("spec", "devices", "config"),
        32,
        _LONG,
        lambda _, text: {"requests": [f"r{n}" for n in range(32)], **_opaque(text[:8])},
    ),
    Place(
        ("status", "reservedFor"),
        256,
        253,
        lambda place, text: {"resource": "pods", "name": text, "uid": f"uid-{place}"},
    ),
    Place(
        ("status", "devices"),
        32,
        _LONG,
        lambda place, text: {"driver": "evil.example.com", "pool": "p", "device": f"d{place}", "data": {"a": text}},
    ),
    Place(
        ("status", "devices"),
        32,
        32_768,
        lambda place, text: {
            "driver": "evil.example.com",
            "pool": "p",
            "device": f"d{place}",
            "conditions": [
                {"type": f"T{n}", "status": "True", "reason": "R", "message": text[:4096]} for n in range(8)
            ],
        },
    ),
)
_POD: Final = (
    Place(("spec", "containers"), _MANY, 63, lambda place, text: {"name": _named(place, text)}),
    Place(
        ("spec", "containers"),
        _MANY,
        1_000,
        lambda place, text: {"name": f"c{place}", "env": [{"name": "A", "value": text}]},
    ),
    Place(
        ("spec", "containers"),
        _MANY,
        63,
        lambda place, _: {
            "name": f"c{place}",
            "resources": {each: {f"example.com/r{n}": "1" for n in range(20)} for each in ("requests", "limits")},
        },
    ),
    Place(("spec", "containers", 0, "resources", "requests"), _MANY, 1, lambda *_: "1", keyed=True),
    Place(("spec", "initContainers"), _MANY, 63, lambda place, text: {"name": _named(place, text)}),
    Place(
        ("spec", "resourceClaims"),
        _MANY,
        63,
        lambda place, text: {"name": f"c{place}", "resourceClaimName": _named(place, text)},
    ),
    Place(("spec", "tolerations"), _MANY, 63, lambda place, text: {"key": f"k{place}", "operator": "Exists"}),
    Place(
        ("status", "resourceClaimStatuses"),
        _MANY,
        63,
        lambda place, text: {"name": f"c{place}", "resourceClaimName": _named(place, text)},
    ),
    Place(
        ("status", "conditions"),
        _MANY,
        30_000,
        lambda place, text: {"type": f"T{place}", "status": "True", "message": text},
    ),
)
_GROUP: Final = (
    Place(
        ("spec", "resourceClaims"),
        4,
        63,
        lambda place, text: {"name": f"c{place}", "resourceClaimName": _named(place, text)},
    ),
    Place(
        ("status", "resourceClaimStatuses"),
        4,
        63,
        lambda place, text: {"name": f"c{place}", "resourceClaimName": _named(place, text)},
    ),
    Place(
        ("status", "conditions"),
        8,
        32_768,
        lambda place, text: {"type": f"T{place}", "status": "True", "message": text},
    ),
)
_SLICE: Final = (
    Place(("spec", "devices"), 128, 64, lambda place, _: {"name": f"d{place}"}),
    Place(
        ("spec", "devices"),
        128,
        64,
        lambda place, text: {
            "name": f"d{place}",
            "attributes": {f"a{n}": {"string": f"{n}{text}"[:64]} for n in range(32)},
        },
    ),
    Place(
        ("spec", "devices"),
        128,
        64,
        lambda place, _: {"name": f"d{place}", "attributes": {f"a{n}": {"int": n} for n in range(32)}},
    ),
    Place(
        ("spec", "devices"),
        128,
        64,
        lambda place, _: {"name": f"d{place}", "capacity": {f"c{n}": {"value": f"{n}.5Gi"} for n in range(32)}},
    ),
    Place(
        ("spec", "devices"),
        64,
        253,
        lambda place, text: {
            "name": f"d{place}",
            "taints": [{"key": f"k{n}", "value": text[:63], "effect": "NoSchedule"} for n in range(4)],
        },
    ),
)
_CLASS: Final = (
    Place(("spec", "selectors"), 32, _LONG, lambda _, text: _selectors(text)["selectors"][0]),
    Place(("spec", "config"), 32, _LONG, lambda _, text: _opaque(text)),
)
_NODE: Final = (
    Place(
        ("spec", "taints"), _MANY, 63, lambda place, text: {"key": f"k{place}", "value": text, "effect": "NoSchedule"}
    ),
    Place(("status", "images"), _MANY, 200, lambda _, text: {"names": [text], "sizeBytes": 1}),
    Place(("status", "allocatable"), _MANY, 1, lambda *_: "1", keyed=True),
    Place(("status", "declaredFeatures"), _MANY, 63, lambda _, text: text),
)
PLACES: Final[Mapping[str, tuple[Place, ...]]] = {
    "resourceclaims": (*_METADATA, *_CLAIM),
    "pods": (*_METADATA, *_POD),
    "podgroups": (*_METADATA, *_GROUP),
    "resourceslices": (*_METADATA, *_SLICE),
    "deviceclasses": (*_METADATA, *_CLASS),
    "nodes": (*_METADATA, *_NODE),
}
"""What differs between the objects of a kind; templates and PodGroup templates are not watched, but read one at a time."""
_CLUSTER_WIDE: Final = frozenset({"resourceslices", "deviceclasses", "nodes"})
_SPECS: Final[Mapping[str, Json]] = {
    "resourceclaims": {"devices": {"requests": [{"name": "r", "exactly": {**_body(0, ""), "name": ""}}]}},
    "pods": {"schedulerName": "dra-scheduler", "containers": [{"name": "c", "resources": {"requests": {}}}]},
    "podgroups": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    "resourceslices": {
        "driver": "evil.example.com",
        "pool": {"name": NAME, "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [],
    },
    "deviceclasses": {},
    "nodes": {},
}


def new_object(kind: str, random: Random) -> Gene:
    """A size, and up to three places with their share of it."""
    fillers = tuple(_filler(kind, random) for _ in range(random.choice((1, 1, 2, 3))))
    return Gene(kind, (random.randrange(len(SIZES)),), (), fillers)


def _filler(kind: str, random: Random) -> Gene:
    """A place, its share, how long its texts are (a power of two), and what of."""
    numbers = (
        random.randrange(len(PLACES[kind])),
        random.randrange(1, 9),
        random.randrange(19),
        random.randrange(len(_ALPHABETS)),
    )
    return Gene("filler", numbers)


def changed_object(random: Random, gene: Gene) -> Gene:
    """One number is another, or one place is."""
    if random.random() < 0.4:
        place = random.randrange(len(gene.parts))
        return replace(gene, parts=(*gene.parts[:place], _filler(gene.kind, random), *gene.parts[place + 1 :]))
    return changed(random, gene, lambda _: _filler(gene.kind, random))


def smaller_object(gene: Gene) -> Iterator[Gene]:
    """Fewer places."""
    if len(gene.parts) > 1:
        for place in range(len(gene.parts)):
            yield replace(gene, parts=(*gene.parts[:place], *gene.parts[place + 1 :]))


def size_of(gene: Gene) -> int:
    """How many bytes it was meant to have."""
    return SIZES[gene.numbers[0] % len(SIZES)]


def in_the_status(gene: Gene) -> bool:
    """Whether anything of it is where only controllers, drivers and kubelets write."""
    places = PLACES[gene.kind]
    return any(places[part.numbers[0] % len(places)].path[0] == "status" for part in gene.parts)


def text_of(gene: Gene) -> str:
    """The object in JSON, with NAME and VERSION to be replaced in each copy."""
    kind = gene.kind
    thing = json.loads(json.dumps({"metadata": _identity(kind), "spec": _SPECS[kind], "status": {}}))
    shares = sum(1 + part.numbers[1] for part in gene.parts)
    for part in gene.parts:
        _fill(thing, kind, part, size_of(gene) * (1 + part.numbers[1]) // shares)
    return json.dumps(thing, ensure_ascii=False, separators=(",", ":"))


def described(gene: Gene) -> str:
    """For people: the size, and where it is."""
    fillers = []
    for part in gene.parts:
        place = PLACES[gene.kind][part.numbers[0] % len(PLACES[gene.kind])]
        longest = min(place.longest, 2 ** min(part.numbers[2], 18))
        fillers.append(
            f"{'.'.join(map(str, place.path))} (texts of {longest}, alphabet {part.numbers[3] % len(_ALPHABETS)})"
        )
    return f"{gene.kind} of {size_of(gene) // 1024} KiB in {', '.join(fillers)}"


def _identity(kind: str) -> Json:
    namespace = {} if kind in _CLUSTER_WIDE else {"namespace": "evil"}
    return {"name": NAME, "uid": f"uid-{NAME}", "resourceVersion": VERSION, **namespace}


def _fill(thing: Json, kind: str, gene: Gene, size: int) -> None:
    place = PLACES[kind][gene.numbers[0] % len(PLACES[kind])]
    *path, last = place.path
    parent: Any = thing
    for step in path:
        parent = parent[step] if isinstance(step, int) else parent.setdefault(step, {})
        if isinstance(parent, dict) and "firstAvailable" in parent:
            return
    entries = parent.setdefault(last, {} if place.keyed else [])
    text = _ALPHABETS[gene.numbers[3] % len(_ALPHABETS)]
    longest = max(1, min(place.longest, 2 ** min(gene.numbers[2], 18)))
    while size > 0 and len(entries) < place.most:
        number = len(entries)
        value = place.entry(number, text(number, min(longest, size)))
        if place.keyed:
            entries[f"example.com/k{number}"] = value
        else:
            entries.append(value)
        size -= len(json.dumps(value, ensure_ascii=False).encode()) + (24 if place.keyed else 1)
