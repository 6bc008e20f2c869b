"""Holds that are promised are entered later, but before anybody can see that they are not there."""

from collections.abc import Callable

import pytest
from dra_extender.ledger.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding

from tests.support.ledger.ledger_events import encode, raw_slice

DRIVER = "gpu.example.com"


def promised() -> Ledger:
    ledger = Ledger()
    sinks_of(ledger)["resourceslices"].changed(encode(raw_slice("n1", 1, pool="n1", node="n1", devices=1)))
    ledger.defer_hold(lambda: ledger.holds.place(hold("c1")))
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
        lambda ledger: ledger.held.since(0)[0] == ["n1"],
        lambda ledger: list(ledger.nodes_under_holds()) == ["n1"],
    ],
)
def test_whoever_looks_first_finds_what_was_promised(look: Callable[[Ledger], bool]) -> None:
    assert look(promised())


def test_a_promise_is_kept_once() -> None:
    ledger, kept = Ledger(), list[str]()
    ledger.defer_hold(lambda: kept.append("first"))
    ledger.defer_hold(lambda: kept.append("second"))
    assert kept == []
    assert ledger.nodes_under_holds() == set()
    assert not ledger.holds.multi_node
    assert kept == ["first", "second"]


def test_what_ends_a_hold_ends_one_that_is_only_promised() -> None:
    ledger = promised()
    ledger.holds.release_pod("p1")
    assert len(ledger.holds) == 0
    assert ledger.holds.ended == 1
