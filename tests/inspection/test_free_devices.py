"""Devices that no claim has: which of them can be allocated, and what keeps the others."""

from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.allocator.availability import Availability
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.free_devices import FreeDevices
from dra_extender.inspection.text.devices import devices_tree, usage_tree
from dra_extender.inspection.usage import usage_report
from dra_extender.page.devices_view import driver_totals, pool_states
from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane.objects import (
    DRIVER,
    consumption,
    counter_set,
    device,
    device_class,
    request,
    resource_slice,
)
from tests.support.examples import examples
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

Json = dict[str, Any]


def availabilities(view: ClusterView) -> dict[str, str]:
    """What is said of each device, by name."""
    return {device.name: device.availability_text for pool in devices_report(view).pools for device in pool.devices}


def node(made: MadeCluster, name: str) -> Json:
    return next(each for each in made.objects["nodes"] if each["metadata"]["name"] == name)


def cordoned(node: Json) -> None:
    node["spec"] = {"unschedulable": True}


def not_ready(node: Json) -> None:
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


def deleting(node: Json) -> None:
    node["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z"


def reserved(node: Json) -> None:
    node["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}


@pytest.fixture
def made() -> MadeCluster:
    """One node and a class."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    return made


def test_partitions_are_blocked_by_counters_or_by_groups(made: MadeCluster) -> None:
    parts = {"mig-0": ("4", "mig"), "mig-1": ("4", "mig"), "vgpu": ("2", "vgpu"), "whole": ("10", "mig")}
    devices = [device(name, consumes=[consumption("s", groups=[group], sm=sm)]) for name, (sm, group) in parts.items()]
    made.partitions("n1", [counter_set("s", sm="10")], devices)
    made.running("a", "n1", "mig-0", request("r", "gpu"))
    assert availabilities(made.view()) == {
        "mig-0": "",
        "mig-1": "usable",
        "vgpu": "blocked by groups",
        "whole": "blocked by counters",
    }


def test_neighbours_that_do_not_get_on_block_as_groups_do(made: MadeCluster) -> None:
    rule = 'device.attributes["gpu.example.com"].kind == "mig"'
    draws = [consumption("s", sm="1")]
    first = device("first", attributes={"kind": "mig"}, consumes=draws, compatibleOnlyWith={"expression": rule})
    other = device("other", attributes={"kind": "vgpu"}, consumes=draws)
    made.partitions("n1", [counter_set("s", sm="10")], [first, other])
    made.running("a", "n1", "first", request("r", "gpu"))
    assert availabilities(made.view()) == {"first": "", "other": "blocked by groups"}


@pytest.mark.parametrize(
    ("effect", "said"),
    [("NoSchedule", "unusable: tainted"), ("NoExecute", "unusable: tainted"), ("None", "usable")],
    ids=["no_schedule", "no_execute", "none"],
)
def test_tainted_device_is_unusable_where_the_allocator_refuses_it(made: MadeCluster, effect: str, said: str) -> None:
    made.gpus("n1", device("gpu-0", taints=[{"key": "k", "effect": effect}]))
    assert availabilities(made.view()) == {"gpu-0": said}


@pytest.mark.parametrize(
    ("close", "said"),
    [
        pytest.param(cordoned, "unusable: node n1 is cordoned", id="cordoned"),
        pytest.param(not_ready, "unusable: node n1 is unreachable", id="not_ready"),
        pytest.param(deleting, "unusable: node n1 is being deleted", id="deleting"),
        pytest.param(reserved, "usable", id="reserved"),
    ],
)
def test_device_of_a_closed_node_is_unusable(made: MadeCluster, close: Callable[[Json], None], said: str) -> None:
    made.gpus("n1", device("gpu-0"))
    close(node(made, "n1"))
    assert availabilities(made.view()) == {"gpu-0": said}


def test_devices_usage_and_page_have_equal_numbers(made: MadeCluster) -> None:
    broken = {"key": "k", "effect": "NoExecute"}
    made.gpus("n1", device("gpu-0"), device("gpu-1", taints=[broken]), device("gpu-2"))
    made.running("a", "n1", "gpu-2", request("r", "gpu"))
    view = made.view()
    (driver,) = usage_report(view).drivers
    assert driver.free == FreeDevices(usable=1, unusable=1)
    assert f"{DRIVER}  1 of 3 devices in use, 1 usable, 1 unusable\n" in usage_tree(usage_report(view))
    report = devices_report(view)
    (total,) = driver_totals(pool_states(report))
    assert {state.value: number for state, number in total.by_state.items() if number} == {
        "usable": 1,
        "unusable": 1,
        "allocated": 1,
    }
    assert "gpu-1  unusable: tainted; taint k:NoExecute" in devices_tree(report)


AMOUNTS = st.sampled_from(["2", "5", "10"])
GROUPS = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
TAINTS = st.sampled_from([(), (), ("NoSchedule",), ("NoExecute",), ("None",)])
PARTS = st.lists(st.tuples(AMOUNTS, GROUPS, TAINTS), min_size=1, max_size=5)
CLOSINGS = st.sampled_from([None, None, cordoned, not_ready, deleting])


@examples(30)
@given(pools=st.lists(st.tuples(PARTS, CLOSINGS, st.booleans()), min_size=1, max_size=3), shared=PARTS)
def test_a_device_is_usable_if_and_only_if_the_allocator_gives_it_to_a_claim_for_it_on_an_open_node(
    pools: list[tuple[list[Any], Callable[[Json], None] | None, bool]], shared: list[Any]
) -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    names: list[str] = []

    def built(prefix: str, parts: list[Any]) -> list[Json]:
        found = []
        for index, (amount, groups, effects) in enumerate(parts):
            name = f"{prefix}-{index}"
            names.append(name)
            consumes = [consumption("s", groups=groups, sm=amount)] if prefix != "all" else []
            taints = [{"key": "k", "effect": effect} for effect in effects]
            found.append(device(name, attributes={"id": name}, consumes=consumes, taints=taints))
        return found

    closed = set()
    for index, (parts, close, complete) in enumerate(pools):
        name = f"n{index}"
        made.nodes(name)
        made.add(resource_slice(f"sets-{name}", node=name, counter_sets=[counter_set("s", sm="10")], slice_count=2))
        count = 2 if complete or index == 0 else 3
        made.add(resource_slice(f"parts-{name}", node=name, devices=built(name, parts), slice_count=count))
        made.running(f"user-{name}", name, f"{name}-0", request("r", "gpu"))
        if close is not None:
            close(node(made, name))
            closed.add(name)
    made.add(resource_slice("all", pool="all", allNodes=True, devices=built("all", shared)))
    for name in names:
        made.pod(f"for-{name}", request("r", "gpu", f'device.attributes["{DRIVER}"].id == "{name}"'))
    view = made.view()
    said = availabilities(view)
    for name in names:
        pod = view.pod(NAMESPACE, f"for-{name}")
        assert pod is not None
        allocated = bool(set(view.evaluate(pod).fits) - closed)
        assert (said[name] == Availability.USABLE.value) == allocated, name
