"""What stays possible decides: the examples of the documentation, and what holds for every preference of devices."""

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from dra_extender.allocator.fragmentation import units
from dra_extender.allocator.fragmentation.kinds import MOST_SHAPES, Kind, NodeAmounts, heaviest, kind_of
from dra_extender.allocator.fragmentation.loss import Fragmentation
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    Held,
    Json,
    allocate,
    amount_of,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    every,
    exactly,
    held,
    picks,
    pools_of,
    share,
    shareable,
    slice_of,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.allocator.mig import PROFILES, gpus, profile
from tests.support.examples import examples

WHOLE, HALF = NodeAmounts(8_000, 64 * 2**30), NodeAmounts(4_000, 32 * 2**30)


def kind(*requests: Json, amounts: NodeAmounts = HALF) -> Kind:
    found = kind_of(demand_of(claim_of(*requests)), amounts)
    assert found is not None
    return found


def expecting(**weights: tuple[Kind, float]) -> Fragmentation:
    return Fragmentation(dict(weights.values()))


def placed(
    slices: Sequence[ResourceSlice],
    expected: Fragmentation,
    wanted: ResourceClaim,
    usage: Iterable[DeviceHolding] = (),
) -> list[str]:
    pools, used, demand = pools_of(slices), Held(*usage), demand_of(wanted)
    units = expected.units(NODE, pools)
    answer = allocate(demand, NODE, pools, used, find_order=lambda view: expected.order(demand, view, units, used))
    return picks(answer)[0]


def loss(
    slices: Sequence[ResourceSlice],
    expected: Fragmentation,
    taken: Iterable[DeviceHolding],
    usage: Iterable[DeviceHolding] = (),
    free: NodeAmounts = WHOLE,
) -> float:
    units = expected.units(NODE, pools_of(slices))
    before = units.rooms(Held(*usage))
    after = units.with_holdings(before, taken)
    return expected.loss(expected.room(before), expected.room(after), free, NodeAmounts(0, 0), 8_000)


def alternatives(placement: Placement, wanted: Sequence[ResourceClaim]) -> list[list[str]]:
    """Return the alternatives of the requests by claim, in an order in which a better one comes first.

    Whoever got no device comes last, because an alternative for no device at all is behind those for some.
    """
    return [
        [got.get(request.name, "~") for request in claim.spec.devices.requests or ()]
        for claim, placed_claim in zip(wanted, placement.claims, strict=True)
        for got in [
            {result.request.partition("/")[0]: result.request for result in placed_claim.allocation.devices.results}
        ]
    ]


MIG = expecting(**{name: (kind(profile(name)), 1.0) for name in PROFILES})


def test_a_small_partition_goes_where_large_ones_lose_least() -> None:
    assert placed(gpus(1), MIG, claim_of(profile("1g.10gb"))) == ["gpu-0-1g-10gb-6"]


def test_a_gpu_that_is_partitioned_already_gets_the_next_partition() -> None:
    usage = [held("gpu-1-1g-10gb-6")]
    assert placed(gpus(2), MIG, claim_of(profile("1g.10gb")), usage)[0].startswith("gpu-1")
    assert placed(gpus(2), MIG, claim_of(profile("2g.20gb")), usage)[0].startswith("gpu-1")
    assert placed(gpus(2), MIG, claim_of(profile("7g.80gb")), usage) == ["gpu-0-7g-80gb-0"]


def test_without_expected_kinds_fewer_other_partitions_are_blocked() -> None:
    nothing = Fragmentation({})
    assert placed(gpus(2), nothing, claim_of(profile("1g.10gb"))) == ["gpu-0-1g-10gb-6"]
    assert placed(gpus(2), nothing, claim_of(profile("1g.10gb")), [held("gpu-1-1g-10gb-6")])[0].startswith("gpu-1")


def test_a_share_goes_on_the_gpu_that_is_shared_already() -> None:
    slices = [slice_of(shareable("a"), shareable("b"), shareable("c"))]
    expected = expecting(whole=(kind(amount_of("8")), 1.0), share=(kind(amount_of("2")), 1.0))
    assert placed(slices, expected, claim_of(amount_of("2")), [share("b", 2)]) == ["b"]
    assert placed(slices, expected, claim_of(amount_of("8")), [share("a", 2)]) == ["b"]
    assert placed(slices, Fragmentation({}), claim_of(amount_of("2")), [share("b", 2)]) == ["b"]


