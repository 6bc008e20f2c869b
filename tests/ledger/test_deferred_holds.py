"""Deferred holds are placed later, but before anything reads the holds."""

from collections.abc import Callable

import pytest
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding

from tests.support.ledger.ledger_events import encode, raw_slice

DRIVER = "gpu.example.com"


def ledger_with_deferred_hold() -> Ledger:
    ledger = Ledger()
    sinks_of(ledger)["resourceslices"].changed(encode(raw_slice("n1", 1, pool="n1", node="n1", devices=1)))
    ledger.defer_hold(lambda: ledger.hold_book.place(hold("c1")))
    return ledger


def hold(claim: str) -> Hold:
    holding = DeviceHolding(driver=DRIVER, pool="n1", device="d0")
    placement = ClaimPlacement(allocation=AllocationResult(), holdings=(holding,))
    return Hold(claim_uid=claim, placements={"n1": placement}, versions={"n1": 0}, expires=1.0, pods={"p1"})


@pytest.mark.parametrize(
    "look",
    [
        lambda ledger: len(ledger.holds),
        lambda ledger: ledger.holds.get("c1") is not None,
        lambda ledger: bool(ledger.usage().pool((DRIVER, "n1"))),
        lambda ledger: bool(ledger.usage_without(frozenset()).pool((DRIVER, "n1"))),
        lambda ledger: ledger.hold_versions.since(0)[0] == ["n1"],
        lambda ledger: list(ledger.nodes_under_holds()) == ["n1"],
    ],
)
def test_the_first_reader_finds_a_deferred_hold(look: Callable[[Ledger], bool]) -> None:
    assert look(ledger_with_deferred_hold())


def test_a_deferred_hold_is_placed_once_and_in_order() -> None:
    ledger, placed = Ledger(), list[str]()
    ledger.defer_hold(lambda: placed.append("first"))
    ledger.defer_hold(lambda: placed.append("second"))
    assert placed == []
    assert ledger.nodes_under_holds() == set()
    assert not ledger.holds.multi_node
    assert placed == ["first", "second"]


def test_what_ends_a_hold_ends_a_deferred_one() -> None:
    ledger = ledger_with_deferred_hold()
    ledger.hold_book.release_pod("p1")
    assert len(ledger.holds) == 0
    assert ledger.holds.releases == 1
