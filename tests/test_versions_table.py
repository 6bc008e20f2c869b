"""The table of versions: the document has it, and a named test that has not passed is found."""

from pathlib import Path

import pytest

from tests.support.junit import not_passed
from tests.support.versions_table import DOCUMENT, named_tests, table

_ALL = "test_e2e_binding"
_ONE = "test_e2e_upstream_rules::test_taint_rule_with_an_empty_selector_keeps_every_pod_away"


def test_the_document_has_the_table() -> None:
    """If it fails: `python -m tests.support.versions_table`."""
    assert DOCUMENT.read_text().endswith(f"\n{table()}")


def test_named_tests_exist() -> None:
    folder = DOCUMENT.parents[1] / "tests" / "e2e"
    for test in named_tests():
        file, _, name = test.partition("::")
        text = (folder / f"{file}.py").read_text()
        assert f"def {name.partition('[')[0]}(" in text or not name, test


@pytest.mark.parametrize(
    ("end", "lost"),
    [("", []), ("<failure/>", [_ONE]), ("<skipped/>", [_ONE]), ("<error/>", [_ONE])],
)
def test_a_test_that_has_not_passed_is_named(tmp_path: Path, end: str, lost: list[str]) -> None:
    assert [
        each
        for each in not_passed(named_tests(), [_report(tmp_path, {_ONE: end, f"{_ALL}::test_success": ""})])
        if each == _ONE
    ] == lost


def test_of_a_whole_file_each_test_counts(tmp_path: Path) -> None:
    found = not_passed(
        named_tests(), [_report(tmp_path, {f"{_ALL}::test_success": "", f"{_ALL}::test_failure": "<failure/>"})]
    )
    assert _ALL in found


def test_what_no_report_has_did_not_pass(tmp_path: Path) -> None:
    assert not_passed(named_tests(), [_report(tmp_path, {"test_other::test_it": ""})]) == list(named_tests())


def _report(folder: Path, ends: dict[str, str]) -> Path:
    cases = "".join(
        f'<testcase classname="tests.e2e.{name.partition("::")[0]}" name="{name.partition("::")[2]}">{end}</testcase>'
        for name, end in ends.items()
    )
    path = folder / "e2e.xml"
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path
