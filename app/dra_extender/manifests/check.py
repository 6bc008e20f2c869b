"""Check of an object that people wrote, as an API server of Kubernetes 1.37 does it: unknown fields, wrong values, broken rules.

The structs of the model say which fields an object has and what may be in them, `rules` has the rules between fields, and
`known_fields` the fields that the model does not describe.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, assert_never

import msgspec

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.formats import check_parameters, check_text
from dra_extender.manifests.problems import Problem, Problems, shown, unknown_field_sentence
from dra_extender.manifests.rules import HINTS, RULES
from dra_extender.model.api_json import Value, number_of
from dra_extender.model.fields import (
    Anything,
    Field,
    Flag,
    Format,
    ListOf,
    MapOf,
    Mark,
    Number,
    NumberRange,
    Record,
    Shape,
    Text,
    fields_of,
)
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
    "DaemonSet": "V1DaemonSet",
    "Job": "V1Job",
    "CronJob": "V1CronJob",
}
"""The type of each kind of manifest."""
V1BETA1_KINDS: Final[Mapping[str, str]] = {
    "ResourceSlice": "V1beta1ResourceSlice",
    "DeviceClass": "V1beta1DeviceClass",
    "ResourceClaimTemplate": "V1beta1ResourceClaimTemplate",
    "ResourceClaim": "V1beta1ResourceClaim",
}
"""The types of kinds in resource.k8s.io/v1beta1, where requests and devices have other fields; drafts are not for it."""
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


def wrong_fields(kind: str, value: Any, types: Mapping[str, str] = KINDS) -> Problems:
    """Yield the fields of a manifest that no API server knows, and values that it cannot read; null is as good as nothing."""
    yield from _below(types[kind], value, ())


def _below(type_name: str, value: Any, path: FieldPath) -> Problems:
    expected, types = _SHAPES.get(type_name[:2] if type_name[:2] in (LIST, MAP) else type_name, _OBJECT)
    if value is None or not type_name:
        return
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield Problem(path, f"expected {expected}, got {shown(value)}")
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


def _of_fields(fields: Fields, value: Mapping[str, Any], path: FieldPath) -> Problems:
    for name, item in value.items():
        if name in fields:
            yield from _below(fields[name], item, (*path, name))
        else:
            yield Problem((*path, name), unknown_field_sentence(name, fields))


@cache
def _fields() -> Mapping[str, Fields]:
    """Return the fields of each type, with those of drafts that the model describes."""
    data = (resources.files("dra_extender.manifests") / "known_fields.json").read_bytes()
    types: dict[str, dict[str, str]] = msgspec.json.decode(data, type=dict[str, dict[str, str]])
    for kind, type_name in KINDS.items():
        _add_drafts(types, WRITTEN[kind], type_name)
    return types


def _add_drafts(types: dict[str, dict[str, str]], struct: type[Value], type_name: str) -> None:
    fields = types.get(type_name.removeprefix(LIST).removeprefix(MAP), {})
    for field in fields_of(struct):
        if Mark.DRAFT in field.marks:
            fields.setdefault(field.name, "")
        shape = field.shape
        while isinstance(shape, ListOf | MapOf):
            shape = shape.item if isinstance(shape, ListOf) else shape.value
        if isinstance(shape, Record) and field.name in fields:
            _add_drafts(types, shape.struct, fields[field.name])


_IDENTITY: Final = tuple(Field(name, Text(Format.PLAIN), frozenset()) for name in ("apiVersion", "kind"))


def schema_problems(kind: str, value: Mapping[str, Any]) -> Problems:
    """Find what is wrong with a manifest.  Rules between fields are checked once each of the fields is right."""
    wrong_paths = set()
    fields = (*_IDENTITY, *sorted(fields_of(WRITTEN[kind]), key=lambda field: field.name))
    for problem in _check_fields(WRITTEN[kind], fields, value, ()):
        wrong_paths.add(problem.path)
        yield problem
    yield from (problem for problem in wrong_fields(kind, value) if problem.path not in wrong_paths)


def _check(shape: Shape, value: Any, path: FieldPath) -> Problems:
    match shape:
        case Record(struct):
            yield from _check_record(struct, value, path)
        case ListOf():
            yield from _check_list(shape, value, path)
        case MapOf():
            yield from _check_map(shape, value, path)
        case Text(text_format, one_of):
            if not one_of:
                problem = check_text(text_format, value)
                if problem is not None:
                    yield problem.below(path)
            elif not isinstance(value, str) or value not in one_of:
                yield Problem(path, f"expected {_either(one_of)}, got {shown(value)}")
        case Number(bounds):
            yield from _check_number(bounds, value, path)
        case Flag(only_true):
            if only_true and value is not True:
                yield Problem(path, f"expected true, or the field left out, got {shown(value)}")
            elif not isinstance(value, bool):
                yield Problem(path, f"expected true or false, got {shown(value)}")
        case Anything():
            problem = check_parameters(value)
            if problem is not None:
                yield problem.below(path)
        case _:
            assert_never(shape)


def _check_record(struct: type[Value], value: Any, path: FieldPath) -> Problems:
    if not isinstance(value, dict):
        yield Problem(path, f"expected a mapping of fields, got {shown(value)}")
        return
    problems = list(_check_fields(struct, fields_of(struct), value, path))
    yield from problems
    for rule in RULES.get(struct, ()) if not problems else ():
        broken = [problem.below(path) for problem in rule(value)]
        yield from broken
        if broken:
            return


def _check_fields(struct: type[Value], fields: Sequence[Field], value: Mapping[str, Any], path: FieldPath) -> Problems:
    accepted = [field for field in fields if field.accepted]
    for field in accepted:
        below, item = (*path, field.name), value.get(field.name)
        if field.name not in value:
            if Mark.REQUIRED in field.marks:
                yield Problem(below, "expected a value, the field is missing")
        elif Mark.UNCHECKED not in field.marks and (item is not None or Mark.REQUIRED in field.marks):
            yield from _check(field.shape, item, below)
    if not struct.in_part:
        names = [field.name for field in accepted]
        for name in value:
            if name not in names:
                hint = HINTS.get(struct, {}).get(name)
                sentence = f"unknown field; {hint}" if hint else unknown_field_sentence(name, names)
                yield Problem((*path, name), sentence)


def _check_list(shape: ListOf, value: Any, path: FieldPath) -> Problems:
    min_items, max_items, once = shape.items
    if not isinstance(value, list):
        yield Problem(path, f"expected a list, got {shown(value)}")
    elif max_items is not None and len(value) > max_items:
        yield Problem(path, f"expected at most {number_of(max_items, 'item')}, got {shown(value)}")
    elif len(value) < min_items:
        yield Problem(path, f"expected at least {number_of(min_items, 'item')}, got {shown(value)}")
    else:
        problems = [problem for index, item in enumerate(value) for problem in _check(shape.item, item, (*path, index))]
        yield from problems
        if once is not None and not problems:
            yield from _check_once(once, value, path)


def _check_once(field: str, items: Sequence[Any], path: FieldPath) -> Problems:
    names = set()
    for index, item in enumerate(items):
        name = item[field] if field else item
        if name in names:
            where = (*path, index, field) if field else (*path, index)
            yield Problem(where, f"expected each only once, got {shown(name)} again")
            return
        names.add(name)


def _check_map(shape: MapOf, value: Any, path: FieldPath) -> Problems:
    if not isinstance(value, dict):
        yield Problem(path, f"expected a mapping of fields, got {shown(value)}")
        return
    problems = []
    for name, item in value.items():
        problems += [*_check(shape.key, name, (*path, name)), *_check(shape.value, item, (*path, name))]
    yield from problems
    min_items, max_items, _ = shape.items
    if not problems and len(value) < min_items:
        yield Problem(path, f"expected at least {number_of(min_items, 'item')}, got {shown(value)}")
    elif not problems and max_items is not None and len(value) > max_items:
        yield Problem(path, f"expected at most {number_of(max_items, 'item')}, got {shown(value)}")


def _check_number(bounds: NumberRange, value: Any, path: FieldPath) -> Problems:
    if isinstance(value, bool) or not isinstance(value, int):
        expected = "a whole number"
    elif value >= bounds.below:
        expected = f"a whole number below 2^{bounds.below.bit_length() - 1}"
    elif value < bounds.least:
        expected = "a whole number above 0" if bounds.least else "a whole number of at least 0"
    else:
        return
    yield Problem(path, f"expected {expected}, got {shown(value)}")


def _either(values: Sequence[Any]) -> str:
    *leading, last = map(repr, values)
    return f"{', '.join(leading)} or {last}"
