"""What documents quote of the bench is what the bench can make, and a row that is lost stays in them."""

import re
from collections.abc import Iterator
from typing import Final

from tests.bench import document
from tests.bench.__main__ import AREAS, ON_REQUEST
from tests.bench.cases import CASES, is_declared
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
