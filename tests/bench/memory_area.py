import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp

from tests.bench.accounting import memory_megabytes, processor_seconds
from tests.bench.heavy_slices import DEVICES
from tests.bench.processes import helper
from tests.bench.rows import Goal, Row, compare, within
from tests.bench.scale import Scale
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.kubeconfig import Access, write_kubeconfig

AREA: Final = "memory"
MEGABYTES: Final = 400.0
PLACED: Final = 8
_START_SECONDS: Final = 300.0
REQUESTS: Final = {1_000: 256.0, 5_000: 1024.0}
"""Nodes at most -> megabytes."""
SECONDS: Final = 10.0
_LINEAR: Final = Goal("<=", 1.25)


@dataclass(frozen=True, slots=True)
class Load:
    """One cold start: memory in 2**20 bytes, times in seconds.

    `synchronised`: from the first list to ready; `ready`: from the process' start to ready; `processor`: its time until then.
    """

    resident: float
    peak: float
    synchronised: float
    ready: float
    processor: float


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Cold starts of the real service against a server with many, few and no slices, and with claims of pods that run."""
    large, small = scale.slices
    many, few, none = [], [], []
    async with _server(large, workdir) as big, _server(small, workdir) as little, _server(0, workdir) as empty:
        for _ in range(scale.loads):
            none.append(await _load(empty, workdir))
            few.append(await _load(little, workdir))
            many.append(await _load(big, workdir))
    details = {
        "peak MB": median(each.peak for each in many),
        "without slices MB": median(each.resident for each in none),
        "process start to ready s": median(each.ready for each in many),
    }
    clusters = [await _cluster(nodes, scale.loads, workdir) for nodes in scale.clusters]
    what = f"{large} slices of {DEVICES} devices"
    growth = f"{large} slices against {small}"
    return [
        within(AREA, f"{what}: resident", "MB", [each.resident for each in many], MEGABYTES, details=details),
        within(AREA, f"{what}: cold synchronisation", "s", [each.synchronised for each in many], SECONDS),
        compare(
            AREA,
            f"{growth}: memory",
            "kB per slice",
            [
                (1024 * (much.resident - zero.resident) / large, 1024 * (little.resident - zero.resident) / small)
                for much, little, zero in zip(many, few, none, strict=True)
            ],
            f"per slice at {small}",
            goal=_LINEAR,
        ),
        compare(
            AREA,
            f"{growth}: cold synchronisation",
            "ms per slice",
            [
                (
                    1000 * (much.synchronised - zero.synchronised) / large,
                    1000 * (little.synchronised - zero.synchronised) / small,
                )
                for much, little, zero in zip(many, few, none, strict=True)
            ],
            f"per slice at {small}",
            goal=_LINEAR,
        ),
        *clusters,
    ]


async def _cluster(nodes: int, loads: int, workdir: Path) -> Row:
    """A cluster with eight pods on each node, that have a claim each: what the chart's value for its size has to suffice for."""
    async with _server(nodes, workdir, PLACED) as server:
        found = [await _load(server, workdir) for _ in range(loads)]
    return within(
        AREA,
        f"{nodes} nodes, a slice of {DEVICES} devices and {PLACED} claims on each: resident",
        "MB",
        [each.resident for each in found],
        _requested(nodes),
        peer_name="extender.resources.requests.memory",
        details={
            "peak MB": median(each.peak for each in found),
            "process start to ready, processor s": median(each.processor for each in found),
        },
    )


def _requested(nodes: int) -> float:
    """The memory that docs/start/install.md requests for a cluster of this size."""
    return next(megabytes for most, megabytes in REQUESTS.items() if nodes <= most)


@asynccontextmanager
async def _server(count: int, workdir: Path, placed: int = 0) -> AsyncIterator[str]:
    arguments = ["--count", str(count), "--placed", str(placed)]
    async with helper("slice_server", arguments, workdir, ready="/version", seconds=300) as server:
        yield f"http://127.0.0.1:{server.port}"


async def _load(server: str, workdir: Path) -> Load:
    kubeconfig = write_kubeconfig(workdir / "slice-server.json", Access(server, "", "bench"))
    extender = ExtenderProcess(workdir, kubeconfig, name="memory")
    began = time.monotonic()
    try:
        await extender.start(seconds=_START_SECONDS)
        ready = time.monotonic()
        resident, peak = memory_megabytes(extender.pid or 0)
        processor = processor_seconds(extender.pid or 0)
        async with aiohttp.ClientSession() as session, session.get(f"{server}/bench") as answer:
            first: float = (await answer.json())["first list"]
        return Load(resident, peak, ready - first, ready - began, processor)
    finally:
        await extender.terminate()
