"""What is where: pools, counter sets, devices and their holders."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.cli.cluster_source import use_policy_file
from dra_extender.inspection.devices import DevicesReport, DeviceUse, devices_report
from dra_extender.inspection.objects import UnknownObjectError
from dra_extender.inspection.text.devices import devices_csv, devices_tree, devices_wide

from tests.controlplane.objects import consumption, device, request, resource_slice
from tests.support.inspection.made_cluster import NOW, MadeCluster, partitions_and_a_taint

CSV_HEADER = (
    *("node", "driver", "pool", "device", "state", "claim", "pods", "since"),
    *("counters", "groups", "capacity", "taints", "conditions", "notes"),
)


@pytest.fixture
def made() -> MadeCluster:
    return partitions_and_a_taint()


def of_network(name: str, **fields: Any) -> dict[str, Any]:
    """A pool for several nodes."""
    return resource_slice(name, driver="net.example.com", pool=name, devices=[device("nic")], **fields)


def for_host(operator: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": list(values)}]}
    return {"nodeSelectorTerms": [term]}


def test_devices_of_a_node_are_those_that_the_allocator_looks_at_there(made: MadeCluster) -> None:
    made.add(of_network("here", nodeSelector=for_host("In", "n2")), of_network("all", allNodes=True))
    made.add(
        of_network("there", nodeSelector=for_host("NotIn", "n2")), of_network("bad", nodeSelector=for_host("Oops"))
    )
    assert [each.pool for each in devices_report(made.view(), "n2").pools] == ["all", "here", "n2"]


def by_name(report: DevicesReport) -> dict[str, DeviceUse]:
    return {f"{pool.pool}/{each.name}": each for pool in report.pools for each in (*pool.devices, *pool.gone)}


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
    assert "gpu-9  ml/ghost (claim claim-ghost), not published any more" in devices_tree(report)


def test_unknown_node_is_refused_with_where_it_was_looked_for(made: MadeCluster) -> None:
    with pytest.raises(UnknownObjectError, match="node n9 does not exist in a test"):
        devices_report(made.view(), "n9")


def test_tree_has_a_bar_for_each_counter(made: MadeCluster) -> None:
    assert devices_tree(devices_report(made.view())) == (
        "n1\n"
        "  gpu.example.com/n1  generation 1\n"
        "    gpu-0  sm [####      ] 42/98  groups [mig]\n"
        "      mig-0  ml/train (claim claim-train)\n"
        "      mig-1  usable\n"
        "n2\n"
        "  gpu.example.com/n2  generation 1\n"
        "    gpu-0  unusable: tainted; taint example.com/broken:NoSchedule\n"
    )


def test_shared_device_has_a_bar_and_below_it_each_share_with_what_it_takes(made: MadeCluster) -> None:
    nic = device("nic-0", capacity={"bandwidth": "100"}, allowMultipleAllocations=True)
    made.gpus("n2", nic, driver="nic.example.com")
    for index, amount in enumerate(("20", "25")):
        made.running(f"s{index}", "n2", "nic-0", request("nic", "nic"), driver="nic.example.com")
        result = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"][0]
        result.update(shareID=f"share-{index}", consumedCapacity={"bandwidth": amount})

    report = devices_report(made.view(), driver="nic.example.com")

    (shared,) = report.pools[0].devices
    assert [(each.claim, each.capacity) for each in shared.shares] == [
        ("ml/claim-s0", (("bandwidth", 20 * NANO),)),
        ("ml/claim-s1", (("bandwidth", 25 * NANO),)),
    ]
    assert devices_tree(report).splitlines()[2:] == [
        "    nic-0  bandwidth [####      ] 45/100",
        "      ml/s0 (claim claim-s0)  bandwidth 20",
        "      ml/s1 (claim claim-s1)  bandwidth 25",
    ]
    rows = list(csv.DictReader(io.StringIO(devices_csv(report))))
    assert [(row["claim"], row["pods"], row["capacity"]) for row in rows] == [
        ("ml/claim-s0", "ml/s0", "bandwidth=20/100"),
        ("ml/claim-s1", "ml/s1", "bandwidth=25/100"),
    ]


def test_device_whose_conditions_are_not_true_yet_has_the_claim_that_waits_and_until_when(made: MadeCluster) -> None:
    fields: dict[str, Any] = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    made.gpus("n2", device("port-0", **fields), driver="fabric.example.com")
    made.running("slow", "n2", "port-0", request("port", "port"), driver="fabric.example.com")
    allocation = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0].update(fields)
    allocation["allocationTimestamp"] = "2026-11-25T09:46:30Z"

    report = devices_report(made.view(), driver="fabric.example.com")

    (found,) = report.pools[0].devices[0].conditions
    assert (found.claim, found.conditions, found.state) == ("ml/claim-slow", ("Attached",), "pending")
    assert found.limit == pytest.approx(NOW + 590)
    assert "port-0  ml/slow (claim claim-slow) 10s; Attached pending for ml/claim-slow" in devices_tree(report)


def test_pool_that_the_allocator_refuses_is_said_with_the_reason(made: MadeCluster) -> None:
    made.add(resource_slice("half", node="n2", driver="half.example.com", slice_count=2, devices=[device("d")]))
    report = devices_report(made.view(), driver="half.example.com")
    assert (report.pools[0].complete, report.pools[0].problem) == (False, "pool half.example.com/n2 has 1 of 2 slices")
    assert "generation 1, pool half.example.com/n2 has 1 of 2 slices" in devices_tree(report)


def test_table_has_groups_of_the_device_and_those_in_force_where_they_differ(made: MadeCluster) -> None:
    other = device("vgpu-0", consumes=[consumption("gpu-0", groups=["vgpu"], sm="10")])
    made.objects["resourceslices"][1]["spec"]["devices"].append(other)
    table = csv.DictReader(io.StringIO(devices_csv(devices_report(made.view(), "n1"))))
    rows = {row["device"]: row for row in table}
    assert (rows["mig-1"]["state"], rows["mig-1"]["groups"]) == ("usable", "gpu-0 [mig]")
    assert (rows["vgpu-0"]["groups"], rows["vgpu-0"]["counters"]) == ("gpu-0 [vgpu] in force [mig]", "gpu-0 sm=10")


def test_wide_table_is_aligned_and_says_since_when(made: MadeCluster) -> None:
    made.objects["resourceclaims"][-1]["status"]["allocation"]["allocationTimestamp"] = "2026-11-25T06:46:40Z"
    lines = devices_wide(devices_report(made.view(), "n1")).splitlines()
    assert lines[0].split() == [each.upper() for each in CSV_HEADER]
    assert lines[1].split()[:8] == [
        "n1",
        "gpu.example.com",
        "n1",
        "mig-0",
        "allocated",
        "ml/claim-train",
        "ml/train",
        "3h",
    ]
    assert len({line.index("allocated" if "allocated" in line else "usable") for line in lines[1:]}) == 1


def test_hostile_names_are_no_formulas_and_no_control_sequences_in_csv(made: MadeCluster) -> None:
    """Whoever publishes slices or writes claims chooses these texts; a spreadsheet of any locale must show them."""
    made.gpus(
        "n2",
        device("=cmd|' /C calc'!A0"),
        device('x";=1+1'),
        device("a,@SUM(1)\n-2"),
        device("\x1b]0;owned\x07", taints=[{"key": "+1", "effect": "NoSchedule"}]),
        driver="evil.example.com",
    )
    made.running("at", "n2", "=cmd|' /C calc'!A0", request("r", "r"), driver="evil.example.com")
    made.objects["resourceclaims"][-1]["status"]["allocation"]["allocationTimestamp"] = "9999-12-31T23:59:59-23:59"

    text = devices_csv(devices_report(made.view(), driver="evil.example.com"))

    assert all(each.isprintable() or each in "\r\n" for each in text)
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            assert not [cell for cell in row if cell.lstrip().startswith(("=", "+", "-", "@"))], delimiter
    assert [row["device"] for row in csv.DictReader(io.StringIO(text))] == [
        "'=cmd|' /C calc'!A0",
        "x\";'=1+1",
        "a,'@SUM(1)\\n-2",
        "\\u001b]0;owned\\u0007",
    ]


def test_physical_device_of_the_policy_is_called_so(made: MadeCluster, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules:\n- name: one\n  driver: gpu.example.com\n  pool: n2\n  physicalDevice: \"'card-0'\"\n")
    view = made.view()
    assert use_policy_file(view, policy) == ()
    assert "    physical device card-0\n      gpu-0  unusable: tainted" in devices_tree(devices_report(view, "n2"))
