"""The table of fields is that of the client library, and a misspelt field is found wherever it is."""

import pytest
from dra_extender.manifests.check import KINDS, wrong_fields


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_metadata_and_refuses_a_field_that_it_does_not_have(kind: str) -> None:
    assert list(wrong_fields(kind, {"metadata": {"name": "x", "labels": {"any": "thing"}}})) == []
    (found,) = wrong_fields(kind, {"mmetadata": {}})
    assert found == (("mmetadata",), "unknown field; did you mean 'metadata'?")


@pytest.mark.parametrize(
    ("value", "path", "sentence"),
    [
        ({"spec": 5}, ("spec",), "expected a mapping of fields, got 5"),
        ({"spec": {"containers": {"name": "x"}}}, ("spec", "containers"), "expected a list, got a mapping"),
        ({"spec": {"containers": [5]}}, ("spec", "containers", 0), "expected a mapping of fields, got 5"),
        ({"spec": {"nodeSelector": {"a": []}}}, ("spec", "nodeSelector", "a"), "expected a text, got a list of 0"),
        ({"spec": {"hostNetwork": "no"}}, ("spec", "hostNetwork"), "expected true or false, got 'no'"),
        ({"spec": {"priority": True}}, ("spec", "priority"), "expected a whole number, got true"),
        (
            {"status": {"conditions": [{"type": {}}]}},
            ("status", "conditions", 0, "type"),
            "expected a text, got a mapping",
        ),
    ],
)
def test_value_of_another_shape_is_found(value: object, path: tuple[str | int, ...], sentence: str) -> None:
    assert list(wrong_fields("Pod", value)) == [(path, sentence)]


def test_null_is_a_field_that_is_left_out() -> None:
    assert list(wrong_fields("Pod", {"spec": {"containers": None, "priority": None}, "status": None})) == []


def test_what_drafts_of_the_keps_have_is_known() -> None:
    pod = {"spec": {"workloadRef": {"any": 1}, "resourceClaims": [{"name": "a", "podGroupResourceClaim": "b"}]}}
    assert list(wrong_fields("Pod", pod)) == []
