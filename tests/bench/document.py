import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.bench import fits_area, tenants_area
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
_MOST_TABLES: Final = 4
_SIDES: Final = ("ours: ", "peer: ")
_PRINTED_ONLY: Final = frozenset(
    {
        "ratio of processor time",
        "request bytes",
        "etcd ms/pod",
        "kube-controller-manager ms/pod",
        "cores used",
        "process start to ready s",
        "file unpacked MB",
        "nodes with something stranded",
        "attacking pods accepted",
        "added us",
    }
)
"""Details that `make bench` prints and the document leaves out."""
_LARGEST_ONLY: Final = ("allocator",)
"""Areas of which the document has only the largest cluster of each shape."""
_SIZED: Final = re.compile(r"(\d+) nodes, (.+)")
_GO_MOD: Final = REPOSITORY / "tests" / "controlplane" / "go.mod"
README: Final = REPOSITORY / "README.md"
_README_AREA: Final = "claims"
_README_BEGIN: Final = "<!-- how fast: begin (make bench ONLY=claims, then python -m tests.bench --document) -->\n"
_README_END: Final = "<!-- how fast: end -->\n"
_FULL_BEGIN: Final = "<!-- how full: begin (make bench ONLY=fits, then python -m tests.bench --document) -->\n"
_FULL_END: Final = "<!-- how full: end -->\n"
_BESIDE_BEGIN: Final = (
    "<!-- beside a tenant: begin (make bench ONLY=tenants, then python -m tests.bench --document) -->\n"
)
_BESIDE_END: Final = "<!-- beside a tenant: end -->\n"
_HARD_SEARCHES: Final = "hard searches: created to bound"
_ATTEMPTS: Final = "pods without a device: attempts"
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
    cases = {row.case: row for row in rows if row.area == tenants_area.AREA}
    ours, in_tree = cases.get(_HARD_SEARCHES), cases.get(f"in-tree plugin, {_HARD_SEARCHES}")
    attempts = next((row for row in rows if row.case == _ATTEMPTS and row.peer_name == IN_TREE.name), None)
    if ours and in_tree and attempts:
        _replace(README, _BESIDE_BEGIN, _BESIDE_END, lambda _: beside_a_tenant(ours, in_tree, attempts))


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
        "GPUs left unused when the pods of a",
        "[public trace](docs/performance.md#fits-how-much-of-a-cluster-pods-can-use) have asked for exactly as many as there are,",
        "with `scheduling.placement: preserve`. In *multigpu50*, half of the GPUs are asked for by pods with several",
        f"(`make bench ONLY={fits_area.AREA}` on {day}, Kubernetes {version}):",
        "",
        "| pods | compared with | seeds | in-tree | dra-extender |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row.case.removesuffix(_AT_CAPACITY)} | {row.peer_name} | {row.rounds} "
        f"| {100 - row.peer:.1f} % | {100 - row.ours:.1f} % |"
        for row in rows
        if row.peer_name in (fits_area.IN_TREE, IN_TREE.name)
    ]
    return "\n".join(["", *lines, "", ""])


def beside_a_tenant(ours: Row, in_tree: Row, attempts: Row) -> str:
    """Return README's sentences about other pods beside hard searches, and about `attempts` at pods that no node suits."""
    return (
        "\nBeside a tenant whose pods need hard searches, pods of another namespace are bound within"
        f" {ours.ours:.0f} ms (99th percentile, {_rounds(ours.rounds)});\n"
        f"with the in-tree plugin within {in_tree.ours / 1000:.0f} s ({_rounds(in_tree.rounds)};"
        " [tenants](docs/performance.md#tenants-other-peoples-pods-beside-an-attacker)).\n"
        "kube-scheduler tries pods that no node suits more often than with the in-tree plugin, because it does not ask an\n"
        f"extender which changes can help: {attempts.ours:.0f} attempts at each pod against {attempts.peer:.0f}"
        f" ({_rounds(attempts.rounds)}; [why](docs/limitations.md#pods-that-no-node-suits)).\n\n"
    )


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
    """Return a table for each unit and its peers where these are few, otherwise one table with columns for both."""
    detailed = [row for row in rows if row.details]
    details = [name for name in dict.fromkeys(name for row in detailed for name in row.details) if not _left_out(name)]
    equal = [name for name in details if len(detailed) > 1 and len({row.details.get(name) for row in detailed}) == 1]
    columns = [name for name in details if name not in equal and not name.startswith(_SIDES)]
    tables = _tables(_of_largest(rows) if area in _LARGEST_ONLY else rows, columns)
    lines = [f"\n{_HEADING}{area}"]
    if len(tables) > _MOST_TABLES:
        lines += [f"\nRounds: {_usual_rounds(rows)}.\n", *_rows(("peer", "unit"), columns, rows)]
    else:
        for (unit, peers), own in tables.items():
            peer = f"Peer: {peers[0]}. " if len(peers) == 1 else ""
            lines += [f"\n{peer}Unit: {unit}. Rounds: {_usual_rounds(own)}.\n"]
            lines += _rows((), columns, own) if len(peers) == 1 else _rows_of_peers(peers, columns, own)
    if equal:
        where = "In all rows" if len(detailed) == len(rows) else "Where counted"
        lines += ["", f"{where}: {', '.join(f'{name} {detailed[0].details[name]:g}' for name in equal)}."]
    sided = [name for name in details if name not in equal and name.startswith(_SIDES)]
    return "\n".join([*lines, *_by_side(sided, rows)])


