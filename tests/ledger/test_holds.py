"""How many holds there are, how long they last, and what is in use without some of them."""

import pytest
from dra_extender.ledger import hold_book
from dra_extender.ledger.hold_book import Hold, HoldBook
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledger.ledger_events import encode, holdings_by_device, raw_claim


def placement(device: str) -> ClaimPlacement:
    holding = DeviceHolding(driver="d", pool="p", device=device)
    return ClaimPlacement(allocation=AllocationResult(), holdings=(holding,))


def hold(claim: str, namespace: str = "a", nodes: int = 2, **fields: float) -> Hold:
    placements = {f"n{index}": placement(f"{claim}-{index}") for index in range(nodes)}
    return Hold(claim, placements, {}, fields.pop("expires", 1.0), {claim}, namespace=namespace, **fields)  # type: ignore[arg-type]


def test_namespace_with_too_many_holds_loses_its_oldest_and_no_other_namespace_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hold_book, "MOST_OF_A_NAMESPACE", 3)
    book = HoldBook(lambda _: None)
    book.place(hold("other", "b"))
    for index in range(5):
        book.place(hold(f"c{index}"))
    assert sorted(each.claim_uid for each in book.all()) == ["c2", "c3", "c4", "other"]


def test_end_says_whether_the_hold_was_used() -> None:
    ended = list[tuple[str, int, bool]]()
    book = HoldBook(lambda _: None, lambda hold, kept, allocated: ended.append((hold.claim_uid, len(kept), allocated)))
    book.place(hold("used"))
    book.place(hold("unused", nodes=3))
    book.end("used", allocated=True)
    book.release_pod("unused")
    assert ended == [("used", 2, True), ("unused", 3, False)]


@given(
    st.lists(
        st.tuples(st.sampled_from(("place", "end", "narrow", "rename")), st.sampled_from("abcd"), st.integers(1, 3)),
        max_size=20,
    ),
    st.frozensets(st.sampled_from("abcd")),
)
def test_held_usage_without_some_holds_is_what_the_others_keep(
    sequence: list[tuple[str, str, int]], left_out: frozenset[str]
) -> None:
    book = HoldBook(lambda _: None)
    for what, claim, nodes in sequence:
        if what == "place":
            book.place(hold(claim, nodes=nodes))
        elif what == "end":
            book.end(claim)
        elif what == "narrow":
            book.narrow_to(claim, "n0")
        elif book.get(claim) is not None:
            book.rekey(claim, "d")
        expected = UsageTable()
        for each in book.all():
            if each.claim_uid not in left_out:
                expected.add([holding for found in each.placements.values() for holding in found.holdings])
        assert holdings_by_device(book.held_usage_without(left_out)) == holdings_by_device(expected)


def test_holds_on_several_nodes_are_counted() -> None:
    book = HoldBook(lambda _: None)
    for claim, nodes in (("one", 1), ("two", 2), ("three", 3)):
        book.place(hold(claim, nodes=nodes))
    assert book.multi_node == 2
    book.narrow_to("two", "n1")
    assert book.multi_node == 1


def test_a_node_is_named_as_long_as_a_share_is_bound_to_it() -> None:
    shares = [DeviceHolding(driver="d", pool="p", device="g", share_id=share, node="n1") for share in "ab"]
    usage = UsageTable()
    usage.add(shares)
    usage.remove(shares[:1])
    assert usage.names_node("n1")
    usage.remove(shares[1:])
    assert not usage.names_node("n1")


def test_late_news_that_a_claim_is_gone_end_no_hold_of_the_one_made_anew_under_its_name() -> None:
    ledger = Ledger()
    sinks_of(ledger)["resourceclaims"].changed(encode(raw_claim("c", 1, uid="old")))
    ledger.assume_written(encode(raw_claim("c", 3, uid="new")))
    ledger.hold_book.place(hold("new"))
    sinks_of(ledger)["resourceclaims"].deleted("default", "c", "old")
    assert ledger.holds.get("new") is not None
    sinks_of(ledger)["resourceclaims"].deleted("default", "c", "new")
    assert ledger.holds.get("new") is None


def test_hold_of_a_claim_ends_when_another_one_takes_its_name() -> None:
    ledger = Ledger()
    sinks_of(ledger)["resourceclaims"].changed(encode(raw_claim("c", 1, uid="old")))
    ledger.hold_book.place(hold("old"))
    ledger.assume_written(encode(raw_claim("c", 3, uid="new")))
    sinks_of(ledger)["resourceclaims"].deleted("default", "c", "old")
    assert ledger.holds.get("old") is None
