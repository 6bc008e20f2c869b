"""Which fields the objects of Kubernetes 1.37 have, at any depth, and the shape of their values.

`known_fields.json` is written from the Kubernetes client (`python -m tests.support.known_fields`).  It has the types by name, and
of each type the fields: the type of its value, `[]` before it for a list, `{}` for a mapping; nothing for a value of any shape.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import shown

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
_DRAFTED: Final[Mapping[str, tuple[str, ...]]] = {
    # Drafts of KEP-5729 and releases before 1.37.
    "V1PodSpec": ("workloadRef",),
    "V1PodResourceClaim": ("podGroupResourceClaim",),
    "V1beta1PodGroupSpec": ("podGroupTemplateRef",),
    "V1beta1WorkloadReference": ("name",),
    "V1beta1WorkloadSpec": ("podGroups",),
    "V1beta1PodGroupTemplate": ("policy",),
    # See docs/policy.md.
    "V1Device": ("compatibleOnlyWith",),
    # KEP-5963; no release has it.
    "V1DeviceRequestAllocationResult": ("compatibilityGroups",),
}
Fields = Mapping[str, str]


class WrongField(NamedTuple):
    """A field that the API does not have, or that has another shape there, and what was expected."""

    path: FieldPath
    sentence: str


def wrong_fields(kind: str, value: Any) -> Iterator[WrongField]:
    """The fields of a manifest that no API server knows, and values that it cannot read; null is as good as nothing."""
    yield from _below(KINDS[kind], value, ())


def _below(type_name: str, value: Any, path: FieldPath) -> Iterator[WrongField]:
    wanted, types = _SHAPES.get(type_name[:2] if type_name[:2] in (LIST, MAP) else type_name, _OBJECT)
    if value is None or not type_name:
        return
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield WrongField(path, f"expected {wanted}, got {shown(value)}")
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


def _of_fields(fields: Fields, value: Mapping[str, Any], path: FieldPath) -> Iterator[WrongField]:
    for name, item in value.items():
        if name in fields:
            yield from _below(fields[name], item, (*path, name))
        else:
            yield WrongField((*path, name), _sentence(name, fields))


def _sentence(name: str, fields: Fields) -> str:
    close = difflib.get_close_matches(name, fields, n=1)
    if close:
        return f"unknown field; did you mean {close[0]!r}?"
    return f"unknown field; expected one of {', '.join(fields)}"


@cache
def _fields() -> Mapping[str, Fields]:
    """The fields of each type, with those of drafts."""
    data = (resources.files("dra_extender.validation") / "known_fields.json").read_bytes()
    found: dict[str, dict[str, str]] = msgspec.json.decode(data, type=dict[str, dict[str, str]])
    for type_name, names in _DRAFTED.items():
        found[type_name].update(dict.fromkeys(names, ""))
    return found