def test_a_share_fills_the_gap_that_fits() -> None:
    """2 of 8 are left on a, 4 on b: the share of 2 leaves b to shares of 4."""
    slices = [slice_of(shareable("b"), shareable("a"))]
    expected = expecting(four=(kind(amount_of("4")), 1.0), two=(kind(amount_of("2")), 1.0))
    usage = [share("b", 4), share("a", 6)]
    assert placed(slices, expected, claim_of(amount_of("2")), usage) == ["a"]


def test_equal_devices_keep_upstreams_order() -> None:
    slices = [slice_of("c", "a", "b")]
    expected = expecting(one=(kind(exactly()), 1.0), two=(kind(exactly(2)), 1.0))
    assert placed(slices, expected, claim_of(exactly())) == ["c"]
    assert placed(slices, expected, claim_of(exactly(2))) == ["c", "a"]


def test_the_last_pair_of_devices_costs_more_than_a_single_one() -> None:
    expected = expecting(one=(kind(exactly()), 1.0), two=(kind(exactly(2)), 1.0))
    pair, single = [slice_of("a", "b")], [slice_of("a")]
    assert loss(pair, expected, [held("a")]) > loss(single, expected, [held("a")])


def test_devices_of_a_node_without_cpu_are_lost_already() -> None:
    expected = expecting(one=(kind(exactly()), 1.0))
    slices, used_up = [slice_of("a", "b")], NodeAmounts(1_000, 64 * 2**30)
    assert loss(slices, expected, [held("a")], free=used_up) < loss(slices, expected, [held("a")])


def test_what_every_full_device_leaves_is_not_lost() -> None:
    """Of 8, two shares of 3 leave 2: the second share costs no more than the first one on another device."""
    expected = expecting(share=(kind(amount_of("3"), amounts=NodeAmounts(0, 0)), 1.0))
    slices = [slice_of(shareable("a"))]
    assert loss(slices, expected, [share("a", 3)], [share("a", 3)]) < loss(slices, expected, [share("a", 3)])


def test_a_part_of_a_card_is_no_whole_device() -> None:
    parts = [consuming(name, amount=20) for name in "abcd"]
    card, cut_up = [*parts, consuming("card", amount=100)], parts
    for devices, whole in ((card, {DRIVER: 1}), (cut_up, {})):
        slices = [counters_of(set=100), slice_of(*devices, count=2)]
        assert Fragmentation({}).units(NODE, pools_of(slices)).whole_devices == whole


def test_what_is_scarce_costs_more() -> None:
    """Two kinds that come equally often; of one, the cluster has far more left."""
    slices = [slice_of(shareable("a"))]
    expected = expecting(whole=(kind(amount_of("8")), 1.0), share=(kind(amount_of("1")), 1.0))
    units, supply = expected.units(NODE, pools_of(slices)), expected.supply()
    supply.add(expected.room(units.rooms(Held())), None)
    for _ in range(50):
        supply.add(expected.room(units.rooms(Held(share("a", 1)))), None)
    expected.renew_prices(supply, dict.fromkeys(expected.kinds, 1.0))
    whole, small = expected.prices
    assert whole > small


@pytest.mark.parametrize("wanted", [claim_of(every()), claim_of(exactly(adminAccess=True))])
def test_a_pod_that_asks_for_no_number_of_devices_is_of_no_kind(wanted: ResourceClaim) -> None:
    assert kind_of(demand_of(wanted), HALF) is None


def test_too_large_a_pod_is_of_no_kind() -> None:
    most = [claim_of(exactly(32)) for _ in range(4)]
    assert kind_of(demand_of(*most), HALF) is not None
    assert kind_of(demand_of(*most, claim_of(exactly())), HALF) is None


