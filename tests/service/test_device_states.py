"""How many devices are in which state, in the words of `devices` and the page, and how much is looked at for that."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from dra_extender.allocator.explain.device_diagnosis import DeviceDiagnosis
from dra_extender.allocator.state.features import Features
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import EventSink, sinks_of
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.page.devices_view import driver_totals, pool_states
from dra_extender.scheduling.extender import Extender
from dra_extender.service.device_count import MOST_REPEATED, STATES, DeviceStates
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from tests.controlplane.objects import DRIVER, consumption, counter_set, device, device_class, request, resource_slice
from tests.support.examples import examples
from tests.support.inspection.made_cluster import MadeCluster


def counted(states: DeviceStates) -> dict[str, int]:
    """Count once; the devices of DRIVER by state, without states of none."""
    for _ in states.count_steps():
        pass
    numbers = states.by_driver().get(DRIVER, {})
    assert set(numbers) in ({*STATES}, set())
    return {state: number for state, number in numbers.items() if number}


def count(view: ClusterView) -> dict[str, int]:
    return counted(DeviceStates(view.ledger, view.extender, view.features))


class NotedDevices:
    """Notes each device that the allocator is asked about."""

    def __init__(self, extender: Extender, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[DeviceId] = []
        diagnose = extender.allocator.diagnose_devices

        def noted(*arguments: Any, **options: Any) -> Iterator[DeviceDiagnosis]:
            for diagnosis in diagnose(*arguments, **options):
                self.asked.append(diagnosis.device_id)
                yield diagnosis

        monkeypatch.setattr(extender.allocator, "diagnose_devices", noted)


def hold(ledger: Ledger, *devices: str, pool: str = "n1", node: str = "n1") -> None:
    """Keep these devices for a claim."""
    holdings = tuple(DeviceHolding(driver=DRIVER, pool=pool, device=each) for each in devices)
    placement = ClaimPlacement(allocation=AllocationResult(), holdings=holdings)
    ledger.hold_book.place(
        Hold(claim_uid="c", placements={node: placement}, versions={node: 0}, expires=9e9, namespace="ml")
    )


def test_a_device_is_allocated_held_or_usable() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    made.running("a", "n1", "gpu-0", request("r", "gpu"))
    view = made.view()
    hold(view.ledger, "gpu-1")

    assert count(view) == {"allocated": 1, "held": 1, "usable": 1}


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


def test_a_device_with_groups_is_blocked_where_groups_are_switched_off() -> None:
    view = ClusterView(partitioned(small=("vgpu",)).cluster(), Features(compatibility_groups=False))

    assert count(view) == {"usable": 3, "blocked by groups": 1}


def test_metric_devices_and_page_say_the_same_of_every_kind_of_device() -> None:
    made = partitioned(half_0=("mig",), half_1=("mig",), small=("vgpu",), whole=("mig",))
    made.running("a", "n1", "half-0", request("r", "gpu"))
    made.nodes("n2", "n3")
    made.gpus("n2", device("gpu-0"), device("gpu-1", taints=[{"key": "k", "effect": "NoExecute"}]))
    made.gpus("n3", device("gpu-0"))
    made.objects["nodes"][-1]["spec"] = {"unschedulable": True}
    made.add(resource_slice("shared", pool="shared", allNodes=True, devices=[device("nic")]))
    view = made.view()
    (total,) = driver_totals(pool_states(devices_report(view)))
    shown = {state.value: number for state, number in total.by_state.items() if number}
    expected = {"allocated": 1, "usable": 3, "blocked by counters": 1, "blocked by groups": 1, "unusable": 2}
    assert count(view) == shown == expected


def fleet(nodes: int) -> MadeCluster:
    """Nodes with four devices each, one of them allocated."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes(*(f"n{index}" for index in range(nodes)))
    for index in range(nodes):
        made.gpus(f"n{index}", *(device(f"gpu-{number}") for number in range(4)))
        made.running(f"pod-{index}", f"n{index}", "gpu-0", request("r", "gpu"))
    return made


def test_a_count_asks_about_each_free_device_once_and_then_about_those_of_changed_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = fleet(20).view()
    noted = NotedDevices(view.extender, monkeypatch)
    states = DeviceStates(view.ledger, view.extender, view.features)
    assert counted(states) == {"allocated": 20, "usable": 60}
    assert len(noted.asked) == len(set(noted.asked)) == 60
    noted.asked.clear()
    assert counted(states) == {"allocated": 20, "usable": 60}
    assert noted.asked == []
    hold(view.ledger, "gpu-1", pool="n7", node="n7")
    assert counted(states) == {"allocated": 20, "held": 1, "usable": 59}
    assert noted.asked == [(DRIVER, "n7", "gpu-2"), (DRIVER, "n7", "gpu-3")]


