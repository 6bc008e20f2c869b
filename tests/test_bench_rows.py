"""What documents quote of the bench is what the bench can make, and a row that is lost stays in them."""

import re
from collections.abc import Iterator
from typing import Final

from tests.bench import document
from tests.bench.__main__ import AREAS, ON_REQUEST
from tests.bench.cases import CASES, is_declared
from tests.bench.rows import WITHIN, Goal, Row, compare
from tests.controlplane.extender import REPOSITORY

_ONLY: Final = re.compile(r"make bench ONLY=([\w-]+)")


def quoted() -> Iterator[tuple[str, str]]:
    """(area, case) of each figure in docs/performance.md."""
    area = ""
    for line in document.DOCUMENT.read_text(encoding="utf-8").partition("<!-- figures: begin")[2].splitlines():
        if line.startswith("### "):
            area = line.removeprefix("### ")
        elif line.startswith("| ") and not line.startswith("| case "):
            yield area, line.split(" | ")[0].removeprefix("| ")


def test_every_figure_is_of_a_row_that_the_bench_makes() -> None:
    figures = list(quoted())
    assert figures
    assert [each for each in figures if not is_declared(*each)] == []


def test_every_area_declares_its_rows() -> None:
    assert set(CASES) == {*AREAS, *ON_REQUEST}


def test_documents_name_areas_that_exist() -> None:
    files = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]
    named = {area for file in files for area in _ONLY.findall(file.read_text(encoding="utf-8"))}
    assert named
    assert named <= {*AREAS, *ON_REQUEST}


def _figure(case: str, ours: float, peer_name: str = "goal", goal: Goal = WITHIN) -> Row:
    return compare("allocator", case, "ms", [(ours, 1.0)] * 3, peer_name, goal=goal)


def test_smaller_clusters_are_left_out_unless_they_miss_their_goal() -> None:
    met, missed, largest = "500 nodes, empty, cold", "500 nodes, full, cold", "1000 nodes, {}, cold"
    rows = [_figure(met, 0.5), _figure(missed, 2.0)]
    rows += [_figure(largest.format(shape), 0.5) for shape in ("empty", "full")]
    table = document.table(rows)
    assert met not in table
    assert all(case in table for case in (missed, largest.format("empty"), largest.format("full")))


def test_each_peer_of_a_case_has_its_ratio_and_its_goal_in_one_row() -> None:
    case = "1000 nodes, empty, cold"
    table = document.table([_figure(case, 2.0, "ten"), _figure(case, 2.0, "eleven", Goal("<=", 3.0))])
    assert "Unit: ms. Rounds: 3." in table
    assert f"| {case} | 2 | 1: 2 (2 to 2), <= 1 MISSED | 1: 2 (2 to 2), <= 3 met |" in table


def test_a_row_says_its_rounds_only_where_they_are_not_the_usual() -> None:
    rows = [_figure(f"{nodes} nodes, empty, cold", 2.0) for nodes in (1, 2)]
    once = compare("allocator", "3 nodes, full, cold", "ms", [(2.0, 1.0)], "goal")
    table = document.table([*rows, once])
    assert "Rounds: 3." in table
    assert "| 2 | 1 | 2 (2 to 2) | <= 1 MISSED |" in table
    assert "| 2 | 1 | 2 (1 round) | none |" in table
