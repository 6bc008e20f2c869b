"""The fields that a snapshot keeps of each object: those that the structs of the model describe, and no others.

No environment, arguments, commands, contents of volumes or opaque parameters of drivers: these may hold secrets, and no decision
reads them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Union

from dra_extender.model.api_json import Value
from dra_extender.model.fields import Field, ListOf, Mark, Record, fields_of
from dra_extender.model.objects import LABELLED, WATCHED
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION

Fields = Mapping[str, Union["Fields", None]]
"""Names of fields that are kept; None keeps the whole value.  Fields of the elements of a list are named as the list's own."""

_OUR_ANNOTATIONS: Final = "dra-extender.io/"
_KEPT_ANNOTATIONS: Final = frozenset({ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION, EXTENDED_ANNOTATION})


def _fields(struct: type[Value]) -> Fields:
    kept_here = [field for field in fields_of(struct) if Mark.LEFT_OUT not in field.marks]
    return MappingProxyType({field.name: _fields_in(field) for field in kept_here})


def _fields_in(field: Field) -> Fields | None:
    shape = field.shape.item if isinstance(field.shape, ListOf) else field.shape
    return _fields(shape.struct) if isinstance(shape, Record) and Mark.WHOLE not in field.marks else None


KEPT: Final[Mapping[str, Fields]] = MappingProxyType({kind: _fields(struct) for kind, struct in WATCHED.items()})


def kept(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the fields that a snapshot keeps, and no others."""
    found: dict[str, Any] = cut_to(item, KEPT[kind])
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        return found
    if kind not in LABELLED:
        metadata.pop("labels", None)
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {
            name: text
            for name, text in annotations.items()
            if name.startswith(_OUR_ANNOTATIONS) or name in _KEPT_ANNOTATIONS
        }
    return found


def cut_to(value: Any, fields: Fields) -> Any:
    """Return the fields of a value, or of the elements of a list, that are named, and no others."""
    if isinstance(value, list):
        return [cut_to(each, fields) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, nested in fields.items():
        if name in value:
            found[name] = value[name] if nested is None else cut_to(value[name], nested)
    return found
