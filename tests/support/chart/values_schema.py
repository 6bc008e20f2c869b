"""The chart's values.schema.json and the table of values in its README, made from values.yaml and the program's models.

`make generate` writes both.  values.yaml says which values there are (`commented_values`).  Settings
and policy are those of the program; objects of Kubernetes have the newest release's types.
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from dra_extender.config.policy_file import FileModel
from dra_extender.config.settings import Settings
from pydantic import BaseModel

from tests.support.chart.commented_values import CommentedValue, UnexplainedValueError, read_values
from tests.support.chart.kubernetes_types import KubernetesTypes, Schema, newest_release, read_types

CHART: Final = Path(__file__).parents[3] / "helm" / "dra-extender"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
DOCUMENT: Final = CHART / "README.md"
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_MODELS: Final[Mapping[str, type[BaseModel]]] = {"Settings": Settings, "Policy": FileModel}
_DROPPED: Final = ("title", "format", "default")
_OF_RULES: Final[Schema] = {
    "anyOf": [
        {"required": [field]}
        for field in (
            "compatibilityGroups",
            "physicalDevice",
            "bindingConditions",
            "bindsToNode",
            "compatibleOnlyWith",
        )
    ],
    "dependencies": {
        "counterSet": ["compatibilityGroups"],
        "neighbours": ["compatibleOnlyWith"],
        "bindingConditions": ["bindingFailureConditions"],
        "bindingFailureConditions": ["bindingConditions"],
    },
}
"""What the policy's reader checks after the model: a rule supplies something, and some fields need others."""


def schema(values: Iterable[CommentedValue] | None = None, types: KubernetesTypes | None = None) -> Schema:
    """The schema (draft-07), closed to the bottom.

    Raises:
        UnexplainedValueError: values.yaml says too little of a value.
    """
    given = tuple(read_values(VALUES) if values is None else values)
    known = types or read_types(newest_release())
    referred: set[str] = set()
    properties = {each.path[-1]: _of_value(each, partial(_resolved, types=known, referred=referred)) for each in given}
    definitions = {name: _of_model(name) for name in sorted(referred & _MODELS.keys())}
    kubernetes = known.needed_by(known.full_name(name) for name in sorted(referred - _MODELS.keys()))
    shared = {"description": "Given by Helm to charts inside a chart; not used", "type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the dra-extender chart",
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": {"global": shared, **properties},
        "definitions": definitions | kubernetes,
    }


def table(values: Iterable[CommentedValue] | None = None) -> str:
    """The values in Markdown, in the order of values.yaml."""
    given = read_values(VALUES) if values is None else values
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in given:
        rows += [
            f"| `{each.name}` | `{json.dumps(each.default)}` | {each.meaning.replace('|', chr(92) + '|')} |"
            for each in value.leaves()
        ]
    return "\n".join(rows) + "\n"


def schema_text() -> str:
    """The content of values.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _of_value(value: CommentedValue, resolved: Any) -> Schema:
    said = {"description": value.meaning}
    if value.children:
        properties = {each.path[-1]: _of_value(each, resolved) for each in value.children}
        return {
            **said,
            "type": "object",
            "additionalProperties": False,
            "required": list(properties),
            "properties": properties,
        }
    permitted = resolved(dict(value.permitted))
    if "$ref" in permitted:
        # draft-07 ignores what stands beside a $ref.
        return {**said, "allOf": [permitted]}
    if isinstance(value.default, list) and "items" not in permitted:
        raise UnexplainedValueError(f"values.yaml: {value.name} is a list; its @schema has no items")
    if isinstance(value.default, dict) and not {"properties", "additionalProperties"} & permitted.keys():
        raise UnexplainedValueError(f"values.yaml: {value.name} is a mapping; its @schema does not say of what")
    return {**said, "type": _TYPES[type(value.default)], **permitted}


def _resolved(permitted: Any, types: KubernetesTypes, referred: set[str]) -> Any:
    """With the place of the definition where a name stands; the names are added to `referred`."""
    if isinstance(permitted, list):
        return [_resolved(each, types, referred) for each in permitted]
    if not isinstance(permitted, dict):
        return permitted
    if isinstance(name := permitted.get("$ref"), str):
        referred.add(name)
        return {"$ref": f"#/definitions/{name if name in _MODELS else types.full_name(name)}"}
    return {key: _resolved(each, types, referred) for key, each in permitted.items()}


def _of_model(name: str) -> Schema:
    """The schema of a model in draft-07, with the models below it in their places."""
    made = _MODELS[name].model_json_schema(by_alias=True)
    found: Schema = _plain(made, made.get("$defs", {}))
    if name == "Policy":
        found["properties"]["rules"]["items"] |= _OF_RULES
    return found


def _plain(given: Any, below: Mapping[str, Any]) -> Any:
    """Without titles, `null` and references: what is not there is left out of the values."""
    if isinstance(given, list):
        return [_plain(each, below) for each in given]
    if not isinstance(given, dict):
        return given
    if isinstance(target := given.get("$ref"), str):
        described = {key: each for key, each in given.items() if key == "description"}
        plain: Schema = {**_plain(below[target.rpartition("/")[2]], below), **described}
        return plain
    kept = {name: each for name, each in given.items() if name not in ("$defs", "anyOf", "properties", *_DROPPED)}
    found = {name: _plain(each, below) for name, each in kept.items()}
    if "properties" in given:
        found["properties"] = {name: _plain(each, below) for name, each in given["properties"].items()}
    alternatives = [each for each in given.get("anyOf", ()) if each != {"type": "null"}]
    if len(alternatives) == 1:
        found = {**_plain(alternatives[0], below), **found}
    elif alternatives:
        found["anyOf"] = _plain(alternatives, below)
    return found
