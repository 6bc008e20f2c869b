"""The table of docs/comparison.md about real nodes: the document has it, and a row that no test shows is found."""

from pathlib import Path

import pytest

from tests.node.test_node_comparison import PLAYS
from tests.support.node.comparison import DOCUMENT, OURS, RIVAL, ROWS, main, shown_by, table


def test_the_document_has_the_table() -> None:
    """If it fails: `python -m tests.support.node.comparison`."""
    assert DOCUMENT.read_text().endswith(f"\n{table()}")


def test_each_row_is_played() -> None:
    assert PLAYS.keys() == ROWS.keys()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_in_which_the_two_differ_says_why(row: object) -> None:
    assert isinstance(row, tuple)
    ours, in_tree, why = row[1:]
    assert bool(in_tree) == bool(why)
    assert not in_tree or (in_tree != ours and len(in_tree) == len(ours))


def test_reports_in_which_all_rows_passed_are_accepted(tmp_path: Path) -> None:
    assert main([str(_report(tmp_path, shown_by()))]) == 0


def test_a_row_that_one_of_the_two_has_not_shown_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = shown_by()[3]
    assert main([str(_report(tmp_path, [each for each in shown_by() if each != missing]))]) == 1
    assert capsys.readouterr().err == f"docs/comparison.md has a row that no passed test shows: {missing}\n"


def test_both_programs_play_every_row() -> None:
    assert len(shown_by()) == 2 * len(ROWS)
    assert all(each.endswith("]") and (f"[{OURS}-" in each or f"[{RIVAL}-" in each) for each in shown_by())


def _report(folder: Path, names: "list[str] | tuple[str, ...]") -> Path:
    cases = "".join(
        f'<testcase classname="tests.node.{each.partition("::")[0]}" name="{each.partition("::")[2]}"/>'
        for each in names
    )
    path = folder / "node.xml"
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path
