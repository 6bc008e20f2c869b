"""Which fields the objects of Kubernetes 1.37 have, at any depth, and the shape of their values.

`known_fields.json` is written from the Kubernetes client (`make generate`).  It has the types by name, and
of each type the fields: the type of its value, `[]` before it for a list, `{}` for a mapping; nothing for a value of any shape.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import Problem, shown, unknown_field_sentence
from dra_extender.model.api_json import Value
from dra_extender.model.fields import ListOf, MapOf, Mark, Record, fields_of
from dra_extender.model.objects import WRITTEN

KINDS: Final[Mapping[str, str]] = {
    "Node": "V1Node",
    "ResourceSlice": "V1ResourceSlice",
    "DeviceClass": "V1DeviceClass",
    "DeviceTaintRule": "V1DeviceTaintRule",
    "ResourceClaimTemplate": "V1ResourceClaimTemplate",
    "ResourceClaim": "ResourceV1ResourceClaim",
    "PodGroup": "V1beta1PodGroup",
    "Workload": "V1beta1Workload",
    "Pod": "V1Pod",
    "Deployment": "V1Deployment",
    "ReplicaSet": "V1ReplicaSet",
    "StatefulSet": "V1StatefulSet",
    "Job": "V1Job",
}
"""The type of each kind of manifest."""
LIST: Final = "[]"
MAP: Final = "{}"
STRING: Final = "string"
INTEGER: Final = "integer"
BOOLEAN: Final = "boolean"
_OBJECT: Final[tuple[str, tuple[type, ...]]] = ("a mapping of fields", (dict,))
_SHAPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    LIST: ("a list", (list,)),
    MAP: _OBJECT,
    # A quantity is a string of the API that people write as a number, too.
    STRING: ("a text", (str, int, float)),
    INTEGER: ("a whole number", (int,)),
    BOOLEAN: ("true or false", (bool,)),
}
Fields = Mapping[str, str]


def wrong_fields(kind: str, value: Any) -> Iterator[Problem]:
    """The fields of a manifest that no API server knows, and values that it cannot read; null is as good as nothing."""
    yield from _below(KINDS[kind], value, ())


def _below(type_name: str, value: Any, path: FieldPath) -> Iterator[Problem]:
    wanted, types = _SHAPES.get(type_name[:2] if type_name[:2] in (LIST, MAP) else type_name, _OBJECT)
    if value is None or not type_name:
        return
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield Problem(path, f"expected {wanted}, got {shown(value)}")
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(type_name.removeprefix(LIST), item, (*path, index))
    elif isinstance(value, dict):
        if not type_name.startswith(MAP):
            yield from _of_fields(_fields()[type_name], value, path)
            return
        for name, item in value.items():
            yield from _below(type_name.removeprefix(MAP), item, (*path, name))


def _of_fields(fields: Fields, value: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    for name, item in value.items():
        if name in fields:
            yield from _below(fields[name], item, (*path, name))
        else:
            yield Problem((*path, name), unknown_field_sentence(name, fields))


@cache
def _fields() -> Mapping[str, Fields]:
    """The fields of each type, with those of drafts that the model describes."""
    data = (resources.files("dra_extender.manifests") / "known_fields.json").read_bytes()
    found: dict[str, dict[str, str]] = msgspec.json.decode(data, type=dict[str, dict[str, str]])
    for kind, type_name in KINDS.items():
        _add_drafts(found, WRITTEN[kind], type_name)
    return found


def _add_drafts(types: dict[str, dict[str, str]], struct: type[Value], type_name: str) -> None:
    known = types.get(type_name.removeprefix(LIST).removeprefix(MAP), {})
    for field in fields_of(struct):
        if Mark.DRAFT in field.marks:
            known.setdefault(field.name, "")
        shape = field.shape
        while isinstance(shape, ListOf | MapOf):
            shape = shape.item if isinstance(shape, ListOf) else shape.value
        if isinstance(shape, Record) and field.name in known:
            _add_drafts(types, shape.struct, known[field.name])
