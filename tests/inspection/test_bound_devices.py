"""What is said of a shared device that `bindsToNode` keeps on a node: by `why`, for one node, by `devices`, and by `what-if`."""

import pytest
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.devices_table import devices_wide
from dra_extender.inspection.devices_tree import devices_tree
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, NOW, MadeCluster, objects_on

FABRIC = "gpu.example.com"


@pytest.fixture
def made() -> MadeCluster:
    """Pod `old` has a share of the only fabric device, on n1; pod `train` may run on n2 alone."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("fabric"))
    shared = device("port-0", allowMultipleAllocations=True, bindsToNode=True)
    made.add(resource_slice("rack", pool="rack", devices=[shared], allNodes=True))
    made.running("old", "n1", "port-0", request("gpu", "fabric"))
    allocation = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0].update(pool="rack", shareID="3b1c9b8e-0000-4000-8000-000000000001")
    allocation["nodeSelector"] = objects_on("n1")
    made.pod("train", request("gpu", "fabric"), nodeSelector={"kubernetes.io/hostname": "n2"})
    return made


def test_why_names_the_device_and_the_node_that_has_it(made: MadeCluster) -> None:
    report = why_on_node(made.view(), NAMESPACE, "train", "n2")
    assert not report.fits
    (found,) = report.requests[0].devices
    assert found.code == "BOUND_ELSEWHERE"
    assert found.device.detail == "port-0 is bound to node n1 as long as a claim has a share of it there"
    assert why_on_node(made.view(), NAMESPACE, "train", "n1").requests[0].devices[0].code == ""


def test_why_names_who_keeps_the_device(made: MadeCluster) -> None:
    report = why(made.view(), NAMESPACE, "train")
    (reason,) = [each for branch in report.branches for each in branch.reasons if each.code == "BOUND_ELSEWHERE"]
    assert "bound to another node" in reason.text
    assert reason.nearest is not None
    assert [each.holder.claim for each in reason.nearest.holders] == [f"{NAMESPACE}/claim-old"]


def test_devices_say_to_which_node_a_device_is_bound(made: MadeCluster) -> None:
    report = devices_report(made.view())
    assert "bound to node n1" in devices_tree(report, NOW)
    assert "bound to node n1" in devices_wide(report, NOW)