@examples(150)
@given(
    slices=nodes,
    wanted=st.lists(claims, min_size=1, max_size=2),
    usage=usages,
    expected=st.lists(claims, max_size=3),
    seed=st.randoms(use_true_random=False),
)
def test_no_preference_costs_a_solution(
    slices: list[Any], wanted: list[Any], usage: list[Any], expected: list[Any], seed: Any
) -> None:
    """Neither the order of expected kinds nor any other order costs a solution, or a better alternative of a request.

    Where upstream's order ends with an error, such as a constraint that all devices cannot meet, another order may find a solution;
    where upstream's order takes the devices of a later alternative, another order may find an earlier alternative.
    """
    demand, pools, used = demand_of(*wanted), pools_of(slices), Held(*usage)
    plain = allocate(demand, NODE, pools, used)
    kinds = [found for each in expected if (found := kind_of(demand_of(each), HALF)) is not None]
    fragmentation = Fragmentation(dict.fromkeys(kinds, 1.0))
    units = fragmentation.units(NODE, pools)
    order = list(range(len(pools.devices)))
    seed.shuffle(order)

    def by_loss(view: NodeView) -> DeviceOrder | None:
        return fragmentation.order(demand, view, units, used)

    for prefer in (by_loss, lambda _: DeviceOrder.from_locations(order)):
        answer = allocate(demand, NODE, pools, used, find_order=prefer)
        if isinstance(plain, Placement) or plain.verdict != "fatal":
            assert isinstance(answer, Placement) == isinstance(plain, Placement), (answer, plain)
        assert answer == allocate(demand, NODE, pools, used, find_order=prefer)
        if isinstance(answer, Placement) and isinstance(plain, Placement):
            assert alternatives(answer, wanted) <= alternatives(plain, wanted)


@examples(100)
@given(slices=nodes, usage=usages, expected=st.lists(claims, min_size=1, max_size=4))
def test_equal_states_of_devices_are_one_room(slices: list[Any], usage: list[Any], expected: list[Any]) -> None:
    kinds = [found for each in expected if (found := kind_of(demand_of(each), HALF)) is not None]
    fragmentation, pools = Fragmentation(dict.fromkeys(kinds, 1.0)), pools_of(slices)
    units = fragmentation.units(NODE, pools)
    rooms = units.rooms(Held(*usage))
    assert [room.number for room in rooms] == [room.number for room in units.rooms(Held(*reversed(usage)))]
    room = fragmentation.room(rooms)
    assert room == fragmentation.room(fragmentation.units(NODE, pools_of(slices)).rooms(Held(*usage)))
    assert 0 <= room.free <= len(pools.devices)
    assert all(kind.useless <= room.free + 1e-9 and kind.slots >= 0 for kind in room.kinds)


def test_a_weight_of_next_to_nothing_is_a_price_of_nothing() -> None:
    assert expecting(one=(kind(exactly()), 5e-324)).prices == (0.0,)


def test_kinds_of_many_shapes_leave_room_for_others() -> None:
    """Pods with eight selectors each, all different, are expected as long as they have at most 64 together."""
    eights = [
        kind(*(exactly(name=f"r{place}", expression=f"{number} != {place}") for place in range(8)))
        for number in range(100, 110)
    ]
    one = kind(exactly())
    chosen = heaviest(dict.fromkeys(eights, 1.0) | {one: 0.1})
    assert len({request.shape for each in chosen for request in each.requests}) <= MOST_SHAPES
    assert chosen == [*sorted(eights, key=lambda each: each.label)[:8]]
    assert heaviest(dict.fromkeys(eights[:7], 1.0) | {one: 0.1})[-1] is one


def test_rooms_that_are_forgotten_are_not_kept_by_an_empty_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_MOST_ROOMS", 4)
    of_node = expecting(one=(kind(amount_of("1")), 1.0)).units(NODE, pools_of([slice_of(shareable("a"))]))
    empty = of_node.units[0].empty
    for amount in range(1, 100):
        empty.after(0, (amount,))
    assert len(empty._after) <= 4


def test_units_of_devices_that_were_published_before_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_MOST_ROOMS", 4)
    expected = expecting(one=(kind(amount_of("1")), 1.0))
    for capacity in range(1, 50):
        published = slice_of(shareable("a", str(capacity)))
        latest = expected.units(NODE, pools_of([published]))
    gc.collect()
    assert latest.units[0] in expected._rooms._units.values()
    assert len(expected._rooms._units) <= 5


def test_states_that_differ_but_serve_a_kind_equally_share_what_is_kept_of_it() -> None:
    expected = expecting(one=(kind(amount_of("4")), 1.0), other=(kind(amount_of("1")), 1.0))
    empty = expected.units(NODE, pools_of([slice_of(shareable("a"))])).units[0].empty
    rooms = [expected.room([empty.after(0, (amount,))]) for amount in range(40)]
    kept = [each for room in rooms for each in room.kinds]
    assert len({id(each) for each in kept}) == len(set(kept)) < len(kept)
