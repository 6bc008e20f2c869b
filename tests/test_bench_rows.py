"""What documents quote of the bench is what the bench can make."""

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


def row(case: str, peer: str, rounds: int, **details: float) -> Row:
    return Row(
        area="a",
        case=case,
        unit="ms",
        ours=1.0,
        peer=2.0,
        peer_name=peer,
        ratio=0.5,
        goal="<= 1",
        met=True,
        lowest=0.4,
        highest=0.6,
        rounds=rounds,
        details=details,
    )


def test_figures_stand_in_a_table_for_each_peer_and_equal_details_once() -> None:
    rows = [row("x", "p", 1, pods=3, own=1), row("y", "p", 2, pods=3, own=2), row("x", "q", 1, pods=3)]
    assert document.table(rows).strip() == (
        """\
### a

Peer: p. Unit: ms.

| case | ours | peer's | ratio | goal | own |
|---|---:|---:|---|---|---:|
| x | 1 | 2 | 0.5 | <= 1 met | 1 |
| y | 1 | 2 | 0.5 (0.4 to 0.6, 2 rounds) | <= 1 met | 2 |

Peer: q. Unit: ms.

| case | ours | peer's | ratio | goal |
|---|---:|---:|---|---|
| x | 1 | 2 | 0.5 | <= 1 met |

In all rows: pods 3."""
    )


def test_many_peers_share_a_table() -> None:
    rows = [row(str(number), f"p{number}", 1) for number in range(5)]
    assert "| case | peer | unit | ours | peer's | ratio | goal |" in document.table(rows)


def test_the_readme_says_what_in_tree_leaves_unused() -> None:
    rows = [row("default, at 100 % asked", peer, 2) for peer in ("random", "in-tree's rule")]
    text = document.how_full(rows, 0.0, "v1.37.1")
    assert "on 1970-01-01, Kubernetes v1.37.1" in text
    assert text.splitlines()[-3:] == ["|---|---:|---:|---:|", "| default, in-tree's rule | 2 | 98.0 % | 99.0 % |", ""]


def test_the_chart_has_a_bar_for_each_rule() -> None:
    rows = [row("default, at 100 % asked", peer, 1) for peer in ("random", "best fit", "ours in one process")]
    texts = re.findall(">([^<]+)</text>", document.chart_of(rows))
    assert texts[1:] == ["default", "ours", "99.0 %", "random", "98.0 %", "best fit", "98.0 %"]
