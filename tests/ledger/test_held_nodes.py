"""The nodes under holds are kept incrementally, and are those that the pools of all holds reach."""

from typing import Any

from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import encode, raw_slice

NODES = ("n0", "n1", "n2")
POOLS = ("a", "b", "c")
EVERYWHERE = "everywhere"

operations = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 3), st.lists(st.sampled_from(POOLS), min_size=1, max_size=3)),
        st.tuples(st.just("settle"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("slice"), st.sampled_from(POOLS), st.sampled_from((*NODES, EVERYWHERE))),
        st.tuples(st.just("gone"), st.sampled_from(POOLS), st.sampled_from((*NODES, EVERYWHERE))),
    ),
    max_size=20,
)


def held(pool: str, device: str) -> ClaimPlacement:
    holding = DeviceHolding(driver="gpu.example.com", pool=pool, device=device)
    return ClaimPlacement(allocation=AllocationResult(), holdings=(holding,))


def apply(ledger: Ledger, version: int, operation: tuple[Any, ...]) -> None:
    match operation:
        case ("place", claim, pools):
            placements = {f"n{index}": held(pool, f"{claim}-{index}") for index, pool in enumerate(pools)}
            ledger.hold_book.place(Hold(f"c{claim}", placements, dict.fromkeys(placements, 0), 100.0, {f"p{claim}"}))
        case ("settle", claim, node):
            ledger.hold_book.narrow_to(f"c{claim}", f"n{node}")
        case ("end", claim):
            ledger.hold_book.end(f"c{claim}")
        case ("slice", pool, node):
            reached = None if node == EVERYWHERE else node
            raw = raw_slice(f"{pool}-{node}", version, pool=pool, node=reached, devices=1)
            sinks_of(ledger)["resourceslices"].changed(encode(raw))
        case ("gone", pool, node):
            sinks_of(ledger)["resourceslices"].deleted("", f"{pool}-{node}", "")


@given(operations)
@examples(80)
def test_they_are_what_a_look_at_all_holds_says(sequence: list[tuple[Any, ...]]) -> None:
    ledger = Ledger()
    for version, operation in enumerate(sequence, 1):
        apply(ledger, version, operation)
        reached = [ledger.slices.nodes_of(pool) for pool in ledger.holds.held_usage.pools]
        known = ledger.nodes_under_holds()
        assert (known is None) == (None in reached)
        if known is not None:
            assert {name for name in NODES if name in known} == set().union(*(each for each in reached if each))


@given(operations)
@examples(50)
def test_the_journal_names_every_node_whose_version_moved(sequence: list[tuple[Any, ...]]) -> None:
    ledger = Ledger()
    versions = {name: ledger.hold_versions.version(name) for name in NODES}
    place = ledger.hold_versions.since(-1)[1]
    for version, operation in enumerate(sequence, 1):
        apply(ledger, version, operation)
        listed, place = ledger.hold_versions.since(place)
        now = {name: ledger.hold_versions.version(name) for name in NODES}
        moved = {name for name in NODES if now[name] != versions[name]}
        assert listed is None or moved == set(listed)
        versions = now


def test_a_hold_ends_when_its_time_is_over_unless_it_is_nominated() -> None:
    ledger = Ledger()
    for claim, expires in (("c0", 10.0), ("c1", 20.0), ("c2", 15.0)):
        placements = {"n0": held("a", claim), "n1": held("b", claim)}
        ledger.hold_book.place(Hold(claim, placements, dict.fromkeys(placements, 0), expires, {f"p-{claim}"}))
    ledger.hold_book.narrow_to("c2", "n0", nominated=True)

    assert [ledger.hold_book.expire(now) for now in (9.0, 10.0, 15.0, 19.9)] == [0, 1, 0, 0]
    ledger.hold_book.narrow_to("c2", "n0")
    assert ledger.hold_book.expire(19.9) == 1
    assert ledger.hold_book.expire(20.0) == 1
    assert len(ledger.holds) == 0
