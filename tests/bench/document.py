from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.bench import fits_area
from tests.bench.contenders import IN_TREE
from tests.bench.fits import chart
from tests.bench.report import verdict
from tests.bench.rows import BenchError, Row
from tests.controlplane.build import pinned
from tests.controlplane.extender import REPOSITORY

DOCUMENT: Final = REPOSITORY / "docs" / "performance.md"
_BEGIN: Final = "<!-- figures: begin (make bench, then python -m tests.bench --document) -->\n"
_END: Final = "<!-- figures: end -->\n"
_HEADING: Final = "### "
_MOST_COLUMNS: Final = 6
_MOST_TABLES: Final = 4
_GO_MOD: Final = REPOSITORY / "tests" / "controlplane" / "go.mod"
README: Final = REPOSITORY / "README.md"
_README_AREA: Final = "claims"
_README_BEGIN: Final = "<!-- how fast: begin (make bench ONLY=claims, then python -m tests.bench --document) -->\n"
_README_END: Final = "<!-- how fast: end -->\n"
_FULL_BEGIN: Final = "<!-- how full: begin (make bench ONLY=fits, then python -m tests.bench --document) -->\n"
_FULL_END: Final = "<!-- how full: end -->\n"
CHART: Final = REPOSITORY / "docs" / "images" / "fits.svg"
_AT_CAPACITY: Final = ", at 100 % asked"


def update(rows: Sequence[Row], measured: float) -> None:
    """Put these rows, `measured` at this time since the epoch, into docs/performance.md and README.md.

    Areas that were not measured keep their figures.

    Raises:
        BenchError: a document has no place for them.
    """
    _replace(DOCUMENT, _BEGIN, _END, lambda kept: merged(kept, table(rows)))
    version = pinned(_GO_MOD.read_text(encoding="utf-8"), "k8s.io/kubernetes")
    shown = [row for row in rows if row.area == _README_AREA]
    if shown:
        _replace(README, _README_BEGIN, _README_END, lambda _: how_fast(shown, measured, version))
    filled = [row for row in rows if row.area == fits_area.AREA and row.case.endswith(_AT_CAPACITY)]
    if filled:
        _replace(README, _FULL_BEGIN, _FULL_END, lambda _: how_full(filled, measured, version))
        CHART.write_text(chart_of(filled), encoding="utf-8")


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


def how_full(rows: Sequence[Row], measured: float, version: str) -> str:
    """Return README's table of GPUs that no pod can use any more, of the rows against kube-scheduler's own rule."""
    day = datetime.fromtimestamp(measured, tz=UTC).date().isoformat()
    lines = [
        "GPUs left unused when pods have asked for exactly as many as there are, with `scheduling.placement: preserve`",
        f"(`make bench ONLY={fits_area.AREA}` on {day}, Kubernetes {version}):",
        "",
        "| pods | seeds | in-tree | dra-extender |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row.case.removesuffix(_AT_CAPACITY)}, {row.peer_name} | {row.rounds} "
        f"| {100 - row.peer:.1f} % | {100 - row.ours:.1f} % |"
        for row in rows
        if row.peer_name in (fits_area.IN_TREE, IN_TREE.name)
    ]
    return "\n".join(["", *lines, "", ""])


def chart_of(rows: Sequence[Row]) -> str:
    """Return the GPUs that each rule leaves unused, as an SVG."""
    panels = {}
    compared = [row for row in rows if row.peer_name in fits_area.RULES]
    for case in dict.fromkeys(row.case for row in compared):
        own = [row for row in compared if row.case == case]
        shares = [(fits_area.OURS, own[0].ours), *((row.peer_name, row.peer) for row in own)]
        panels[case.removesuffix(_AT_CAPACITY)] = chart.unused(shares)
    return chart.bars("GPUs left unused when exactly as many are asked for as there are", panels, fits_area.OURS)


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
    areas = dict.fromkeys(row.area for row in rows)
    return "\n".join(_section(area, [row for row in rows if row.area == area]) for area in areas) + "\n\n"


def _section(area: str, rows: Sequence[Row]) -> str:
    """A table for each peer and unit where these are few, otherwise one table with columns for both."""
    pairs = dict.fromkeys((row.peer_name, row.unit) for row in rows)
    lines = [f"\n{_HEADING}{area}"]
    if len(pairs) > _MOST_TABLES:
        lines += ["", *_rows(("peer", "unit"), rows)]
    else:
        for pair in pairs:
            own = [row for row in rows if (row.peer_name, row.unit) == pair]
            lines += [f"\nPeer: {pair[0]}. Unit: {pair[1]}.\n", *_rows((), own)]
    return "\n".join([*lines, *_details([row for row in rows if row.details])])


def _rows(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    heads = ["case", *columns, "ours", "peer's", "ratio", "goal"]
    lines = [_cells(heads), f"|{'---|' * (len(heads) - 4)}---:|---:|---|---|"]
    named = ((row, (row.peer_name, row.unit) if columns else ()) for row in rows)
    return [*lines, *(_cells([row.case, *names, *_figures(row)]) for row, names in named)]


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _figures(row: Row) -> tuple[str, str, str, str]:
    several = f" ({row.lowest:.3g} to {row.highest:.3g}, {row.rounds} rounds)" if row.rounds > 1 else ""
    return f"{row.ours:g}", f"{row.peer:g}", f"{row.ratio:.3g}{several}", verdict(row)


def _details(rows: Sequence[Row]) -> list[str]:
    """What else was measured: once if it is equal in all rows, and as a table or, of many details, as a list."""
    names = dict.fromkeys(name for row in rows for name in row.details)
    values = {name: {row.details.get(name) for row in rows} for name in names}
    equal = {name: value for name in names if len(rows) > 1 for value in values[name] if len(values[name]) == 1}
    lines = ["", f"In all rows: {', '.join(f'{name} {value:g}' for name, value in equal.items())}."] if equal else []
    named = [(row, {name: value for name, value in row.details.items() if name not in equal}) for row in rows]
    if len(names) - len(equal) > _MOST_COLUMNS:
        return [*lines, "", *(f"* {row.case}, {row.peer_name}: {_told(own)}" for row, own in named)]
    for shape in dict.fromkeys(tuple(own) for _, own in named if own):
        lines += ["", _cells(["case", *shape]), f"|---|{'---:|' * len(shape)}"]
        lines += [
            _cells([row.case, *(f"{own[name]:g}" for name in shape)]) for row, own in named if tuple(own) == shape
        ]
    return lines


def _told(details: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in details.items())
