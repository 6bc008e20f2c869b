import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, Final

import msgspec

from tests.bench import workload
from tests.bench.contenders import UPSTREAM_PLACEMENT
from tests.bench.loopback_client import LoopbackClient
from tests.bench.processes import helper
from tests.bench.rows import BenchError, Goal, Row, compare
from tests.bench.scale import Scale

AREA: Final = "filter"
PEER: Final = "bare echo of the same body"
WARM: Final = Goal("<=", 1.5)
PRESERVING: Final = Goal("<=", 1.1)
_WARM_UP: Final = 20
_HOLD_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Variant:
    """What happens around the measured calls: a bind after each, or nothing; on an empty or a full cluster."""

    name: str
    binds: bool = False
    full: bool = False
    goal: Goal | None = None


VARIANTS: Final = (
    Variant("warm, each pod bound before the next", binds=True, goal=WARM),
    Variant("warm, nothing between the calls", goal=WARM),
    Variant("full cluster, all nodes refused", full=True),
)


@dataclass(frozen=True, slots=True)
class Clients:
    """Connections to the service as shipped, to the service that takes upstream's first solution, and to the echo."""

    ours: LoopbackClient
    upstream: LoopbackClient
    echo: LoopbackClient


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Round trips of POST /filter, for each size and variant."""
    return [
        row
        for nodes in scale.filter_nodes
        for variant in VARIANTS
        for row in await _case(scale, nodes, variant, workdir)
    ]


async def _case(scale: Scale, nodes: int, variant: Variant, workdir: Path) -> list[Row]:
    pods = _WARM_UP + scale.calls * scale.filter_rounds
    ours: list[list[float]] = []
    upstream: list[list[float]] = []
    peer: list[list[float]] = []
    async with _servers(nodes, pods, workdir, full=variant.full) as clients:
        asked = iter(range(pods))
        _round(clients, nodes, [next(asked) for _ in range(_WARM_UP)], variant)
        for _ in range(scale.filter_rounds):
            if not variant.binds and not variant.full:
                # Nobody binds these pods: what is held for them must lapse, or a small cluster would be full of promises.
                await asyncio.sleep(_HOLD_SECONDS + 0.1)
            mine, first, echoed = _round(clients, nodes, [next(asked) for _ in range(scale.calls)], variant)
            ours.append(mine)
            upstream.append(first)
            peer.append(echoed)
    rounds = [(median(mine), median(echoed)) for mine, echoed in zip(ours, peer, strict=True)]
    placements = [(median(mine), median(first)) for mine, first in zip(ours, upstream, strict=True)]
    details = {
        "ours p90 us": quantiles([each for mine in ours for each in mine], n=10)[-1],
        "peer p90 us": quantiles([each for echoed in peer for each in echoed], n=10)[-1],
        "request bytes": len(body(nodes, 0)),
    }
    case = f"{nodes} nodes, {variant.name}"
    return [
        compare(AREA, case, "us p50", rounds, PEER, goal=variant.goal, details=details),
        compare(AREA, case, "us p50", placements, UPSTREAM_PLACEMENT.name, goal=None if variant.full else PRESERVING),
    ]


@asynccontextmanager
async def _servers(nodes: int, pods: int, workdir: Path, *, full: bool) -> AsyncIterator[Clients]:
    arguments = ["--nodes", str(nodes), "--pods", str(pods), "--hold-seconds", str(_HOLD_SECONDS)]
    if full:
        arguments.append("--full")
    async with (
        helper("filter_service", arguments, workdir, ready="/readyz") as service,
        helper("filter_service", [*arguments, "--placement", "upstream"], workdir, ready="/readyz") as first,
        helper("echo_server", [], workdir, ready="/") as echo,
    ):
        with (
            LoopbackClient(service.port) as ours,
            LoopbackClient(first.port) as upstream,
            LoopbackClient(echo.port) as theirs,
        ):
            yield Clients(ours, upstream, theirs)


def _round(
    clients: Clients, nodes: int, pods: list[int], variant: Variant
) -> tuple[list[float], list[float], list[float]]:
    """Return the microseconds of ours, of ours with upstream's placement, and of the echo, call by call in turns."""
    ours, upstream, peer = list[float](), list[float](), list[float]()
    for pod in pods:
        request = body(nodes, pod)
        for client, times in ((clients.ours, ours), (clients.upstream, upstream)):
            answer, taken = client.post("/filter", request)
            times.append(taken)
            fitting = _judged(answer, nodes, full=variant.full)
            if variant.binds:
                _bind(client, pod, fitting[0])
        _, taken = clients.echo.post("/filter", request)
        peer.append(taken)
    return ours, upstream, peer


def _judged(answer: bytes, nodes: int, *, full: bool) -> list[str]:
    """The nodes offered; a wrong answer is worth no time."""
    decoded = msgspec.json.decode(answer)
    fitting: list[str] = decoded.get("NodeNames") or []
    refused = len(decoded.get("FailedAndUnresolvableNodes") or {})
    if full and (fitting or refused != nodes):
        raise BenchError(
            f"A full cluster offered {len(fitting)} nodes and refused {refused} of {nodes}: {answer[:300]!r}"
        )
    if not full and not fitting:
        raise BenchError(f"A cluster with free devices offered no node: {answer[:300]!r}")
    return fitting


def _bind(client: LoopbackClient, pod: int, node: str) -> None:
    name = workload.pod_name(pod)
    arguments = {"PodName": name, "PodNamespace": workload.NAMESPACE, "PodUID": workload.uid(name), "Node": node}
    answer, _ = client.post("/bind", msgspec.json.encode(arguments))
    if msgspec.json.decode(answer).get("Error"):
        raise BenchError(f"Bind of {name} to {node} failed: {answer.decode()}")


def body(nodes: int, pod: int) -> bytes:
    """A filter request as kube-scheduler sends it: the pod with its defaults, names of nodes in no useful order."""
    names = [workload.node_name(index) for index in range(nodes)]
    Random(nodes).shuffle(names)
    return msgspec.json.encode({"Pod": _stored(workload.pod(pod)), "Nodes": None, "NodeNames": names})


def _stored(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server gives it out, without managedFields, which kube-scheduler drops."""
    name = pod["metadata"]["name"]
    pod["metadata"] |= {"uid": workload.uid(name), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod["spec"] |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for each in ("not-ready", "unreachable")
        ],
    }
    pod["spec"]["containers"][0] |= {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    return {"metadata": pod["metadata"], "spec": pod["spec"], "status": pod["status"]}
