"""Whatever is in a YAML file, it is read in a moment or refused with its place; what was in force stays."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dra_extender.config.policy_file import InvalidPolicyError, read_policy
from dra_extender.config.settings import InvalidSettingsError, load_settings
from dra_extender.ledger.ledger import Ledger
from dra_extender.manifests.documents import MOST_BYTES, YamlError, read_documents, read_yaml
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.telemetry.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
BAD = {
    "tag of a set": (b"rules: !!set {a}", "expected a plain list or mapping, got the tag .*set .line 1, column 8"),
    "endless number": (b"rules: .inf", "expected a value that JSON knows, got '.inf' .line 1, column 8"),
    "flow nesting": (b"[" * 10_000, "at most 64 lists and mappings .*line 1, column 65"),
    "block nesting": (b"- " * 10_000 + b"x", "at most 64 lists and mappings"),
    "laughs": (LAUGHS.encode(), "at most [0-9]+ values, aliases written out.*line"),
    "endless": (b"&a [*a]", "no value that contains itself"),
    "digits": (b"rules: 9" + b"9" * 5_000, "at most 64 characters, got 5001 .line 1, column 8"),
    "base 60": (b"rules: 1" + b":1" * 100_000, "at most 64 characters, got 200001"),
    "not UTF-8": (b"rules: \xff", "UTF-8"),
    "key twice": (b"rules: []\nrules: []", "each key once, got 'rules' again .line 2, column 1"),
    "key twice inside": (b"rules: [{name: a, name: b}]", "each key once, got 'name' again"),
    "forbidden character": (b"rules: \x00", "special characters are not allowed"),
    "object": (b"rules: !!python/object:os.system x", "could not determine a constructor.*line 1"),
    "number that is none": (b"rules: !!int x", "line 1, column 8"),
    "empty number": (b"rules: !!int ''", "expected a value of the tag .*int, got '' .line 1, column 8"),
    "truth that is none": (b"rules: !!bool x", "line 1, column 8"),
    "key that is a list": (b"? [a]\n: 1", "expected a text as key .line 1, column 3"),
    "two documents": (b"a: 1\n---\nb: 2", "one document"),
    "too long": (b"#" * (MOST_BYTES + 1), "at most 1048576 bytes"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_place(text: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(text)
    began = time.process_time()
    with pytest.raises(InvalidPolicyError, match=f"(?s)policy file {file}: .*{message}"):
        read_policy(file)
    with pytest.raises(InvalidSettingsError, match=f"(?s)settings file {file}: .*{message}"):
        load_settings(file)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
async def test_the_policy_in_force_stays(text: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{name: kept, bindsToNode: true}]")
    metrics = Metrics()
    watch = PolicyReloader(file, Ledger(), metrics, seconds=3600, compatibility_groups=True)
    await watch.load()
    file.write_bytes(text)
    await watch.check()
    assert watch.notes()["policy"].startswith("1 rules in force; ")
    assert b'dra_extender_policy_reads_total{outcome="refused"} 1.0' in await metrics.render()


@given(st.text(st.sampled_from("[]{}&*a1:-? \n!|>'\"#,%@`\t\\x0.e+_<~="), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(YamlError):
        read_documents(text)


def test_aliases_and_merges_within_bounds_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n")
    assert read_yaml(file) == [{"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": [{"x": 1, "y": 2}] * 2}]


def test_dates_and_keys_are_read_as_texts(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("2026-13-45: 2026-01-01\non: yes\n1: =\n")
    assert read_yaml(file) == [{"2026-13-45": "2026-01-01", "on": True, "1": "="}]


def test_each_field_has_its_position() -> None:
    (document,) = read_documents("# first\na:\n  - b: 1\n    c: {d: 2}\n")
    positions = {
        path: tuple(document.position_of(path)) for path in (("a",), ("a", 0, "c", "d"), ("a", 0, "e"), ("x",))
    }
    assert positions == {("a",): (2, 1), ("a", 0, "c", "d"): (4, 9), ("a", 0, "e"): (3, 5), ("x",): (2, 1)}
    assert document.narration == ("first",)
    assert list(document.items()) == [document]


def test_each_item_of_a_list_is_a_document_with_its_positions() -> None:
    inner = "{kind: List, items: [{b: 2}, 3]}"
    (document,) = read_documents(f"# first\nkind: List\nitems:\n  - a: 1\n    c: 1\n  - {inner}\n")
    items = list(document.items())
    assert [item.value for item in items] == [{"a": 1, "c": 1}, {"b": 2}, 3]
    assert [tuple(item.position_of()) for item in items] == [(4, 5), (6, 26), (6, 34)]
    assert [tuple(items[0].position_of(path)) for path in (("c",), ("c", "d"), ("x",))] == [(5, 5), (5, 5), (4, 5)]
    assert tuple(items[1].position_of(("b",))) == (6, 27)


@pytest.mark.parametrize("text", ['a: "\\ud800"\n', '"\\udfff": a\n', '[1, "x\\ud83d"]\n'])
def test_half_of_a_utf_16_pair_is_refused_where_it_is(text: str) -> None:
    with pytest.raises(YamlError, match=r"half of a UTF-16 pair \(line 1, column \d+\)"):
        read_documents(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('a: "\\U00110000"\n', id="no-character"),
        pytest.param('a: "\\UFFFFFFFF"\n', id="no-machine-integer"),
        pytest.param(f"%YAML 1.{'9' * 5000}\n--- a\n", id="long-version"),
    ],
)
def test_number_that_python_refuses_is_refused_where_it_is(text: str) -> None:
    with pytest.raises(YamlError, match=r"expected YAML: .* \(line 1, column "):
        read_documents(text)


def test_reading_many_documents_copies_no_lines_of_the_documents_before() -> None:
    """Work for each document that grows with the documents before it made 60,000 of them take 11 s."""
    copied: list[int] = []

    class Lines(list[str]):
        def __getitem__(self, place: Any) -> Any:
            if isinstance(place, slice):
                copied.append(len(range(*place.indices(len(self)))))
            return super().__getitem__(place)

    class Text(str):
        __slots__ = ()

        def splitlines(self, keepends: bool = False) -> list[str]:
            return Lines(super().splitlines(keepends))

    documents = read_documents(Text("# what it is\na: 1\n---\n" * 1000))

    assert {document.narration for document in documents} == {("what it is",)}
    assert sum(copied) < 1000
