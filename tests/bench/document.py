from collections.abc import Sequence
from typing import Final

from tests.bench.report import verdict
from tests.bench.rows import BenchError, Row
from tests.controlplane.extender import REPOSITORY

DOCUMENT: Final = REPOSITORY / "docs" / "performance.md"
_BEGIN: Final = "<!-- figures: begin (make bench, then python -m tests.bench --document) -->\n"
_END: Final = "<!-- figures: end -->\n"
_HEADING: Final = "### "


def update(rows: Sequence[Row]) -> None:
    """Puts these rows into docs/performance.md, where areas that were not measured keep their figures.

    Raises BenchError if the document has no place for them.
    """
    text = DOCUMENT.read_text(encoding="utf-8")
    head, begin, rest = text.partition(_BEGIN)
    kept, end, tail = rest.partition(_END)
    if not begin or not end:
        raise BenchError(f"{DOCUMENT.name} has no place for figures: the lines {_BEGIN.strip()} and {_END.strip()}.")
    DOCUMENT.write_text(f"{head}{begin}{merged(kept, table(rows))}{end}{tail}", encoding="utf-8")


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
    spread = f"{row.ratio:.3g} ({row.lowest:.3g} to {row.highest:.3g}, {row.rounds} rounds)"
    cells = (row.case, row.peer_name, row.unit, f"{row.ours:g}", f"{row.peer:g}", spread, verdict(row))
    return "| " + " | ".join(cells) + " |"


def _details(row: Row) -> str:
    return f"* {row.case}, {row.peer_name}: " + ", ".join(f"{name} {value:g}" for name, value in row.details.items())
