"""On small random clusters, `defrag` moves as few pods as the smallest of all sets that `what-if` plays well, or none does."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import Any, Final

import pytest
from dra_extender.inspection.defrag import goals
from dra_extender.inspection.defrag.defrag import FindGoal, defrag
from dra_extender.inspection.defrag.report import DefragReport, Finding
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.what_if.changes import Changes, PodKey
from dra_extender.inspection.what_if.report import OutcomeKind
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.model.metadata import split_key

from tests.controlplane import objects
from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, budget

WORLDS: Final = 24
MOST: Final = 4
SELECTED: Final = 'device.attributes["gpu.example.com"].size == {}'
LANDS: Final = OutcomeKind.LANDS


class World:
    """Nodes whose GPUs are split into parts of size 1 and 2 that draw on one counter set, with pods on some of them."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.made = made = MadeCluster()
        self.movable: list[PodKey] = []
        self.budget = chance.choice((None, None, None, 1, 2))
        made.add(device_class("gpu"))
        nodes = chance.randint(2, 3)
        for index in range(nodes):
            name, total = f"n{index}", chance.choice((2, 3, 4, 4))
            made.add(objects.node(name, cpu=str(chance.randint(3, 6))))
            parts = [(f"small-{number}", 1) for number in range(total)]
            parts += [(f"large-{number}", 2) for number in range(total // 2)]
            made.partitions(
                name,
                [counter_set("set", units=str(total))],
                [
                    device(part, attributes={"size": size}, consumes=[consumption("set", units=str(size))])
                    for part, size in (*parts, ("whole", total))
                ],
            )
            chance.shuffle(parts)
            left = chance.randint(0, total) if chance.random() < 0.3 else total - 1
            for part, size in parts:
                if size <= left and len(self.made.objects["pods"]) < 2 * (index + 1):
                    left -= size
                    self._add_running(f"p{index}-{part}", name, part, size)
        if self.budget is not None:
            made.add(budget(self.budget, {"matchLabels": {"guarded": "yes"}}))
        wanted = chance.choice((2, 2, 3, 4))
        made.pod(
            "train",
            request("gpu", "gpu", SELECTED.format(wanted)),
            cpu=str(chance.randint(1, 2)),
            priority=chance.choice((0, 5, 5)),
        )

    def _add_running(self, name: str, node: str, part: str, size: int) -> None:
        self.made.running(name, node, part, request("gpu", "gpu", SELECTED.format(size)))
        pod = self.made.objects["pods"][-1]
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        pod["spec"]["priority"] = self.chance.choice((0, 0, 3))
        pod["metadata"]["labels"] = {"guarded": self.chance.choice(("yes", "no"))}
        kind = self.chance.choice((*["ReplicaSet"] * 6, "DaemonSet"))
        pod["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "owner", "controller": True}
        ]
        if kind != "DaemonSet":
            self.movable.append((NAMESPACE, name))

    def sets(self, most_priority: int, own: list[PodKey]) -> Iterator[tuple[PodKey, ...]]:
        """The sets of pods that may be evicted together, and with `own`, the small ones first."""
        pods: dict[PodKey, dict[str, Any]] = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each for each in self.made.objects["pods"]
        }
        free = [key for key in self.movable if key not in own and pods[key]["spec"].get("priority", 0) <= most_priority]
        for size in range(MOST + 1):
            for chosen in combinations(free, size):
                guarded = sum(pods[key]["metadata"]["labels"]["guarded"] == "yes" for key in (*chosen, *own))
                if self.budget is None or guarded <= self.budget:
                    yield chosen


async def plays_well(cluster: ClusterObjects, changes: Changes, landing: set[str]) -> bool:
    played = {row.pod: row for row in (await what_if(cluster, changes)).pods}
    landing = landing | {f"{NAMESPACE}/{name}" for _, name in changes.evicted}
    return all(played[name].after.kind is LANDS for name in landing) and all(
        row.after.kind is LANDS for row in played.values() if row.before.kind is LANDS
    )


async def fewest_by_hand(world: World, changes: Changes, landing: set[str], most_priority: int) -> int | None:
    own = [key for key in world.movable if key[1].startswith("p0-")] if changes.drained else []
    landing = landing | {"/".join(key) for key in own}
    for chosen in world.sets(most_priority, own):
        if await plays_well(world.made.cluster(), changes._replace(evicted=chosen), landing):
            return len(chosen) + len(own)
    return None


async def checked(world: World, find_goal: FindGoal, **bounds: Any) -> tuple[DefragReport, int | None]:
    """The answer, whose plan is played with the arguments that it names, and how many moves it has."""
    report = await defrag(world.made.cluster(), find_goal, most_moves=MOST, **bounds)
    assert report.fewest is (report.finding is not Finding.NONE)
    return report, None if report.finding is Finding.NONE else len(report.moves)


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_pod_fits_after_the_fewest_moves(seed: int) -> None:
    world = World(seed)
    key = (NAMESPACE, "train")
    _, moves = await checked(world, partial(goals.fit_pod, key=key))
    priority = world.made.objects["pods"][-1]["spec"]["priority"]
    assert moves == await fewest_by_hand(world, Changes(), {"/".join(key)}, priority)


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_device_is_free_after_the_fewest_moves(seed: int) -> None:
    world = World(seed)
    del world.made.objects["pods"][-1]
    asked = f"gpu.example.com/n{seed % 2}/{'whole' if seed % 3 else 'large-0'}"
    report, moves = await checked(world, partial(goals.free_device, device=asked))
    changes = Changes(reserved=[asked])
    assert moves == await fewest_by_hand(world, changes, {"what-if/reserved-1"}, 100)
    if report.lands is not None:
        assert report.lands.devices == (asked,)


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_node_is_empty_after_the_fewest_moves(seed: int) -> None:
    world = World(seed)
    report, moves = await checked(world, partial(goals.empty_node, node="n0"))
    own = [key for key in world.movable if key[1].startswith("p0-")]
    assert moves == await fewest_by_hand(world, Changes(drained=["n0"]), set(), 100)
    if moves is not None:
        assert {"/".join(key) for key in own} <= {move.pod for move in report.moves}


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_pods_of_a_plan_land_one_after_the_other_beside_all_that_stay(seed: int) -> None:
    """By hand: the parts of each GPU add up to no more than it has, CPU too, and no pod is where it was told not to be."""
    world = World(seed)
    report = await defrag(world.made.cluster(), partial(goals.fit_pod, key=(NAMESPACE, "train")), most_moves=MOST)
    if report.lands is None:
        return
    moved = {split_key(move.pod)[1]: move.after for move in report.moves}
    places = {}
    for pod in world.made.objects["pods"]:
        name = pod["metadata"]["name"]
        if name == "train":
            places[name] = (report.lands.node, report.lands.devices[0])
        elif name in moved:
            assert moved[name].kind is LANDS
            places[name] = (moved[name].node, moved[name].devices[0])
        else:
            node = pod["spec"]["nodeName"]
            places[name] = (node, f"gpu.example.com/{node}/{name.partition('-')[2]}")
    assert len({device_name for _, device_name in places.values()}) == len(places)
    for node in {node for node, _ in places.values()}:
        slices = {each["metadata"]["name"]: each["spec"] for each in world.made.objects["resourceslices"]}
        total = int(slices[f"sets-{node}"]["sharedCounters"][0]["counters"]["units"]["value"])
        sizes = {"small": 1, "large": 2, "whole": total}
        drawn = [sizes[name.rpartition("/")[2].partition("-")[0]] for at, name in places.values() if at == node]
        assert sum(drawn) <= total
