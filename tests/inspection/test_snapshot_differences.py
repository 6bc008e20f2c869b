"""What an allocation froze and what the slice has now stand side by side where they differ."""

import pytest
from dra_extender.inspection.devices import (
    AmountDifference,
    SnapshotDifference,
    snapshot_differences,
)
from dra_extender.inspection.holders import HeldDevice, Holder
from dra_extender.inspection.text.devices import difference_text
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption, Device

NANO = 10**9


def drawing(counter_set: str = "gpu-0", groups: tuple[str, ...] = (), **amounts: int) -> CounterConsumption:
    return CounterConsumption(
        counter_set=counter_set,
        counters=tuple((name, amount * NANO) for name, amount in amounts.items()),
        compatibility_groups=groups,
    )


def held(claim: str, *consumption: CounterConsumption, admin: bool = False) -> HeldDevice:
    holding = DeviceHolding(driver="d", pool="n1", device="mig-0", consumption=consumption or None, admin=admin)
    return HeldDevice(Holder(claim=claim), holding)


def device(*consumption: CounterConsumption) -> Device:
    return Device(name="mig-0", consumes_counters=consumption)


def test_amounts_and_groups_that_differ_are_there_with_both_values() -> None:
    live = device(drawing(groups=("vgpu",), sm=28, memory=10))
    (found,) = snapshot_differences(live, [held("ml/a", drawing(groups=("mig",), sm=42, memory=10))])
    assert found == SnapshotDifference(
        counter_set="gpu-0",
        claims=("ml/a",),
        counters=(AmountDifference(counter="sm", frozen=42 * NANO, published=28 * NANO),),
        groups_differ=True,
        frozen_groups=("mig",),
        published_groups=("vgpu",),
    )
    assert difference_text(found) == "gpu-0: sm 42 at allocation, 28 now; groups mig at allocation, vgpu now"


def test_counter_set_that_only_one_of_both_draws_on_is_there() -> None:
    found = snapshot_differences(device(drawing("gpu-1", sm=7)), [held("ml/a", drawing("gpu-0", sm=42))])
    assert [difference_text(each) for each in found] == [
        "gpu-0: sm 42 at allocation, none now",
        "gpu-1: sm none at allocation, 7 now",
    ]
    (bare,) = snapshot_differences(device(), [held("ml/a", drawing("gpu-0"))])
    assert difference_text(bare) == "gpu-0: drawn on only at allocation"


def test_order_of_groups_is_no_difference() -> None:
    live = device(drawing(groups=("b", "a"), sm=1))
    assert snapshot_differences(live, [held("ml/a", drawing(groups=("a", "b"), sm=1))]) == ()


@pytest.mark.parametrize("without", [held("ml/a"), held("ml/a", drawing(sm=1), admin=True)])
def test_allocation_without_a_snapshot_differs_in_nothing(without: HeldDevice) -> None:
    assert snapshot_differences(device(drawing(sm=28)), [without]) == ()


def test_shares_that_froze_the_same_are_one_difference() -> None:
    shares = [held(claim, drawing(sm=42)) for claim in ("ml/b", "ml/a")] + [held("ml/c", drawing(sm=14))]
    found = snapshot_differences(device(drawing(sm=28)), shares)
    assert [(each.claims, each.counters[0].frozen) for each in found] == [
        (("ml/a", "ml/b"), 42 * NANO),
        (("ml/c",), 14 * NANO),
    ]
