"""Every field that the model describes is kept in a snapshot, and redacted as its format says."""

from random import Random
from typing import Any

import msgspec
import pytest
from dra_extender.inspection.objects import ClusterObjects, kept
from dra_extender.inspection.redaction.redact import redacted
from dra_extender.model.fields import ListOf, MapOf, Mark, Record, Shape, fields_of
from dra_extender.model.objects import LABELLED, WATCHED
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.inspection.example_snapshot import example
from tests.support.model.described import MADE, objects

ORIGIN = example().origin


def fields_in(shape: Shape, value: Any) -> Any:
    """The names of the described fields that the value has, of items and entries in their order; amounts and texts as None."""
    match shape:
        case Record(struct) if isinstance(value, dict):
            return {
                field.name: fields_in(field.shape, value[field.name])
                for field in fields_of(struct)
                if field.name in value and Mark.LEFT_OUT not in field.marks and field.name != "annotations"
            }
        case ListOf(item) if isinstance(value, list):
            return [fields_in(item, each) for each in value]
        case MapOf(_, below) if isinstance(value, dict):
            return [fields_in(below, each) for each in value.values()]
    return None


@pytest.mark.parametrize("kind", WATCHED)
@given(data=st.data())
@examples(8)
def test_snapshot_keeps_the_described_fields_and_redaction_hides_what_is_in_them(
    kind: str, data: st.DataObject
) -> None:
    made = data.draw(objects(WATCHED[kind], former=True))
    shape = Record(WATCHED[kind])
    if kind not in LABELLED:
        made.get("metadata", {}).pop("labels", None)
    assert fields_in(shape, kept(kind, made)) == fields_in(shape, made)

    objects_of_kind = {kind: [msgspec.json.encode(made)]}
    done = redacted(ClusterObjects(ORIGIN, objects_of_kind), Random(1))

    (found,) = done.objects.of_kind(kind)
    assert fields_in(shape, msgspec.json.decode(found)) == fields_in(shape, made)
    # A label that is compared with a number keeps its value.
    assert done.kept or MADE not in found.decode()


def test_choices_of_the_api_stay_as_they_are() -> None:
    """What a scheduler decides by is not renamed: the words that a field may have are those of the API."""
    spec = {
        "driver": "d",
        "pool": {"name": "p"},
        "skipNodeOperations": ["NodePrepareResources", "*"],
        "devices": [{"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}],
    }
    made = {"metadata": {"name": "s"}, "spec": spec}
    done = redacted(ClusterObjects(ORIGIN, {"resourceslices": [msgspec.json.encode(made)]}), Random(1))
    found = msgspec.json.decode(done.objects.of_kind("resourceslices")[0])["spec"]
    assert found["skipNodeOperations"] == ["NodePrepareResources", "*"]
    assert found["devices"][0]["taints"][0]["effect"] == "NoExecute"
