"""`python -m tests.bench [--only AREA]`: measures ours beside its peers, prints a table and writes bench/latest.json."""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench import (
    allocator_area,
    binding_area,
    cel_area,
    document,
    filter_area,
    fits_area,
    memory_area,
    page_area,
    see_area,
    tenants_area,
    throughput_area,
    tls_area,
    tracing_area,
)
from tests.bench.report import show
from tests.bench.rows import BenchError, Row, read_rows, write_rows
from tests.bench.scale import FULL, QUICK, Scale
from tests.controlplane.build import BuildError
from tests.controlplane.extender import REPOSITORY
from tests.controlplane.process import ComponentError

Area = Callable[[Scale, Path], Awaitable[list[Row]]]

LATEST: Final = REPOSITORY / "bench" / "latest.json"
AREAS: Final[dict[str, Area]] = {
    "allocator": allocator_area.measure,
    "binding": binding_area.measure,
    "cel": cel_area.measure,
    "claims": throughput_area.claims,
    "filter": filter_area.measure,
    "fits": fits_area.measure,
    "memory": memory_area.measure,
    "page": page_area.measure,
    "see": see_area.measure,
    "tenants": tenants_area.measure,
    "throughput": throughput_area.throughput,
    "tls": tls_area.measure,
    "tracing": tracing_area.measure,
    "workloads": throughput_area.workloads,
}
ON_REQUEST: Final[dict[str, Area]] = {"offered-nodes": throughput_area.offered_nodes}


def main() -> int:
    """Command line; the exit code is 1 when a measurement failed, not when a goal was missed."""
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        if arguments.document:
            document.update(read_rows(arguments.output), arguments.output.stat().st_mtime)
            return 0
        rows = asyncio.run(_measure(arguments.only, _scale(arguments)))
        write_rows(arguments.output, rows)
    except (BenchError, BuildError, ComponentError) as problem:
        sys.stderr.write(f"bench: {problem}\n")
        return 1
    show(rows, Console(width=None if sys.stdout.isatty() else 200))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=sorted({**AREAS, **ON_REQUEST}), help="measure this area alone")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and few rounds: to try the bench, not to quote it"
    )
    parser.add_argument("--rounds", type=int, help="rounds in every area")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the rows are (default: bench/latest.json)")
    parser.add_argument(
        "--document", action="store_true", help="write the rows into docs/performance.md; measures nothing"
    )
    return parser.parse_args()


def _scale(arguments: argparse.Namespace) -> Scale:
    scale = QUICK if arguments.quick else FULL
    if arguments.rounds is None:
        return scale
    rounds = arguments.rounds
    return replace(
        scale,
        filter_rounds=rounds,
        runs=rounds,
        loads=rounds,
        allocator_rounds=rounds,
        group_runs=rounds,
        fits_seeds=rounds,
    )


async def _measure(only: str | None, scale: Scale) -> list[Row]:
    chosen: Sequence[Area] = list(AREAS.values()) if only is None else [{**AREAS, **ON_REQUEST}[only]]
    with tempfile.TemporaryDirectory(prefix="dra-extender-bench-") as folder:
        return [row for area in chosen for row in await area(scale, Path(folder))]


if __name__ == "__main__":
    sys.exit(main())
