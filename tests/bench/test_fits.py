"""The model behind the area `fits`: the trace, the published measure, and what an optimal placement would admit."""

import re
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.fits import chart, mig
from tests.bench.fits.filling import Cluster, fill, shares
from tests.bench.fits.ours import Preserve
from tests.bench.fits.rules import FragmentationGradient
from tests.bench.fits.trace import WHOLE, WORKLOADS, Kind, Room, Workload, capacity_of, read_nodes, read_workload
from tests.bench.fits_area import MIG_RULES, RULES
from tests.support.allocator.mig import PROFILES
from tests.support.examples import examples

SHARE, PAIR = Kind(4_000, 1_000, 1, 500), Kind(4_000, 1_000, 2, WHOLE)
BOTH = Workload("both", {SHARE: 1, PAIR: 1})


def small() -> tuple[list[Room], list[Kind]]:
    """A fortieth of the trace, and what arrives for it."""
    random, nodes = Random(3), read_nodes()
    random.shuffle(nodes)
    nodes = nodes[:30]
    return nodes, list(read_workload("default").arrivals(capacity_of(nodes), random))


def test_the_trace_is_the_published_one() -> None:
    nodes = read_nodes()
    assert (len(nodes), capacity_of(nodes)) == (1_213, 6_212 * WHOLE)
    assert [sum(read_workload(name).kinds.values()) for name in WORKLOADS] == [8_152, 9_061]
    pods = read_workload("multigpu50").kinds
    several = sum(kind.size * count for kind, count in pods.items() if kind.gpus > 1)
    assert several / sum(kind.size * count for kind, count in pods.items()) == pytest.approx(0.5, abs=0.01)


def test_pods_arrive_until_130_per_cent_are_asked_for() -> None:
    workload, nodes = read_workload("default"), read_nodes()
    arrivals = workload.arrivals(capacity_of(nodes), Random(1))
    asked = sum(kind.size for kind in arrivals)
    assert 0 <= asked - 1.3 * capacity_of(nodes) < 8 * WHOLE
    assert all(count >= workload.kinds[kind] for kind, count in Counter(arrivals).items())
    assert arrivals == workload.arrivals(capacity_of(nodes), Random(1))


@pytest.mark.parametrize(
    ("room", "useless"),
    [
        pytest.param(
            Room("", 8_000, 9_000, (1_000, 300)), (300 + 1_300) / 2, id="a share fits beside 300, two GPUs do not"
        ),
        pytest.param(Room("", 8_000, 9_000, (1_000, 1_000)), 0.0, id="both fit"),
        pytest.param(Room("", 3_000, 9_000, (1_000, 1_000)), 2_000.0, id="no CPU for anybody"),
        pytest.param(Room("", 8_000, 9_000, (400, 0)), 400.0, id="too little for a share"),
    ],
)
def test_fragmentation_is_what_the_workload_cannot_use(room: Room, useless: float) -> None:
    assert FragmentationGradient([room], BOTH).fragmentation(room) == pytest.approx(useless)


def test_fragmentation_decides_where_a_share_goes() -> None:
    """Beside another share on a GPU that is broken already, and two GPUs stay whole for the pair."""
    nodes = [Room("", 64_000, 64_000, (1_000, 1_000)), Room("", 64_000, 64_000, (1_000, 500))]
    cluster = Cluster(nodes, FragmentationGradient(nodes, BOTH), Random(0))
    assert cluster.place(SHARE) == 1
    assert cluster.rooms[1].gpus == (1_000, 0)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_what_is_free_and_refuses_only_what_fits_nowhere(rule: str) -> None:
    nodes, arrivals = small()
    workload = read_workload("default")
    cluster = Cluster(nodes, RULES[rule](nodes, workload), Random(1))
    for kind in arrivals:
        fits = any(room.has_room(kind) for room in cluster.rooms)
        assert (cluster.place(kind) is not None) == fits
    assert all(min(room.cpu, room.memory, *room.gpus) >= 0 for room in cluster.rooms)


def test_the_product_decides_the_same_in_each_run() -> None:
    nodes, arrivals = small()
    first, second = (fill(nodes, arrivals, Preserve(nodes, BOTH), Random(seed)) for seed in (1, 2))
    assert first == second


def test_shares_count_what_was_asked_for() -> None:
    nodes = [Room("", 64_000, 64_000, (1_000, 1_000))]
    assert shares(nodes, [(SHARE, True), (SHARE, True), (PAIR, False), (SHARE, True)]) == (50.0, 75.0)


def packs(wanted: list[str], used: list[int]) -> bool:
    """Whether these partitions fit, by trying all placements."""
    if not wanted:
        return True
    for placement in mig.free(used, wanted[0]):
        after = list(used)
        after[placement.gpu] |= placement.mask
        if packs(wanted[1:], after):
            return True
    return False


@examples(200)
@given(st.lists(st.sampled_from(list(PROFILES)), max_size=8), st.integers(1, 2))
def test_an_optimal_placement_is_the_one_that_trying_finds(wanted: list[str], gpus: int) -> None:
    largest_first = sorted(wanted, key=lambda profile: -PROFILES[profile][1])
    assert mig.fits_anew(Counter(wanted), gpus) == packs(largest_first, [0] * gpus)


class Watched:
    """A rule whose placements have to be free."""

    def __init__(self, rule: mig.MigRule) -> None:
        self._rule = rule
        self.end = rule.end

    def place(self, used: Sequence[int], profile: str) -> mig.Placement | None:
        placement = self._rule.place(used, profile)
        assert placement in {*mig.free(used, profile)} or (placement, [*mig.free(used, profile)]) == (None, [])
        return placement


@pytest.mark.parametrize("rule", MIG_RULES)
def test_partitions_get_what_is_free_and_are_refused_only_where_nothing_is(rule: str) -> None:
    found = mig.churn(Watched(MIG_RULES[rule](16)), 16, 150, Random(1))
    assert found.asked > 50
    assert found.avoidable.total() <= found.refused


def test_the_chart_shows_every_rule() -> None:
    drawn = chart.bars("unused", {"default": chart.unused([("ours", 95.5), ("a < b", 70.0)])}, "ours")
    assert re.findall(">([^<]+)</text>", drawn) == ["unused", "default", "a &lt; b", "30.0 %", "ours", "4.5 %"]
