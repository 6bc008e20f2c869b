import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.bench.allocator_cluster import Cluster
from tests.bench.rows import BenchError
from tests.controlplane.build import ORACLE, ensure

_LINE_LIMIT: Final = 2**24


@dataclass(frozen=True, slots=True)
class GoTime:
    """One pod over all nodes by upstream's allocator.

    `seconds`, which are the cap if it was `stopped`, after `reached` nodes; `processor` are those of all its threads.  `decisions`
    is a digest of every device it chose.
    """

    seconds: float
    processor: float
    stopped: bool
    reached: int
    decisions: str


class Upstream:
    """Upstream's allocator on one cluster: one goroutine, all features on, compiled selectors kept between the rounds."""

    def __init__(self, process: asyncio.subprocess.Process, cluster: Cluster, cap: float) -> None:
        self._process = process
        self._nodes = len(cluster.nodes)
        self._cap = cap
        self._question: dict[str, Any] = {
            "name": "bench",
            "kind": "timing",
            "nodes": cluster.nodes,
            "slices": cluster.slices,
            "classes": cluster.classes,
            "allocated": cluster.allocated,
            "claims": cluster.claims,
            "timeoutMs": int(cap * 1000),
        }

    async def ask(self) -> GoTime:
        """One round.

        Raises:
            BenchError: upstream's allocator failed.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise BenchError("upstream's allocator has no input or output")
        stdin.write(json.dumps(self._question).encode() + b"\n")
        await stdin.drain()
        self._question = {"name": "bench", "kind": "again"}
        answer = json.loads(await stdout.readline() or b'{"error": "it ended"}')
        if answer.get("error"):
            raise BenchError(f"upstream's allocator failed: {answer['error']}")
        timed = answer["timed"]
        stopped = timed["reached"] < self._nodes
        seconds = self._cap if stopped else (timed["made"] + timed["asked"]) / 1e9
        return GoTime(seconds, timed["cpu"] / 1e9, stopped, timed["reached"], timed["devices"])


@asynccontextmanager
async def upstream(cluster: Cluster, cap: float) -> AsyncIterator[Upstream]:
    """Upstream's allocator in a process of its own; a round is ended after `cap` seconds."""
    program = await asyncio.to_thread(ensure, ORACLE) / "oracle"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, stdin=pipe, stdout=pipe, limit=_LINE_LIMIT)
    try:
        yield Upstream(process, cluster, cap)
    finally:
        process.kill()
        await process.wait()
