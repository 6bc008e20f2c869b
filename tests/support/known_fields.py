"""Writes the fields of the objects of Kubernetes from the models of its client (`make generate`)."""

import json
import types
import typing
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

from dra_extender.manifests.check import BOOLEAN, INTEGER, KINDS, LIST, MAP, STRING, V1BETA1_KINDS
from kubernetes.aio.client import models
from pydantic import BaseModel

FILE: Final = Path(__file__).parents[2] / "app" / "dra_extender" / "manifests" / "known_fields.json"


_PLAIN: Final[dict[Any, str]] = {str: STRING, int: INTEGER, bool: BOOLEAN}


def table() -> dict[str, dict[str, str]]:
    """{type: {field: type of its value}} of everything that the kinds of manifests consist of."""
    found: dict[str, dict[str, str]] = {}
    waiting = [getattr(models, name) for name in (*KINDS.values(), *V1BETA1_KINDS.values())]
    while waiting:
        model = waiting.pop()
        if model.__name__ in found:
            continue
        fields = {each.serialization_alias or name: each.annotation for name, each in model.model_fields.items()}
        found[model.__name__] = {name: _type_name(each, waiting) for name, each in sorted(fields.items())}
    return dict(sorted(found.items()))


def text() -> str:
    """The table as the file has it, one type a line."""
    lines = (f"  {json.dumps(name)}: {json.dumps(fields)}" for name, fields in table().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _type_name(annotation: Any, waiting: list[type[BaseModel]]) -> str:
    """The type of a value; models are added to those that wait."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return _type_name(inner[0], waiting) if len(inner) == 1 else ""
    if origin in (list, dict, typing.Annotated):
        inside = _type_name(get_args(annotation)[1 if origin is dict else 0], waiting)
        return {list: LIST, dict: MAP}.get(origin, "") + inside
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        waiting.append(annotation)
        return annotation.__name__
    return ""
