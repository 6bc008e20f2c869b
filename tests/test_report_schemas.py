"""docs/schemas describes what the commands print as JSON; `make generate` writes it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from dra_extender.cli.app import app
from typer.testing import CliRunner

from tests.support.report_schemas import FOLDER, REPORTS, file_of, schema
from tests.support.shown_runs import ROOT

SNAPSHOT = ("--snapshot", str(ROOT / "deploy" / "examples" / "snapshots" / "fragmented.tar.gz"))
ASKED = {
    "dra-extender.io/audit/v1": ("audit",),
    "dra-extender.io/defrag/v1": ("defrag", "--pod", "infer-1", "-n", "ml"),
    "dra-extender.io/devices/v1": ("devices",),
    "dra-extender.io/usage/v1": ("usage",),
    "dra-extender.io/waiting/v1": ("why",),
    "dra-extender.io/what-if/v1": ("what-if", "--drain", "node-1"),
    "dra-extender.io/why/v1": ("why", "infer-1", "-n", "ml"),
    "dra-extender.io/why-node/v1": ("why", "infer-1", "-n", "ml", "--node", "node-2"),
}


def test_every_schema_is_of_a_report() -> None:
    assert {each.name for each in FOLDER.iterdir()} == {file_of(name).name for name in REPORTS}


@pytest.mark.parametrize("name", ASKED)
def test_answer_is_as_its_schema_says(name: str) -> None:
    result = CliRunner().invoke(app, [*ASKED[name], *SNAPSHOT, "-o", "json"])
    answer = json.loads(result.stdout)
    assert answer["format"] == name
    described = schema(name)
    assert list(differences(answer, described, described, "answer")) == []


KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def differences(value: Any, described: Any, whole: Any, place: str) -> Iterator[str]:
    """Where a value is not as a schema says, as far as the schemas of reports go."""
    if "$ref" in described:
        described = whole["$defs"][described["$ref"].rpartition("/")[2]]
    if "anyOf" in described:
        if all(list(differences(value, each, whole, place)) for each in described["anyOf"]):
            yield f"{place}: none of the alternatives"
        return
    values = [described["const"]] if "const" in described else described.get("enum")
    if values is not None:
        if value not in values:
            yield f"{place}: expected {' or '.join(map(str, values))}"
        return
    kind = described.get("type", "")
    if kind and not isinstance(value, KINDS[kind]):
        yield f"{place}: expected {kind}"
        return
    if isinstance(value, dict):
        yield from _fields(value, described, whole, place)
    elif isinstance(value, list):
        first = described.get("prefixItems", ())
        for number, each in enumerate(value):
            item = first[number] if number < len(first) else described.get("items")
            if isinstance(item, dict):
                yield from differences(each, item, whole, f"{place}[{number}]")


def _fields(value: dict[str, Any], described: Any, whole: Any, place: str) -> Iterator[str]:
    properties, others = described.get("properties", {}), described.get("additionalProperties")
    yield from (f"{place}.{name}: missing" for name in described.get("required", ()) if name not in value)
    if not isinstance(others, dict):
        yield from (f"{place}.{name}: not in the schema" for name in value if name not in properties)
    for name, each in value.items():
        found = properties.get(name, others)
        if isinstance(found, dict):
            yield from differences(each, found, whole, f"{place}.{name}")
