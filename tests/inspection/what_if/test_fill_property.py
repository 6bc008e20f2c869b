"""On small random clusters, `--fill` counts what repeated filter and allocate find, and what it leaves fits no copy."""

import random
from collections import Counter
from functools import partial
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.inspection.what_if import trial
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.scheduling.ports.options import Options, PlacementPolicy

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    node,
    pod,
    request,
    resource_claim_template,
)
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

WORLDS: Final = 60
_MODELS: Final = ("a", "b")
_GROUPS: Final[tuple[tuple[str, ...], ...]] = ((), ("mig",), ("vgpu",), ("mig", "vgpu"))


@pytest.fixture(autouse=True)
def first_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies get the first devices that fit, as by hand."""
    monkeypatch.setattr(trial, "Options", partial(Options, placement=PlacementPolicy.UPSTREAM))


class Part(NamedTuple):
    """A device of a cluster: its model, and what it draws from the one counter set of its node (None: from none)."""

    model: str
    draws: int | None
    groups: tuple[str, ...]


class RandomNodes(NamedTuple):
    """Nodes with CPU, the total of their counter set and devices; what each copy wants."""

    cpus: list[int]
    totals: list[int]
    devices: list[list[Part]]
    wanted: int
    model: str
    cpu: int


def random_nodes(chance: random.Random) -> RandomNodes:
    nodes = range(chance.randint(1, 3))
    devices = [
        [
            Part(
                model=chance.choice(_MODELS),
                draws=chance.choice((None, 1, 2, 3)),
                groups=chance.choice(_GROUPS),
            )
            for _ in range(chance.randint(0, 5))
        ]
        for _ in nodes
    ]
    return RandomNodes(
        cpus=[chance.randint(1, 6) for _ in nodes],
        totals=[chance.randint(0, 6) for _ in nodes],
        devices=devices,
        wanted=chance.randint(1, 2),
        model=chance.choice((*_MODELS, "any")),
        cpu=chance.randint(1, 2),
    )


def made_of(cluster: RandomNodes) -> MadeCluster:
    made = MadeCluster()
    made.add(device_class("gpu"))
    for index, parts in enumerate(cluster.devices):
        name = f"n{index}"
        made.add(node(name, cpu=str(cluster.cpus[index])))
        made.partitions(
            name,
            [counter_set("set", units=str(cluster.totals[index]))],
            [
                device(
                    f"d{place}",
                    attributes={"model": part.model},
                    consumes=[]
                    if part.draws is None
                    else [consumption("set", groups=part.groups, units=str(part.draws))],
                )
                for place, part in enumerate(parts)
            ],
        )
    expressions = [] if cluster.model == "any" else [f'device.attributes["gpu.example.com"].model == "{cluster.model}"']
    wanted: dict[str, Any] = request("gpu", "gpu", *expressions, count=cluster.wanted, allocationMode="ExactCount")
    made.add(resource_claim_template("some", NAMESPACE, wanted))
    made.add(pod("train", NAMESPACE, templates={"gpu": "some"}, cpu=str(cluster.cpu)))
    # It is the pattern of the copies and takes part in nothing itself.
    made.objects["pods"][-1]["spec"]["schedulingGates"] = [{"name": "example.com/pattern"}]
    return made


def fits_together(parts: list[Part], total: int) -> bool:
    """Whether devices of one node may be allocated at the same time: amounts add up, and all groups share one, or none has any."""
    drawing = [each for each in parts if each.draws is not None]
    if sum(each.draws or 0 for each in drawing) > total:
        return False
    grouped = [set(each.groups) for each in drawing]
    if not any(grouped):
        return True
    return all(grouped) and bool(set.intersection(*grouped))


def filled_by_hand(cluster: RandomNodes, index: int) -> tuple[int, list[int]]:
    """How many copies one node takes, and their devices: each gets the first by place that fit beside those that are taken."""
    parts, taken, copies = cluster.devices[index], list[int](), 0
    meant = [place for place, part in enumerate(parts) if cluster.model in ("any", part.model)]
    while (copies + 1) * cluster.cpu <= cluster.cpus[index]:
        free = [place for place in meant if place not in taken]
        chosen = next(
            (
                each
                for each in combinations(free, cluster.wanted)
                if fits_together([parts[place] for place in (*taken, *each)], cluster.totals[index])
            ),
            None,
        )
        if chosen is None:
            break
        taken += chosen
        copies += 1
    return copies, taken


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_fill_counts_what_repeated_placing_by_hand_counts(seed: int) -> None:
    cluster = random_nodes(random.Random(seed))
    report = await what_if(made_of(cluster).cluster(), subject=(NAMESPACE, "train"))
    assert report.fill is not None
    by_node = {f"n{index}": filled_by_hand(cluster, index)[0] for index in range(len(cluster.cpus))}
    found = Counter({each.node: each.copies for each in report.fill.nodes})
    assert {name: found[name] for name in by_node} == by_node, cluster
    assert report.fill.copies == sum(by_node.values())


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_all_that_is_left_and_meant_is_stranded_and_nothing_else(seed: int) -> None:
    cluster = random_nodes(random.Random(seed))
    report = await what_if(made_of(cluster).cluster(), subject=(NAMESPACE, "train"))
    assert report.fill is not None
    devices = {each for place in report.fill.stranded for each in place.devices}
    counters = {(each.node, counter.left) for each in report.fill.stranded for counter in each.counters}

    whole, left = set[str](), set[tuple[str, int]]()
    for index, parts in enumerate(cluster.devices):
        _, taken = filled_by_hand(cluster, index)
        free = [
            place for place, part in enumerate(parts) if place not in taken and cluster.model in ("any", part.model)
        ]
        whole |= {f"gpu.example.com/n{index}/d{place}" for place in free if parts[place].draws is None}
        units = cluster.totals[index] - sum(parts[place].draws or 0 for place in taken)
        if units > 0 and any(parts[place].draws is not None for place in free):
            left.add((f"n{index}", units * NANO))
    assert whole <= devices
    assert counters == left, cluster
    for each in devices - whole:
        _, pool, name = each.split("/")
        assert cluster.devices[int(pool.removeprefix("n"))][int(name.removeprefix("d"))].draws is not None
