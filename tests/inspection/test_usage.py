"""Who uses how much: devices, shares, counters and capacity by namespace, class and driver."""

import csv
import io
from typing import Any

import pytest
from dra_extender.cel.values.quantity import NANO
from dra_extender.inspection.objects import MissingKind
from dra_extender.inspection.text.devices import usage_csv, usage_tree
from dra_extender.inspection.usage import UsageReport, UsageRow, usage_report

from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"), device_class("mig"))
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [device(f"mig-{index}", consumes=[consumption("gpu-0", sm="14")]) for index in range(3)],
    )
    made.gpus("n2", device("gpu-0"), device("gpu-1"))
    nic = device("nic-0", capacity={"bandwidth": "100"}, allowMultipleAllocations=True)
    made.gpus("n2", nic, driver="nic.example.com")
    return made


def running(made: MadeCluster, name: str, node: str, found: str, device_class: str, **fields: Any) -> dict[str, Any]:
    """A running pod with this device of a class; returns the result of its claim."""
    driver = fields.pop("driver", "gpu.example.com")
    made.running(name, node, found, request("r", device_class), driver=driver)
    result: dict[str, Any] = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"][0]
    result.update(fields)
    return result


def rows(report: UsageReport) -> dict[tuple[str, str], UsageRow]:
    return {(each.namespace, each.device_class): each for each in report.rows}


def test_devices_are_counted_by_namespace_and_class_with_what_they_draw(made: MadeCluster) -> None:
    running(made, "a", "n1", "mig-0", "mig")
    running(made, "b", "n1", "mig-1", "mig")
    running(made, "c", "n2", "gpu-0", "gpu")

    report = usage_report(made.view())

    found = rows(report)
    assert (found["ml", "mig"].devices, found["ml", "mig"].claims, found["ml", "mig"].pods) == (2, 2, 2)
    assert found["ml", "mig"].counters == (("sm", 28 * NANO),)
    assert (found["ml", "gpu"].devices, found["ml", "gpu"].counters) == (1, ())
    assert [(each.driver, each.devices, each.in_use) for each in report.drivers] == [
        ("gpu.example.com", 5, 3),
        ("nic.example.com", 1, 0),
    ]
    assert usage_tree(report) == (
        "ml  3 devices\n"
        "  gpu (gpu.example.com)  1 device; 1 claim of 1 pod\n"
        "  mig (gpu.example.com)  2 devices; 2 claims of 2 pods; counters sm=28\n"
        "gpu.example.com  3 of 5 devices in use, 2 usable\n"
        "nic.example.com  0 of 1 devices in use, 1 usable\n"
    )


def test_shares_count_with_what_they_take_and_their_device_is_in_use_once(made: MadeCluster) -> None:
    for name, amount in (("a", "20"), ("b", "25")):
        running(
            made,
            name,
            "n2",
            "nic-0",
            "nic",
            driver="nic.example.com",
            shareID=f"share-{name}",
            consumedCapacity={"bandwidth": amount},
        )

    report = usage_report(made.view())

    (row,) = report.rows
    assert (row.devices, row.shares, row.capacity) == (0, 2, (("bandwidth", 45 * NANO),))
    assert report.drivers[1].in_use == 1
    assert "ml  2 shares\n" in usage_tree(report)


def test_observers_take_nothing(made: MadeCluster) -> None:
    running(made, "watcher", "n2", "gpu-0", "gpu", adminAccess=True)
    report = usage_report(made.view())
    assert (report.rows[0].devices, report.rows[0].observed, report.drivers[0].in_use) == (0, 1, 0)


def test_alternative_of_a_request_counts_for_its_own_class(made: MadeCluster) -> None:
    running(made, "a", "n1", "mig-0", "mig", request="r/small")
    options = [{"name": "large", "deviceClassName": "gpu"}, {"name": "small", "deviceClassName": "mig"}]
    made.objects["resourceclaims"][-1]["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": options}]
    assert list(rows(usage_report(made.view()))) == [("ml", "mig")]


def test_request_that_the_claim_does_not_have_is_of_an_unknown_class(made: MadeCluster) -> None:
    running(made, "a", "n1", "mig-0", "mig", request="absent")
    assert "  class unknown (gpu.example.com)  1 device" in usage_tree(usage_report(made.view()))


def test_csv_has_the_rows_and_no_formulas(made: MadeCluster) -> None:
    running(made, "a", "n1", "mig-0", "=1+1")
    (row,) = csv.DictReader(io.StringIO(usage_csv(usage_report(made.view()))))
    assert (row["namespace"], row["class"], row["devices"], row["counters"]) == ("ml", "'=1+1", "1", "sm=14")


def test_cluster_without_devices_is_said() -> None:
    assert usage_tree(usage_report(MadeCluster().view())) == "no devices\n"


def test_nothing_is_said_of_devices_held_or_free_if_nodes_could_not_be_read(made: MadeCluster) -> None:
    made.missing = (MissingKind(kind="nodes", reason="403 Forbidden"),)
    running(made, "a", "n2", "gpu-0", "gpu")
    report = usage_report(made.view())
    assert [(each.held, each.free) for each in report.drivers] == [(0, None), (0, None)]
    assert usage_tree(report).splitlines()[-2:] == [
        "gpu.example.com  1 of 5 devices in use",
        "nic.example.com  0 of 1 devices in use",
    ]
