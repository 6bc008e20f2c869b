"""What documents quote of the bench is what the bench can make."""

import re
from collections.abc import Iterator
from typing import Final

from tests.bench import document
from tests.bench.__main__ import AREAS, ON_REQUEST
from tests.bench.cases import CASES, is_declared
from tests.bench.rows import compare
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


def test_readme_has_the_rows_with_date_version_and_rounds() -> None:
    """The line of figures is that of the run; a row tells its peer."""
    case = "partitions, 200 nodes, 1000 pods"
    row = compare("claims", case, "pods/s", [(250.0, 100.0), (240.0, 100.0), (260.0, 100.0)], "in-tree plugin")
    text = document.how_fast([row], 0.0, "v1.37.1")
    assert "medians of 3 rounds of `make bench ONLY=claims` on 1970-01-01 with Kubernetes v1.37.1" in text
    assert f"| {case} | in-tree plugin | 100 | 250 | 2.5 |" in text


def test_one_round_is_one_round() -> None:
    row = compare("claims", "partitions, 50 nodes, 200 pods", "pods/s", [(250.0, 100.0)], "in-tree plugin")
    text = document.how_fast([row], 0.0, "v1.37.1") + document.table([row])
    assert "medians of 1 round of `make bench" in text
    assert "2.5 (2.5 to 2.5, 1 round)" in text


def test_every_area_declares_its_rows() -> None:
    assert set(CASES) == {*AREAS, *ON_REQUEST}


def test_documents_name_areas_that_exist() -> None:
    files = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]
    named = {area for file in files for area in _ONLY.findall(file.read_text(encoding="utf-8"))}
    assert named
    assert named <= {*AREAS, *ON_REQUEST}


def test_a_row_that_is_not_declared_is_found() -> None:
    assert not is_declared("binding", "condition True to Binding, against nobody")
    assert not is_declared("no-area", "")
