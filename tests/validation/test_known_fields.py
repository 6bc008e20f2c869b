"""The table of fields is that of the client library, and a misspelt field is found wherever it is."""

import pytest
from dra_extender.validation.known_fields import KINDS, unknown_fields

from tests.support.known_fields import FILE, text


def test_the_table_has_the_fields_of_the_client_library() -> None:
    assert FILE.read_text() == text()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_metadata_and_refuses_a_field_that_it_does_not_have(kind: str) -> None:
    assert list(unknown_fields(kind, {"metadata": {"name": "x", "labels": {"any": "thing"}}})) == []
    (found,) = unknown_fields(kind, {"mmetadata": {}})
    assert found == (("mmetadata",), "unknown field; did you mean 'metadata'?")


@pytest.mark.parametrize(
    "value", [{"spec": 5}, {"spec": {"containers": {"name": "x"}}}, {"spec": {"containers": [5, None]}}]
)
def test_values_of_another_shape_are_left_to_the_schema(value: object) -> None:
    assert list(unknown_fields("Pod", value)) == []


def test_what_drafts_of_the_keps_have_is_known() -> None:
    pod = {"spec": {"workloadRef": {"any": 1}, "resourceClaims": [{"name": "a", "podGroupResourceClaim": "b"}]}}
    assert list(unknown_fields("Pod", pod)) == []