def _left_out(detail: str) -> bool:
    return detail.partition(": ")[2] in _PRINTED_ONLY or detail in _PRINTED_ONLY


def _of_largest(rows: Sequence[Row]) -> list[Row]:
    """Leave out the rows of smaller clusters that meet their goal; a row that misses its goal always stays."""
    largest: dict[str, int] = {}
    sizes = [_SIZED.fullmatch(row.case) for row in rows]
    for size in sizes:
        if size:
            largest[size[2]] = max(largest.get(size[2], 0), int(size[1]))
    return [
        row
        for row, size in zip(rows, sizes, strict=True)
        if size is None or not row.met or int(size[1]) == largest[size[2]]
    ]


def _tables(rows: Sequence[Row], columns: Sequence[str]) -> dict[tuple[str, tuple[str, ...]], list[Row]]:
    """Group rows by their unit and peers; rows of one case share a table if ours and the figures in these columns are the same."""
    cases: dict[tuple[str, str, tuple[float | None, ...]], list[Row]] = {}
    for row in rows:
        figures = (row.ours, *(row.details.get(name) for name in columns))
        cases.setdefault((row.unit, row.case, figures), []).append(row)
    tables: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for own in cases.values():
        tables.setdefault((own[0].unit, tuple(row.peer_name for row in own)), []).extend(own)
    return tables


def _usual_rounds(rows: Sequence[Row]) -> int:
    return Counter(row.rounds for row in rows).most_common(1)[0][0]


def _rows(names: Sequence[str], details: Sequence[str], rows: Sequence[Row]) -> list[str]:
    measured = [name for name in details if any(name in row.details for row in rows)]
    heads = ["case", *names, "ours", "peer's", "ratio", "goal", *measured]
    usual = _usual_rounds(rows)
    named = ((row, (row.peer_name, row.unit) if names else ()) for row in rows)
    return [
        _cells(heads),
        f"|{'---|' * (len(names) + 1)}---:|---:|---|---|{'---:|' * len(measured)}",
        *(
            _cells(
                [
                    row.case,
                    *texts,
                    f"{row.ours:g}",
                    f"{row.peer:g}",
                    _ratio(row, usual),
                    verdict(row),
                    *_measured(row.details, measured),
                ]
            )
            for row, texts in named
        ),
    ]


def _rows_of_peers(peers: Sequence[str], details: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return a table with a column for each peer: its figure, the ratio, and the goal if there is one."""
    measured = [name for name in details if any(name in row.details for row in rows)]
    usual = _usual_rounds(rows)
    lines = [
        _cells(["case", "ours", *peers, *measured]),
        f"|---|---:|{'---|' * len(peers)}{'---:|' * len(measured)}",
    ]
    for case in dict.fromkeys(row.case for row in rows):
        own = [row for row in rows if row.case == case]
        beside = [f"{row.peer:g}: {_ratio(row, usual)}{f', {verdict(row)}' if row.goal else ''}" for row in own]
        lines.append(_cells([case, f"{own[0].ours:g}", *beside, *_measured(own[0].details, measured)]))
    return lines


def _by_side(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return a table of the details that are called `ours: ...` or `peer: ...`; what is equal of ours stands there once."""
    measured = list(dict.fromkeys(name.partition(": ")[2] for name in names))
    cases = list(dict.fromkeys(row.case for row in rows))
    lines: dict[str, None] = {}
    for row in sorted(rows, key=lambda row: cases.index(row.case)):
        for side, who in zip(_SIDES, ("ours", row.peer_name), strict=True):
            values = _measured(row.details, [f"{side}{name}" for name in measured])
            if any(values):
                lines[_cells([row.case, who, *values])] = None
    return ["", _cells(["case", "of", *measured]), f"|---|---|{'---:|' * len(measured)}", *lines] if lines else []


def _measured(details: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [f"{details[name]:g}" if name in details else "" for name in names]


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _ratio(row: Row, usual_rounds: int) -> str:
    extremes = [f"{row.lowest:.3g} to {row.highest:.3g}"] if row.rounds > 1 else []
    counted = [_rounds(row.rounds)] if row.rounds != usual_rounds else []
    return f"{row.ratio:.3g} ({', '.join([*extremes, *counted])})" if extremes or counted else f"{row.ratio:.3g}"
