"""The structs of the model describe the API: each field is one of Kubernetes 1.37, and whoever reads objects knows it."""

from collections.abc import Callable, Mapping

import msgspec
import pytest
from dra_extender.manifests.check import KINDS, schema_problems, wrong_fields
from dra_extender.model.api_json import Value
from dra_extender.model.device import DeviceBody, DeviceReader
from dra_extender.model.device_class import read_device_class
from dra_extender.model.device_taint_rule import read_device_taint_rule
from dra_extender.model.fields import Mark, fields_of, shape_of
from dra_extender.model.node import read_node
from dra_extender.model.objects import WRITTEN
from dra_extender.model.pod import read_pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.resource_slice import SliceReader
from dra_extender.model.templated_claim import read_template
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.known_fields import table
from tests.support.model.described import described, objects, values

READERS: Mapping[str, Callable[[bytes], object]] = {
    "Node": read_node,
    "ResourceSlice": SliceReader().read,
    "DeviceClass": read_device_class,
    "DeviceTaintRule": read_device_taint_rule,
    "ResourceClaimTemplate": read_template,
    "ResourceClaim": read_claim,
    "PodGroup": read_pod_group,
    "Pod": read_pod,
}


def api_type(types: Mapping[str, Mapping[str, str]], kind: str, path: tuple[str, ...]) -> Mapping[str, str] | None:
    """The fields of the object at this path in the client's library; None if it is not described there."""
    name = KINDS[kind]
    for step in path:
        name = types.get(name, {}).get(step, "").replace("[]", "").replace("{}", "")
    return types.get(name)


@pytest.mark.parametrize("kind", WRITTEN)
def test_described_fields_are_those_of_kubernetes(kind: str) -> None:
    """A field that the release does not have is marked; where manifests are checked, no field of the release is missing."""
    types, wrong, seen = table(), [], dict[tuple[str, ...], set[str]]()
    partly: set[tuple[str, ...]] = set()
    for path, owner, field, checked in described(WRITTEN[kind]):
        known = api_type(types, kind, path[:-1])
        if known is None:
            continue
        if (field.name in known) is bool(field.marks & {Mark.DRAFT, Mark.FORMER}):
            wrong.append(path)
        seen.setdefault(path[:-1], set()).add(field.name)
        partly |= {path[:-1]} if owner.in_part or not checked else set()
    wrong += [
        (*path, name)
        for path in seen.keys() - partly - {()}
        for name in (api_type(types, kind, path) or {}).keys() - seen[path]
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@examples(8)
def test_what_the_table_accepts_is_read_and_known(kind: str, data: st.DataObject) -> None:
    made = data.draw(objects(WRITTEN[kind]))
    READERS[kind](msgspec.json.encode(made))
    assert list(wrong_fields(kind, made)) == []


@pytest.mark.parametrize("kind", WRITTEN)
@given(data=st.data())
@examples(8)
def test_each_field_that_the_table_accepts_passes_the_check_of_manifests(kind: str, data: st.DataObject) -> None:
    """Problems are about rules between fields alone: those are not in the table."""
    made = data.draw(objects(WRITTEN[kind]))
    texts = [problem.sentence for problem in schema_problems(kind, made)]
    assert [text for text in texts if "unknown field" in text or "whole number" in text] == []


@pytest.mark.parametrize("field", [each.name for each in fields_of(DeviceBody)])
@given(data=st.data())
@examples(5)
def test_each_field_of_a_device_reaches_the_allocator(field: str, data: st.DataObject) -> None:
    """A field that is described and not converted would be ignored in silence."""
    (described_field,) = (each for each in fields_of(DeviceBody) if each.name == field)
    drawn = data.draw(values(described_field.shape).filter(lambda value: value not in ([], {}, False)))
    bare = {"name": "device"}
    reader = DeviceReader()
    before, after = (reader.read(msgspec.convert(each, DeviceBody)) for each in (bare, {**bare, field: drawn}))
    assert before != after


def test_text_without_a_format_is_no_description() -> None:
    with pytest.raises(TypeError, match=r"^the annotation does not say what the text is"):
        shape_of(str)

    class Undecided(Value, frozen=True):
        health: str = ""

    with pytest.raises(TypeError, match=r"^Undecided\.health: the annotation does not say"):
        fields_of(Undecided)
