"""values.schema.json and the table of values: made from values.yaml and the program's models, and closed to the bottom."""

from collections.abc import Iterator
from typing import Any

import pytest
from dra_extender.config.settings import Settings

from tests.chart.programs import Object
from tests.support.chart.commented_values import UnexplainedValueError, read_values
from tests.support.chart.kubernetes_types import all_releases, read_types, references
from tests.support.chart.values_schema import (
    VALUES,
    schema,
    table,
)

MADE = schema()
REMEDY = "python -m tests.support.chart.values_schema"


def test_schema_is_of_the_draft_that_helm_reads_and_has_all_that_it_refers_to() -> None:
    assert MADE["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert set(references(MADE)) <= MADE["definitions"].keys()
    assert "$defs" not in str(MADE)


def test_every_object_in_it_says_which_keys_it_may_have() -> None:
    """`global` belongs to Helm, and the API server alone writes who manages which fields."""
    assert list(open_objects(MADE, "")) == [".global", ".io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"]


def open_objects(given: Object, path: str) -> Iterator[str]:
    """Paths of objects that accept any key, and of values that may be anything."""
    properties = given.get("properties", {})
    if given.get("type") == "object" and not {"additionalProperties", "properties"} & given.keys():
        yield path
    if properties and given.get("additionalProperties") is not False:
        yield path
    for name, each in (*properties.items(), *given.get("definitions", {}).items()):
        yield from [f"{path}.{name}"] if says_nothing(each) else open_objects(each, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if isinstance(each := given.get(below), dict):
            yield from open_objects(each, f"{path}[]")


def says_nothing(given: Object) -> bool:
    return not {"type", "$ref", "allOf", "anyOf", "enum", "const", "properties"} & given.keys()


def test_settings_in_it_have_the_names_and_bounds_of_the_program() -> None:
    groups = MADE["definitions"]["Settings"]["properties"]
    assert {name: set(each["properties"]) for name, each in groups.items()} == {
        name: set(type(getattr(Settings(), name)).model_fields) for name in Settings.model_fields
    }
    assert groups["server"]["properties"]["port"].items() >= {"minimum": 0, "maximum": 65535, "type": "integer"}.items()
    assert groups["log"]["properties"]["level"]["enum"] == ["debug", "info", "warning", "error"]
    assert groups["cluster"]["properties"]["context"]["type"] == "string"


def test_types_of_kubernetes_are_closed_in_every_release_that_is_supported() -> None:
    for release in all_releases():
        types = read_types(release)
        assert types.release == release
        assert types.kinds["apps/v1 Deployment"] == "io.k8s.api.apps.v1.Deployment"
        for name, each in types.definitions.items():
            assert "properties" not in each or each["additionalProperties"] is False, name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n", "a has no comment above it"),
        ("# A.\na: []\n", "a is a list; its @schema has no items"),
        ("# A.\na:\n  # B.\n  b: {}\n", "a.b is a mapping; its @schema does not say of what"),
    ],
)
def test_a_value_of_which_too_little_is_said_is_named(text: str, words: str, tmp_path: Any) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    with pytest.raises(UnexplainedValueError, match=words):
        schema(read_values(file))


def test_every_value_stands_in_the_table_once() -> None:
    rows = [line.split("`")[1] for line in table().splitlines()[2:]]
    leaves = [each.name for value in read_values(VALUES) for each in value.leaves()]
    assert rows == leaves
    assert len(set(rows)) == len(rows)
