"""values.schema.json and the table of values: made from values.yaml and the program's models, and closed to the bottom."""

from collections.abc import Iterator

from tests.chart.programs import Object
from tests.support.chart.kubernetes_types import all_releases, read_types
from tests.support.chart.values_schema import (
    schema,
)

MADE = schema()


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


def test_types_of_kubernetes_are_closed_in_every_release_that_is_supported() -> None:
    for release in all_releases():
        types = read_types(release)
        assert types.release == release
        assert types.kinds["apps/v1 Deployment"] == "io.k8s.api.apps.v1.Deployment"
        for name, each in types.definitions.items():
            assert "properties" not in each or each["additionalProperties"] is False, name
