import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench import contenders
from tests.bench.contenders import IN_TREE, IN_TREE_ALL_NODES, NO_OP, Contender
from tests.bench.load import Load, one_device_each
from tests.bench.rows import Goal, Row, compare
from tests.bench.scale import Scale
from tests.bench.throughput_run import Run, run

AREA: Final = "throughput"
_LOG = logging.getLogger("tests.bench")
_QUIET_CORES: Final = 0.3
_GOALS: Final = {
    (200, IN_TREE.name): Goal(">=", 1.1),
    (200, NO_OP.name): Goal(">=", 0.85),
    (1_000, IN_TREE.name): Goal(">=", 2.0),
    (1_000, IN_TREE_ALL_NODES.name): Goal(">=", 2.0),
}


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Pods per second through the real kube-scheduler: ours beside the in-tree plugin and beside a no-op extender."""
    ours = contenders.ours()
    peers = (IN_TREE_ALL_NODES, IN_TREE, NO_OP)[: scale.peers]
    rows: list[Row] = []
    for nodes in scale.throughput_nodes:
        load = one_device_each(nodes, scale.pods)
        runs = await interleaved([ours, *peers], load, scale, workdir)
        rows += [
            compare(
                AREA,
                load.name,
                "pods/s",
                pairs(runs[ours.name], runs[peer.name]),
                peer.name,
                goal=_GOALS.get((nodes, peer.name)),
                details={**processor(runs[ours.name], "ours"), **processor(runs[peer.name], "peer")},
            )
            for peer in peers
        ]
    return rows


async def interleaved(chosen: Sequence[Contender], load: Load, scale: Scale, workdir: Path) -> dict[str, list[Run]]:
    """Runs by name of contender; in each round everybody has a turn, and no one is always first."""
    runs: dict[str, list[Run]] = {each.name: [] for each in chosen}
    for number in range(scale.runs):
        first = number % len(chosen)
        for contender in (*chosen[first:], *chosen[:first]):
            found = await _quietest(contender, load, scale, workdir)
            _LOG.info(
                "round %d, %s, %s: %.0f pods/s, %.2f cores (%.2f foreign), ms per pod: %s",
                number + 1,
                load.name,
                contender.name,
                found.rate,
                found.cores,
                found.foreign,
                ", ".join(f"{name} {value:.2f}" for name, value in found.milliseconds.items()),
            )
            runs[contender.name].append(found)
    return runs


async def _quietest(contender: Contender, load: Load, scale: Scale, workdir: Path) -> Run:
    """One run; while somebody else used the machine, another one, and of those the least disturbed."""
    found = await run(contender, load, scale, workdir)
    for _ in range(scale.repeats):
        if found.foreign <= _QUIET_CORES:
            break
        _LOG.info("%s: others used %.2f cores, so this run is repeated", contender.name, found.foreign)
        found = min(found, await run(contender, load, scale, workdir), key=lambda each: each.foreign)
    return found


def pairs(ours: Sequence[Run], peer: Sequence[Run]) -> list[tuple[float, float]]:
    """Rates, round by round."""
    return [(mine.rate, theirs.rate) for mine, theirs in zip(ours, peer, strict=True)]


def processor(runs: Sequence[Run], whose: str) -> dict[str, float]:
    """Medians of the whole time, of processor milliseconds per pod by process, of the cores in use, and of those others used."""
    names = runs[0].milliseconds
    spent = {f"{whose}: {name} ms/pod": median(each.milliseconds[name] for each in runs) for name in names}
    return {
        f"{whose}: pods bound": median(each.bound for each in runs),
        f"{whose}: s from the scheduler's start": median(each.seconds for each in runs),
        **spent,
        f"{whose}: cores used": median(each.cores for each in runs),
        f"{whose}: foreign cores": median(each.foreign for each in runs),
    }
