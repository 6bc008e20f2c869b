"""The table of fields is that of the client library, and a misspelt field is found wherever it is."""

import io
import sys
from pathlib import Path

import pytest
from dra_extender.manifests.check import KINDS, wrong_fields
from dra_extender.manifests.files import STDIN, files_in, opened, read_text, title
from dra_extender.manifests.problems import Problem


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_metadata_and_refuses_a_field_that_it_does_not_have(kind: str) -> None:
    assert list(wrong_fields(kind, {"metadata": {"name": "x", "labels": {"any": "thing"}}})) == []
    (found,) = wrong_fields(kind, {"mmetadata": {}})
    assert found == Problem(("mmetadata",), "unknown field; did you mean 'metadata'?")


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
    assert list(wrong_fields("Pod", value)) == [Problem(path, sentence)]


def test_null_is_a_field_that_is_left_out() -> None:
    assert list(wrong_fields("Pod", {"spec": {"containers": None, "priority": None}, "status": None})) == []


def test_what_drafts_of_the_keps_have_is_known() -> None:
    pod = {"spec": {"workloadRef": {"any": 1}, "resourceClaims": [{"name": "a", "podGroupResourceClaim": "b"}]}}
    assert list(wrong_fields("Pod", pod)) == []


def stdin_of(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data))


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", stdin_of("é".encode()))
    assert (title(STDIN), files_in(STDIN), read_text(STDIN)) == ("standard input", [STDIN], "é")
    with pytest.raises(OSError, match="it is named twice"):
        read_text(STDIN)
    monkeypatch.setattr(sys, "stdin", stdin_of(b"another"))
    assert read_text(STDIN) == "another"


def test_standard_input_that_is_closed_is_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="it is closed"), opened(STDIN):
        pass


def test_folder_has_its_manifests_by_name(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json"):
        (tmp_path / name).write_text(name)
    assert [title(file) for file in files_in(tmp_path)] == [str(tmp_path / "a.yaml"), str(tmp_path / "b.yml")]
    assert files_in(tmp_path / "none.yaml") == [tmp_path / "none.yaml"]
