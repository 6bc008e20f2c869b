"""Pods per second through the real kube-scheduler: queues of pods that wait before anybody schedules."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench import contenders
from tests.bench.claim_loads import GROUPS_POLICY, claim_loads, grouped_load
from tests.bench.contenders import IN_TREE, IN_TREE_ALL_NODES, NO_OP, UPSTREAM_PLACEMENT, Contender
from tests.bench.group_loads import claims_from_a_template, gangs, one_shared_claim
from tests.bench.load import Load, one_device_each
from tests.bench.rows import Goal, Row, compare
from tests.bench.scale import Scale
from tests.bench.throughput_run import Run, run

_LOG = logging.getLogger("tests.bench")
_QUIET_CORES: Final = 0.3
_OFFERED: Final = (1, 4, 8, 16)
_GOALS: Final = {
    ("throughput", "200", IN_TREE.name): Goal(">=", 1.1),
    ("throughput", "200", NO_OP.name): Goal(">=", 0.85),
    ("throughput", "200", UPSTREAM_PLACEMENT.name): Goal(">=", 0.95),
    ("throughput", "1000", IN_TREE.name): Goal(">=", 2.0),
    ("throughput", "1000", IN_TREE_ALL_NODES.name): Goal(">=", 2.0),
    ("throughput", "1000", UPSTREAM_PLACEMENT.name): Goal(">=", 0.95),
}


async def throughput(scale: Scale, workdir: Path) -> list[Row]:
    """Ours beside the in-tree plugin, a no-op extender, and ours without a look at what stays possible."""
    rows: list[Row] = []
    for nodes in scale.throughput_nodes:
        load = one_device_each(nodes, scale.pods)
        peers = (IN_TREE_ALL_NODES, IN_TREE, NO_OP, UPSTREAM_PLACEMENT)[: scale.peers]
        rows += await _beside("throughput", load, contenders.ours(), peers, scale, workdir)
    return rows


async def claims(scale: Scale, workdir: Path) -> list[Row]:
    """By what claims ask for: ours beside the in-tree plugin, and groups beside ours without groups."""
    nodes, ours = scale.throughput_nodes[0], contenders.ours()
    grouping = replace(
        ours, name="ours, groups", environment={"DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(GROUPS_POLICY)}
    )
    rows = []
    for load in claim_loads(nodes, scale.pods)[: scale.claim_loads]:
        rows += await _beside("claims", load, ours, [IN_TREE], scale, workdir)
    # No released in-tree plugin knows groups of a policy, so that its peer is the same cluster without them.
    peers = [replace(ours, name="ours without groups")]
    return [*rows, *await _beside("claims", grouped_load(nodes, scale.pods), grouping, peers, scale, workdir)]


async def workloads(scale: Scale, workdir: Path) -> list[Row]:
    """Of PodGroups that share claims, and of gangs: ours, its scheduler's gates off, beside all in-tree."""
    always = {"DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always"}
    ours = replace(contenders.ours(), environment=always)
    peer = replace(
        IN_TREE,
        name="in-tree plugin and gangs, gates on",
        seconds=60.0,
        scheduler_gates={"GenericWorkload": True, "DRAWorkloadResourceClaims": True},
    )
    once = replace(scale, runs=scale.group_runs, repeats=0)
    rows = []
    for load in (one_shared_claim(scale.group), claims_from_a_template(*scale.groups), gangs(*scale.gangs)):
        rows += await _beside("workloads", load, ours, [peer], once, workdir)
    return rows


async def offered_nodes(scale: Scale, workdir: Path) -> list[Row]:
    """At the smallest size by how many nodes a pod is offered, against the default of the setting."""
    load = one_device_each(scale.throughput_nodes[0], scale.pods)
    default = contenders.ours()
    tried = [contenders.ours(count) for count in _OFFERED[: scale.peers]]
    runs = await _interleaved([default, *tried], load, scale, workdir)
    return [
        compare(
            "offered-nodes",
            f"{load.name}, {each.name}",
            "pods/s",
            _pairs(runs[each.name], runs[default.name]),
            "the default setting",
            details=_processor(runs[each.name], "ours"),
        )
        for each in tried
    ]


async def _beside(
    area: str, load: Load, ours: Contender, peers: Sequence[Contender], scale: Scale, workdir: Path
) -> list[Row]:
    """A row for each peer."""
    runs = await _interleaved([ours, *peers], load, scale, workdir)
    mine = runs[ours.name]
    return [
        compare(
            area,
            load.name,
            "pods/s",
            _pairs(mine, runs[peer.name]),
            peer.name,
            goal=_GOALS.get((area, load.name.partition(" ")[0], peer.name)),
            details={**_processor(mine, "ours"), **_processor(runs[peer.name], "peer")},
        )
        for peer in peers
    ]


async def _interleaved(chosen: Sequence[Contender], load: Load, scale: Scale, workdir: Path) -> dict[str, list[Run]]:
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


def _pairs(ours: Sequence[Run], peer: Sequence[Run]) -> list[tuple[float, float]]:
    """Rates, round by round."""
    return [(mine.rate, theirs.rate) for mine, theirs in zip(ours, peer, strict=True)]


def _processor(runs: Sequence[Run], whose: str) -> dict[str, float]:
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
