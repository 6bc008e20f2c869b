import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import aiohttp
import msgspec

from tests.bench import slow_workload, workload
from tests.bench.accounting import memory_megabytes
from tests.bench.binding_latency import latencies
from tests.bench.contenders import IN_TREE, ours
from tests.bench.filter_area import body
from tests.bench.loopback_client import LoopbackClient
from tests.bench.processes import Helper, helper
from tests.bench.rows import BenchError, Goal, Row, compare, within
from tests.bench.scale import Scale
from tests.bench.wake_latency import wake_latencies

AREA: Final = "binding"
MEGABYTES: Final = 200.0
MILLISECONDS: Final = 20.0
WAKE_MILLISECONDS: Final = 2_000.0
NODES: Final = 200
_UNDISTURBED: Final = Goal("<=", 1.2)
_HOLD_SECONDS: Final = 1.0
_ALL_WAIT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Memory that the waiting binds took (2**20 bytes), and filter calls beside them and without them (microseconds, by round)."""

    megabytes: float
    resident: float
    rounds: list[tuple[float, float]]


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """How soon a pod is bound after its device is ready or there at last, and what it costs that many binds wait."""
    mine, in_tree = [], []
    for _ in range(scale.runs):
        mine.append(await latencies(ours(), scale, workdir))
        in_tree.append(await latencies(IN_TREE, scale, workdir))
    everything = [each for run in mine for each in run]
    details = {"p90 ms": quantiles(everything, n=10)[-1], "highest ms": max(everything)}
    medians = [median(run) for run in mine]
    woken = await wake_latencies(scale, workdir)
    waiting = await _disturbance(scale, workdir)
    what = f"{scale.waiting} waiting binds"
    return [
        within(AREA, "condition True to Binding", "ms p50", medians, MILLISECONDS, details=details),
        compare(
            AREA,
            "condition True to Binding, against in-tree",
            "ms p50",
            list(zip(medians, [median(run) for run in in_tree], strict=True)),
            "in-tree plugin, which polls",
        ),
        within(
            AREA,
            "slice published to Binding of the pod that waits for it",
            "ms p50",
            [median(woken)],
            WAKE_MILLISECONDS,
            details={"highest ms": max(woken)},
        ),
        within(
            AREA,
            f"{what}: memory",
            "MB",
            [waiting.megabytes],
            MEGABYTES,
            details={"resident MB": waiting.resident},
        ),
        compare(AREA, f"{what}: filter", "us p50", waiting.rounds, "filter with none waiting", goal=_UNDISTURBED),
    ]


async def _disturbance(scale: Scale, workdir: Path) -> Disturbance:
    """Two services alike, called in turns; in one of them the binds wait."""
    pods = scale.calls * scale.filter_rounds
    async with _service(pods, scale.waiting, workdir) as busy, _service(pods, scale.waiting, workdir) as idle:
        before, _ = memory_megabytes(busy.pid)
        with _binds(busy.port, scale.waiting):
            await _all_wait(busy.port, scale.waiting)
            after, _ = memory_megabytes(busy.pid)
            rounds = []
            with LoopbackClient(busy.port) as beside, LoopbackClient(idle.port) as without:
                for number in range(scale.filter_rounds):
                    await asyncio.sleep(_HOLD_SECONDS + 0.1)
                    asked = range(number * scale.calls, (number + 1) * scale.calls)
                    rounds.append(_round(beside, without, asked))
            await _all_wait(busy.port, scale.waiting)
        return Disturbance(after - before, after, rounds)


@asynccontextmanager
async def _service(pods: int, waiting: int, workdir: Path) -> AsyncIterator[Helper]:
    arguments = [
        *("--nodes", str(NODES), "--pods", str(pods)),
        *("--waiting", str(waiting), "--hold-seconds", str(_HOLD_SECONDS)),
    ]
    async with helper("filter_service", arguments, workdir, ready="/readyz") as service:
        yield service


@contextmanager
def _binds(port: int, count: int) -> Iterator[None]:
    """So many bind calls, each over a connection of its own, as kube-scheduler makes them; nobody reads the answers."""
    opened: list[socket.socket] = []
    try:
        for index in range(count):
            name = slow_workload.name(index)
            arguments = {
                "PodName": name,
                "PodNamespace": workload.NAMESPACE,
                "PodUID": workload.uid(name),
                "Node": workload.node_name(index % NODES),
            }
            sent = msgspec.json.encode(arguments)
            head = f"POST /bind HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
            made = socket.create_connection(("127.0.0.1", port))
            opened.append(made)
            made.sendall(head.encode() + sent)
        yield
    finally:
        for each in opened:
            each.close()


async def _all_wait(port: int, count: int) -> None:
    """Returns once so many binds wait for conditions; BenchError if they do not."""
    end = time.monotonic() + _ALL_WAIT_SECONDS
    found = ""
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < end:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            found = next((each for each in lines if each.startswith("dra_extender_bindingconditions_waiting_pods")), "")
            if found.endswith(f" {float(count)}"):
                return
            await asyncio.sleep(0.2)
    raise BenchError(f"{count} binds should wait, but the service says: {found}.")


def _round(beside: LoopbackClient, without: LoopbackClient, pods: range) -> tuple[float, float]:
    taken: tuple[list[float], list[float]] = ([], [])
    for pod in pods:
        request = body(NODES, pod)
        for client, figures in zip((beside, without), taken, strict=True):
            answer, microseconds = client.post("/filter", request)
            if not msgspec.json.decode(answer).get("NodeNames"):
                raise BenchError(f"A cluster with free devices offered no node: {answer[:300]!r}")
            figures.append(microseconds)
    return median(taken[0]), median(taken[1])
