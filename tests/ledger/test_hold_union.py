"""A hold keeps enough for each node it may settle on, and of devices in shares no more than that."""

from collections import Counter

from dra_extender.ledger.hold_book import Hold, HoldBook, kept_by
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.device import CounterConsumption
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledger.ledger_events import holdings_by_device

Device = tuple[str, str, str]
SNAPSHOTS = (None, (), (CounterConsumption(counter_set="s", compatibility_groups=("a",)),))

amounts = st.dictionaries(st.sampled_from("mc"), st.integers(0, 9)).map(lambda found: tuple(found.items()))
shares = st.builds(
    DeviceHolding,
    driver=st.just("d"),
    pool=st.sampled_from(["fabric", "n1", "n2"]),
    device=st.sampled_from(["x", "y"]),
    share_id=st.uuids().map(str),
    consumption=st.sampled_from(SNAPSHOTS),
    consumed_capacity=amounts,
)
wholes = st.builds(
    DeviceHolding, driver=st.just("d"), pool=st.sampled_from(["fabric", "n1"]), device=st.sampled_from(["v", "w"])
)
placements = st.lists(
    st.lists(shares | wholes, max_size=4).map(
        lambda found: ClaimPlacement(allocation=AllocationResult(), holdings=tuple(found))
    ),
    min_size=1,
    max_size=4,
)


def device(holding: DeviceHolding) -> Device:
    return (holding.driver, holding.pool, holding.device)


def shared(holdings: tuple[DeviceHolding, ...]) -> dict[tuple[Device, str], int]:
    found: dict[tuple[Device, str], int] = {}
    for holding in holdings:
        for name, amount in holding.consumed_capacity:
            key = (device(holding), name)
            found[key] = found.get(key, 0) + amount
    return found


@given(placements)
def test_what_is_kept_is_the_greatest_share_of_any_placement(found: list[ClaimPlacement]) -> None:
    kept = tuple(kept_by(found))
    greatest: dict[tuple[Device, str], int] = {}
    for placement in found:
        for key, amount in shared(placement.holdings).items():
            greatest[key] = max(amount, greatest.get(key, 0))
    assert {key: amount for key, amount in shared(kept).items() if amount} == {
        key: amount for key, amount in greatest.items() if amount
    }


@given(placements)
def test_every_device_and_every_snapshot_of_it_is_kept(found: list[ClaimPlacement]) -> None:
    everything = {(device(each), each.consumption) for placement in found for each in placement.holdings}
    assert {(device(each), each.consumption) for each in kept_by(found)} == everything
    whole = {device(each) for placement in found for each in placement.holdings if each.share_id is None}
    assert {device(each) for each in kept_by(found) if each.share_id is None} == whole


@given(placements, st.integers(0, 3), st.booleans())
def test_book_ends_up_empty_and_keeps_one_placement_once_settled(
    found: list[ClaimPlacement], chosen: int, twice: bool
) -> None:
    book = HoldBook(lambda pools: None)
    for uid in ("a", "b"):
        nodes = {f"n{index}": placement for index, placement in enumerate(found)}
        book.place(Hold(claim_uid=uid, placements=nodes, versions={}, expires=1.0, pods={"p"}))
    node = f"n{chosen % len(found)}"
    for _ in range(2 if twice else 1):
        book.narrow_to("a", node)
    book.end("b")
    assert holdings_by_device(book.held_usage) == holdings_by_device(book.held_usage_without(frozenset()))
    assert holdings_by_device(book.held_usage_without(frozenset({"a"}))) == {}
    kept = Counter(
        each
        for pool in holdings_by_device(book.held_usage).values()
        for holdings in pool.values()
        for each in holdings.elements()
    )
    assert kept == Counter(found[chosen % len(found)].holdings)
    book.end("a")
    assert not holdings_by_device(book.held_usage)


def test_pools_that_stay_held_do_not_move_when_a_hold_settles() -> None:
    moved: list[str] = []
    book = HoldBook(lambda pools: moved.extend(pool for _, pool in sorted(pools)))
    nodes = {
        name: ClaimPlacement(
            allocation=AllocationResult(), holdings=(DeviceHolding(driver="d", pool=name, device="x"),)
        )
        for name in ("n1", "n2")
    }
    book.place(Hold(claim_uid="a", placements=nodes, versions={}, expires=1.0, pods={"p"}))
    moved.clear()
    book.narrow_to("a", "n1")
    assert moved == ["n2"]
