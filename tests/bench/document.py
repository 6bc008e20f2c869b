from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.bench.report import verdict
from tests.bench.rows import BenchError, Row
from tests.controlplane.build import pinned
from tests.controlplane.extender import REPOSITORY

DOCUMENT: Final = REPOSITORY / "docs" / "reference" / "performance.md"
_BEGIN: Final = "<!-- figures: begin (make bench, then python -m tests.bench --document) -->\n"
_END: Final = "<!-- figures: end -->\n"
_HEADING: Final = "### "
_GO_MOD: Final = REPOSITORY / "tests" / "controlplane" / "go.mod"
README: Final = REPOSITORY / "README.md"
_README_AREA: Final = "claims"
_README_BEGIN: Final = "<!-- how fast: begin (make bench ONLY=claims, then python -m tests.bench --document) -->\n"
_README_END: Final = "<!-- how fast: end -->\n"


def update(rows: Sequence[Row], measured: float) -> None:
    """Put these rows, `measured` at this time since the epoch, into docs/reference/performance.md and README.md.

    Areas that were not measured keep their figures.

    Raises:
        BenchError: a document has no place for them.
    """
    _replace(DOCUMENT, _BEGIN, _END, lambda kept: merged(kept, table(rows)))
    shown = [row for row in rows if row.area == _README_AREA]
    if shown:
        version = pinned(_GO_MOD.read_text(encoding="utf-8"), "k8s.io/kubernetes")
        _replace(README, _README_BEGIN, _README_END, lambda _: how_fast(shown, measured, version))


def _replace(file: Path, begin: str, end: str, change: Callable[[str], str]) -> None:
    head, opened, rest = file.read_text(encoding="utf-8").partition(begin)
    kept, closed, tail = rest.partition(end)
    if not opened or not closed:
        raise BenchError(f"{file.name} has no place for figures: the lines {begin.strip()} and {end.strip()}.")
    file.write_text(f"{head}{opened}{change(kept)}{closed}{tail}", encoding="utf-8")


def how_fast(rows: Sequence[Row], measured: float, version: str) -> str:
    """Return README's table of pods per second, with date, versions and rounds."""
    day = datetime.fromtimestamp(measured, tz=UTC).date().isoformat()
    rounds = _rounds(min(row.rounds for row in rows))
    run = f"medians of {rounds} of `make bench ONLY={_README_AREA}` on {day} with Kubernetes {version}"
    lines = [
        f"Pods bound in a second, {run}, all on one machine in turns:",
        "",
        "| claims with | peer | peer's | dra-extender | ratio |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [f"| {row.case} | {row.peer_name} | {row.peer:.0f} | {row.ours:.0f} | {row.ratio:.2g} |" for row in rows]
    return "\n".join(["", *lines, "", ""])


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def merged(kept: str, renewed: str) -> str:
    """Two tables in one, areas by name; of an area that both have, the renewed figures."""
    areas = _by_area(kept) | _by_area(renewed)
    return "\n" + "\n\n".join(areas[area] for area in sorted(areas)) + "\n\n"


def _by_area(text: str) -> dict[str, str]:
    """The sections of a table by the area they begin with."""
    sections = text.split(_HEADING)[1:]
    return {each.partition("\n")[0]: f"{_HEADING}{each.strip()}" for each in sections}


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, areas in the order of the run."""
    lines = []
    for area in dict.fromkeys(row.area for row in rows):
        lines += [f"\n{_HEADING}{area}\n", "| case | peer | unit | ours | peer's | ratio (over the rounds) | goal |"]
        lines += ["|---|---|---|---:|---:|---:|---|"]
        lines += [_line(row) for row in rows if row.area == area]
        told = [_details(row) for row in rows if row.area == area and row.details]
        lines += ["", *told] if told else []
    return "\n".join(lines) + "\n\n"


def _line(row: Row) -> str:
    spread = f"{row.ratio:.3g} ({row.lowest:.3g} to {row.highest:.3g}, {_rounds(row.rounds)})"
    cells = (row.case, row.peer_name, row.unit, f"{row.ours:g}", f"{row.peer:g}", spread, verdict(row))
    return "| " + " | ".join(cells) + " |"


def _details(row: Row) -> str:
    return f"* {row.case}, {row.peer_name}: " + ", ".join(f"{name} {value:g}" for name, value in row.details.items())