def test_closed_node_and_vanished_pool_change_the_count() -> None:
    made = fleet(2)
    view = made.view()
    states = DeviceStates(view.ledger, view.extender, view.features)
    assert counted(states) == {"allocated": 2, "usable": 6}
    sinks = sinks_of(view.ledger)
    sinks["nodes"].changed(json.encode({**made.objects["nodes"][0], "spec": {"unschedulable": True}}))
    assert counted(states) == {"allocated": 2, "usable": 3, "unusable": 3}
    sinks["resourceslices"].deleted("", made.objects["resourceslices"][1]["metadata"]["name"], "")
    assert counted(states) == {"allocated": 1, "unusable": 3}


def test_device_that_every_node_reaches_is_asked_about_on_the_first_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fleet(20)
    made.add(
        resource_slice("shared", pool="shared", allNodes=True, devices=[device(f"nic-{index}") for index in range(50)])
    )
    view = made.view()
    noted = NotedDevices(view.extender, monkeypatch)
    assert count(view) == {"allocated": 20, "usable": 110}
    assert len(noted.asked) == 110


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        pytest.param(MOST_REPEATED, {"usable": 40}, id="within"),
        pytest.param(400, {"usable": 11, "not judged": 29}, id="beyond"),
    ],
)
def test_devices_of_one_node_each_in_a_pool_of_all_are_looked_for_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, bound: int, expected: dict[str, int]
) -> None:
    """Each of 40 nodes reaches another of the pool's 40 devices."""
    made = MadeCluster()
    names = [f"n{index:02}" for index in range(40)]
    made.nodes(*names)
    devices = [device(f"on-{name}", nodeName=name) for name in names]
    made.add(resource_slice("fabric", pool="fabric", perDeviceNodeSelection=True, devices=devices))
    view = made.view()
    noted = NotedDevices(view.extender, monkeypatch)
    assert counted(DeviceStates(view.ledger, view.extender, view.features, bound)) == expected
    assert len(noted.asked) <= 40 + bound


def test_other_work_may_run_after_each_device() -> None:
    view = fleet(5).view()
    steps = list(DeviceStates(view.ledger, view.extender, view.features).count_steps())
    assert len(steps) >= 15


def changeable() -> MadeCluster:
    """Three nodes with two partitions each, and a device for all nodes whose rule is about the other devices of its node."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    alone = {"expression": 'device.driver != "gpu.example.com" || device.attributes["gpu.example.com"].alone'}
    made.add(
        resource_slice(
            "shared",
            pool="shared",
            allNodes=True,
            devices=[device("nic", compatibleOnlyWith={**alone, "within": "node"}, attributes={"alone": True})],
        )
    )
    for node in ("n0", "n1", "n2"):
        made.nodes(node)
        parts = [
            device(name, attributes={"alone": False}, consumes=[consumption("set", sm="6")])
            for name in ("left", "right")
        ]
        made.partitions(node, [counter_set("set", sm="10")], parts)
        made.running(f"pod-{node}", node, "left", request("r", "gpu"))
    made.running("sharing", "shared", "nic", request("r", "gpu"))
    return made


CHANGES = st.tuples(
    st.sampled_from(["nodes", "resourceslices", "resourceclaims", "devicetaintrules", "hold"]),
    st.integers(0, 6),
    st.sampled_from(["gone", "plain", "other"]),
)


@examples(60)
@given(changes=st.lists(CHANGES, min_size=1, max_size=12))
def test_numbers_that_are_kept_are_those_of_a_new_count(changes: list[tuple[str, int, str]]) -> None:
    made = changeable()
    view = made.view()
    sinks = sinks_of(view.ledger)
    states = DeviceStates(view.ledger, view.extender, view.features)
    for version, (kind, index, variant) in enumerate(changes, 2):
        change(made, view.ledger, sinks, kind, index, variant, version)
        assert counted(states) == count(view)


def change(
    made: MadeCluster,
    ledger: Ledger,
    sinks: Mapping[str, EventSink],
    kind: str,
    index: int,
    variant: str,
    version: int,
) -> None:
    """Delete an object, store it as it was made, or with another content."""
    if kind == "hold":
        ledger.hold_book.end("c")
        if variant != "gone":
            hold(ledger, "right", pool=f"n{index % 3}", node=f"n{index % 3}")
        return
    if kind == "devicetaintrules":
        taint = {"key": "k", "effect": "NoSchedule"}
        rule = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": {"pool": f"n{index % 3}"}, "taint": taint}}
        if variant == "gone":
            sinks[kind].deleted("", "rule", "")
        else:
            sinks[kind].changed(json.encode(rule))
        return
    item = made.objects[kind][index % len(made.objects[kind])]
    metadata = {**item["metadata"], "resourceVersion": str(version)}
    if variant == "gone":
        sinks[kind].deleted(metadata.get("namespace", ""), metadata["name"], metadata["uid"])
        return
    item = {**item, "metadata": metadata}
    if variant == "other" and kind == "nodes":
        item["spec"] = {"unschedulable": True}
    elif variant == "other" and kind == "resourceslices":
        item["spec"] = {**item["spec"], "pool": {**item["spec"]["pool"], "generation": 2}}
    elif variant == "other":
        item["status"] = {}
    sinks[kind].changed(json.encode(item))
