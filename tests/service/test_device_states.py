"""In which state each published device is, and why nobody can have one that nobody has."""

from collections import Counter

from dra_extender.allocator.state.features import Features
from dra_extender.ledger.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.service.device_states import DeviceInState, device_states
from dra_extender.telemetry.devices import DeviceState, Stranding

from tests.controlplane.objects import DRIVER, consumption, counter_set, device, request, resource_slice
from tests.support.inspection.made_cluster import MadeCluster


def states(ledger: Ledger, features: Features | None = None) -> dict[str, tuple[DeviceState, Stranding | None]]:
    found = [each for each in device_states(ledger, features or Features()) if each is not None]
    assert len({each.device for each in found}) == len(found)
    return {each.device: (each.state, each.reason) for each in found}


def hold(ledger: Ledger, *devices: str, pool: str = "n1") -> None:
    """Keep these devices for a claim."""
    holdings = tuple(DeviceHolding(driver=DRIVER, pool=pool, device=each) for each in devices)
    placement = ClaimPlacement(allocation=AllocationResult(), holdings=holdings)
    ledger.hold_book.place(
        Hold(claim_uid="c", placements={"n1": placement}, versions={"n1": 0}, expires=9e9, namespace="ml")
    )


def test_a_device_is_allocated_held_or_free() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    made.running("a", "n1", "gpu-0", request("r", "gpu"))
    ledger = made.view().ledger
    hold(ledger, "gpu-1")

    assert states(ledger) == {
        "gpu-0": (DeviceState.ALLOCATED, None),
        "gpu-1": (DeviceState.HELD, None),
        "gpu-2": (DeviceState.FREE, None),
    }


def partitioned(**groups: tuple[str, ...]) -> MadeCluster:
    """A device of 10 units of memory that can be given away whole, in halves, or in a part of 2 units."""
    made = MadeCluster()
    made.nodes("n1")
    amounts = {"whole": "10", "half-0": "5", "half-1": "5", "small": "2"}
    devices = [
        device(name, consumes=[consumption("gpu-0", memory=amount, groups=groups.get(name.replace("-", "_"), ()))])
        for name, amount in amounts.items()
    ]
    made.partitions("n1", [counter_set("gpu-0", memory="10")], devices)
    return made


def test_a_partition_is_stranded_while_too_little_is_left_of_a_counter() -> None:
    made = partitioned()
    made.running("a", "n1", "half-0", request("r", "gpu"))

    found = states(made.view().ledger)

    assert found["whole"] == (DeviceState.STRANDED, Stranding.COUNTERS)
    assert found["half-1"] == found["small"] == (DeviceState.FREE, None)


def test_what_is_held_strands_others_as_what_is_allocated_does() -> None:
    ledger = partitioned().view().ledger
    hold(ledger, "half-0", "half-1")

    found = states(ledger)

    assert [found[name] for name in ("whole", "small")] == [(DeviceState.STRANDED, Stranding.COUNTERS)] * 2


def test_a_partition_is_stranded_beside_one_without_a_group_in_common() -> None:
    made = partitioned(half_0=("mig",), half_1=("mig", "x"), small=("vgpu",), whole=("mig",))
    made.running("a", "n1", "half-0", request("r", "gpu"))
    ledger = made.view().ledger

    found = states(ledger)

    assert found["small"] == (DeviceState.STRANDED, Stranding.GROUPS)
    assert found["half-1"] == (DeviceState.FREE, None)


def test_a_device_with_groups_is_stranded_where_groups_are_switched_off() -> None:
    ledger = partitioned(small=("vgpu",)).view().ledger

    found = states(ledger, Features(compatibility_groups=False))

    assert found["small"] == (DeviceState.STRANDED, Stranding.GROUPS)
    assert found["half-0"] == (DeviceState.FREE, None)


def test_all_devices_of_an_incomplete_pool_are_stranded() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(resource_slice("one-of-two", node="n1", devices=[device("gpu-0")], slice_count=2))

    assert states(made.view().ledger) == {"gpu-0": (DeviceState.STRANDED, Stranding.POOL)}


def test_a_device_of_an_older_generation_does_not_count() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(
        resource_slice("old", node="n1", devices=[device("gone")], generation=1),
        resource_slice("new", node="n1", devices=[device("here")], generation=2),
    )

    assert list(states(made.view().ledger)) == ["here"]


def test_what_a_pool_draws_on_without_declaring_it_strands_its_devices() -> None:
    made = MadeCluster()
    made.nodes("n1")
    drawing = device("odd", consumes=[consumption("nowhere", memory="1")])
    made.partitions("n1", [counter_set("gpu-0", memory="10")], [drawing])

    assert states(made.view().ledger) == {"odd": (DeviceState.STRANDED, Stranding.POOL)}


def test_other_work_may_run_after_each_pool_and_device() -> None:
    made = MadeCluster()
    made.nodes("n1", "n2")
    for node in ("n1", "n2"):
        made.gpus(node, device("gpu-0"), device("gpu-1"))
    steps = list(device_states(made.view().ledger, Features()))
    assert Counter(type(each) for each in steps) == {DeviceInState: 4, type(None): 4}
