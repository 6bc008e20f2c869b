"""How much of a cluster pods can use before the rest is too scattered: the product beside other rules, and a published table."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final, TypeVar

from tests.bench import contenders
from tests.bench.fits import mig, rules
from tests.bench.fits.filling import Filled, fill
from tests.bench.fits.ours import Preserve
from tests.bench.fits.scheduled import scheduled
from tests.bench.fits.trace import WORKLOADS, Kind, Room, Workload, capacity_of, read_nodes, read_workload
from tests.bench.rows import Goal, Row, compare
from tests.bench.scale import Scale

AREA: Final = "fits"
OURS: Final = "ours"
IN_TREE: Final = "in-tree's rule"
BEST_FIT: Final = "best fit"
FGD: Final = "FGD"
PUBLISHED: Final = "FGD as published"
UNIT: Final = "% of all GPUs"
RULES: Final[Mapping[str, Callable[[Sequence[Room], Workload], rules.Rule]]] = {
    OURS: Preserve,
    "random": rules.at_random,
    IN_TREE: rules.in_tree,
    BEST_FIT: rules.best_fit,
    FGD: rules.FragmentationGradient,
    "FGD with a best-fit term": rules.fgd_with_best_fit,
}
_PUBLISHED: Final = {"default": Filled(95.23, 95.39), "multigpu50": Filled(97.09, 97.18)}
_ABOVE: Final = Goal(">=", 1.0)
_GOALS: Final = {BEST_FIT: _ABOVE, FGD: _ABOVE, PUBLISHED: _ABOVE}
MIG_RULES: Final[Mapping[str, Callable[[int], mig.MigRule]]] = {
    OURS: mig.PreservedMig,
    IN_TREE: lambda _: mig.in_tree(),
    "first fit": lambda _: mig.first_fit(),
    BEST_FIT: lambda _: mig.best_fit(),
}
_MIG_GOALS: Final = {"first fit": Goal("<=", 0.2)}
_WITHIN_A_POINT: Final = Goal(">=", 0.99)
_WHEN: Final = ((100, "at_capacity"), (130, "at_end"))
T = TypeVar("T")


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Allocated share by rule on the published workloads, partitions that come and end, and the same through kube-scheduler."""
    seeds = range(1, scale.fits_seeds + 1)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        shares = {
            (workload, rule): [pool.submit(filled_by, rule, workload, seed, scale.fits_step) for seed in seeds]
            for workload in WORKLOADS
            for rule in RULES
        }
        churned = {
            rule: [pool.submit(churned_by, rule, seed, scale.mig_gpus, scale.mig_events) for seed in seeds]
            for rule in MIG_RULES
        }
        rows = [
            row
            for workload in WORKLOADS
            for row in await _filled_rows(workload, shares, published=scale.fits_step == 1)
        ]
        rows += await _mig_rows(churned, scale)
    return rows + await _scheduled_rows(scale, workdir)


def filled_by(rule: str, workload: str, seed: int, step: int = 1) -> Filled:
    """Fill each `step`-th node of the trace by this rule."""
    return filled(rule, read_workload(workload), seed, step)


def filled(rule: str, workload: Workload, seed: int, step: int = 1) -> Filled:
    random, nodes = Random(seed), read_nodes()
    random.shuffle(nodes)
    nodes = nodes[::step]
    arrivals = workload.arrivals(capacity_of(nodes), random)
    return fill(nodes, arrivals, RULES[rule](nodes, workload), Random(seed))


def churned_by(rule: str, seed: int, gpus: int, events: int) -> float:
    """Return how many partitions were refused that would fit if all were placed anew."""
    return mig.churn(MIG_RULES[rule](gpus), gpus, events, Random(seed)).avoidable.total()


async def _results(futures: Sequence[Future[T]]) -> list[T]:
    return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))


async def _filled_rows(
    workload: str, filled: Mapping[tuple[str, str], Sequence[Future[Filled]]], *, published: bool
) -> list[Row]:
    ours = await _results(filled[workload, OURS])
    peers = {rule: await _results(filled[workload, rule]) for rule in RULES if rule != OURS}
    if published:
        peers[PUBLISHED] = [_PUBLISHED[workload]] * len(ours)
    return [
        compare(
            AREA,
            f"{workload}, at {asked} % asked",
            UNIT,
            [(getattr(mine, when), getattr(its, when)) for mine, its in zip(ours, theirs, strict=True)],
            peer,
            goal=_GOALS.get(peer),
            average=mean,
        )
        for asked, when in _WHEN
        for peer, theirs in peers.items()
    ]


async def _mig_rows(churned: Mapping[str, Sequence[Future[float]]], scale: Scale) -> list[Row]:
    refused = {rule: mean(await _results(futures)) for rule, futures in churned.items()}
    return [
        compare(
            AREA,
            f"MIG on {scale.mig_gpus} GPUs, {scale.mig_events} events",
            "avoidable refusals",
            [(refused[OURS], refused[peer])],
            peer,
            goal=_MIG_GOALS.get(peer),
            details={"seeds": scale.fits_seeds},
        )
        for peer in churned
        if peer != OURS
    ]


async def _scheduled_rows(scale: Scale, workdir: Path) -> list[Row]:
    """The product with its shipped configuration beside the in-tree plugin, and beside its figure in one process."""
    return [row for name in WORKLOADS for row in await _scheduled_rows_of(name, scale, workdir)]


async def _scheduled_rows_of(name: str, scale: Scale, workdir: Path) -> list[Row]:
    nodes, arrivals = _cut(name, scale.scheduled_nodes)
    ours = await scheduled(contenders.ours(), nodes, arrivals, scale, workdir)
    in_tree = await scheduled(contenders.IN_TREE, nodes, arrivals, scale, workdir)
    in_process = fill(nodes, arrivals, Preserve(nodes, read_workload(name)), Random(1))
    return [
        compare(
            AREA,
            f"{name} through kube-scheduler, {len(nodes)} nodes, at {asked} % asked",
            UNIT,
            [(getattr(ours, when), getattr(theirs, when))],
            peer,
            goal=goal,
        )
        for asked, when in _WHEN
        for peer, theirs, goal in (
            (contenders.IN_TREE.name, in_tree, None),
            ("ours in one process", in_process, _WITHIN_A_POINT),
        )
    ]


def _cut(workload: str, count: int) -> tuple[Sequence[Room], Sequence[Kind]]:
    """Return so many nodes of the trace, and the pods that arrive for them."""
    random, nodes = Random(1), read_nodes()
    random.shuffle(nodes)
    nodes = nodes[:count]
    return nodes, read_workload(workload).arrivals(capacity_of(nodes), random)
