"""The model behind the area `fits`: the trace, the published measure, and what an optimal placement would admit."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.fits import mig
from tests.bench.fits.rules import FragmentationGradient
from tests.bench.fits.trace import WHOLE, WORKLOADS, Kind, Room, Workload, capacity_of, read_nodes, read_workload
from tests.support.allocator.mig import PROFILES
from tests.support.examples import examples

SHARE, PAIR = Kind(4_000, 1_000, 1, 500), Kind(4_000, 1_000, 2, WHOLE)
BOTH = Workload("both", {SHARE: 1, PAIR: 1})


def test_the_trace_is_the_published_one() -> None:
    nodes = read_nodes()
    assert (len(nodes), capacity_of(nodes)) == (1_213, 6_212 * WHOLE)
    assert [sum(read_workload(name).kinds.values()) for name in WORKLOADS] == [8_152, 9_061]
    pods = read_workload("multigpu50").kinds
    several = sum(kind.size * count for kind, count in pods.items() if kind.gpus > 1)
    assert several / sum(kind.size * count for kind, count in pods.items()) == pytest.approx(0.5, abs=0.01)


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
