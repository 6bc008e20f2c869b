from typing import Any

import pytest
import yaml

from tests.chart.programs import CHART, Helm, Object

pytestmark = pytest.mark.chart

EXTENDER_ONLY: Object = {
    "mode": "extenderOnly",
    "networkPolicy": {"schedulerFrom": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]},
}


@pytest.mark.parametrize("values", [{}, EXTENDER_ONLY], ids=["secondScheduler", "extenderOnly"])
def test_lint_has_nothing_to_say(helm: Helm, values: Object) -> None:
    done = helm.run("lint", "--strict", values=values)
    assert done.code == 0, done.output + done.words
    assert "[WARNING]" not in done.output
    assert "[ERROR]" not in done.output


def test_every_value_is_explained_by_the_comment_above_it() -> None:
    """Lists and maps that are empty or hold examples count as one value."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    unexplained = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if ":" in line
        and not line.lstrip().startswith(("#", "-"))
        and not above.lstrip().startswith("#")
        and line.partition(":")[0].strip() not in KUBERNETES_OWN
    ]
    assert unexplained == []


# Keys inside values that have the shape of a Kubernetes object.
KUBERNETES_OWN = {"requests", "limits", "cpu", "memory", "matchLabels", "kubernetes.io/metadata.name"}


def test_every_value_is_known_to_the_schema_and_each_object_there_is_closed() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    assert list(open_objects(schema, schema, "")) == []


def open_objects(schema: Object, root: Object, path: str) -> Any:
    """Paths of objects in the schema that name properties but accept others too."""
    if reference := schema.get("$ref"):
        schema = root["definitions"][reference.rpartition("/")[2]]
    if "properties" in schema and schema.get("additionalProperties") is not False:
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from open_objects(each, root, f"{path}.{name}")
