"""What is where: pools, counter sets, devices and their holders."""

import pytest
from dra_extender.inspection.devices import DevicesReport, DeviceUse, UnknownNodeError, devices_report
from dra_extender.inspection.devices_tree import devices_tree
from dra_extender.model.quantity import NANO

from tests.controlplane.objects import consumption, counter_set, device, device_class, request, resource_slice
from tests.support.inspection.made_cluster import NOW, MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [device(f"mig-{index}", consumes=[consumption("gpu-0", groups=["mig"], sm="42")]) for index in range(2)],
    )
    made.gpus("n2", device("gpu-0", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}]))
    made.running("train", "n1", "mig-0", request("gpu", "gpu"))
    return made


def by_name(report: DevicesReport) -> dict[str, DeviceUse]:
    return {f"{pool.pool}/{each.name}": each for pool in report.pools for each in (*pool.devices, *pool.gone)}


def test_device_has_its_holders_and_a_counter_set_what_they_draw_and_which_groups_are_in_force(
    made: MadeCluster,
) -> None:
    report = devices_report(made.view())

    found = by_name(report)
    assert [each.consumers for each in found["n1/mig-0"].holders] == [("ml/train",)]
    assert found["n1/mig-1"].is_free
    assert found["n2/gpu-0"].taints == ("example.com/broken:NoSchedule",)
    (used,) = next(each for each in report.pools if each.pool == "n1").counter_sets
    assert [(each.name, each.total, each.drawn) for each in used.counters] == [("sm", 98 * NANO, 42 * NANO)]
    assert (used.members, used.groups) == (("mig-0",), ("mig",))


def test_a_node_has_its_own_pools_and_those_that_it_can_reach(made: MadeCluster) -> None:
    made.add(resource_slice("everywhere", pool="shared", allNodes=True, devices=[device("nic")]))
    assert set(by_name(devices_report(made.view(), "n2"))) == {"n2/gpu-0", "shared/nic"}


def test_free_devices_and_one_driver_can_be_asked_for_alone(made: MadeCluster) -> None:
    made.gpus("n2", device("nic-0"), driver="nic.example.com")
    assert set(by_name(devices_report(made.view(), free=True))) == {"n1/mig-1", "n2/gpu-0", "n2/nic-0"}
    assert set(by_name(devices_report(made.view(), driver="nic.example.com"))) == {"n2/nic-0"}


def test_device_that_is_allocated_and_not_published_any_more_is_said(made: MadeCluster) -> None:
    made.running("ghost", "n2", "gpu-9", request("gpu", "gpu"))
    report = devices_report(made.view())
    (pool,) = (each for each in report.pools if each.pool == "n2")
    assert [(each.name, each.holders[0].consumers) for each in pool.gone] == [("gpu-9", ("ml/ghost",))]
    assert "gpu-9  ml/ghost, not published any more" in devices_tree(report, NOW)


def test_unknown_node_is_refused_with_where_it_was_looked_for(made: MadeCluster) -> None:
    with pytest.raises(UnknownNodeError, match="node n9 does not exist in a test"):
        devices_report(made.view(), "n9")


def test_tree_has_a_bar_for_each_counter(made: MadeCluster) -> None:
    assert devices_tree(devices_report(made.view()), NOW) == (
        "n1\n"
        "  gpu.example.com/n1  generation 1\n"
        "    gpu-0  sm [####      ] 42/98  groups [mig]\n"
        "    mig-0  ml/train\n"
        "    mig-1  free\n"
        "n2\n"
        "  gpu.example.com/n2  generation 1\n"
        "    gpu-0  free; taint example.com/broken:NoSchedule\n"
    )
