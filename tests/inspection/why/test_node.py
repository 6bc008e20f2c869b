"""Every device of one node with the verdict for each request of a pod."""

import pytest
from dra_extender.inspection.objects import UnknownObjectError
from dra_extender.inspection.text.why import node_tree
from dra_extender.inspection.why import node
from dra_extender.inspection.why.node import NodeDevicesReport, why_on_node

from tests.controlplane.objects import consumption, counter_set, device, device_class, pod, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

MIG = 'device.attributes["gpu.example.com"].kind == "mig"'


@pytest.fixture
def made() -> MadeCluster:
    """A node with a divided GPU, and a pod that wants a part and a tainted NIC."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"), device_class("nic", 'device.driver == "nic.example.com"'))
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [
            *(
                device(f"mig-{index}", attributes={"kind": "mig"}, consumes=[consumption("gpu-0", sm="42")])
                for index in range(2)
            ),
            device("whole", attributes={"kind": "whole"}, consumes=[consumption("gpu-0", sm="98")]),
        ],
    )
    taint = {"key": "example.com/cable", "effect": "NoSchedule"}
    made.gpus("n1", device("nic-0", taints=[taint]), driver="nic.example.com")
    made.running("old", "n1", "mig-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", MIG), request("nic", "nic"))
    return made


def asked(made: MadeCluster, node: str = "n1") -> NodeDevicesReport:
    return why_on_node(made.view(), NAMESPACE, "train", node)


def test_tree_has_a_line_for_each_device_and_what_keeps_it_away(made: MadeCluster) -> None:
    assert node_tree(asked(made)) == (
        'ml/train on n1  claim "gpu", request "nic": matching devices are tainted: nic-0\n'
        "    has taint example.com/cable:NoSchedule\n"
        "└ claim gpu, request gpu (1 x gpu): 1 free by themselves\n"
        "  n1/mig-0  matching devices are in use\n"
        "            held by ml/old\n"
        "  n1/mig-1  ok\n"
        '  n1/whole  kind is "whole", wanted "mig"\n'
        '  n1/nic-0  device.driver is "nic.example.com", wanted "gpu.example.com"\n'
        "└ claim gpu, request nic (1 x nic): 0 free by themselves\n"
        '  n1/mig-0  device.driver is "gpu.example.com", wanted "nic.example.com"\n'
        '  n1/mig-1  device.driver is "gpu.example.com", wanted "nic.example.com"\n'
        '  n1/whole  device.driver is "gpu.example.com", wanted "nic.example.com"\n'
        "  n1/nic-0  matching devices are tainted\n"
        "            nic-0 has taint example.com/cable:NoSchedule\n"
    )


def test_node_without_devices_and_what_is_beside_devices_are_said(made: MadeCluster) -> None:
    made.objects["nodes"][1]["spec"] = {"unschedulable": True}
    partition = device("mig-0", attributes={"kind": "mig"})
    made.add(resource_slice("half", node="n2", devices=[partition], slice_count=3, generation=4))

    assert node_tree(asked(made, "n2")) == (
        'ml/train on n2  claim "gpu", request "gpu": resource pool is being updated: pool\n'
        "    gpu.example.com/n2 has 1 of 3 slices\n"
        "  beside devices: node(s) were unschedulable\n"
        "  incomplete: gpu.example.com/n2: 1 of 3 slices of generation 4\n"
        "└ claim gpu, request gpu (1 x gpu): 0 free by themselves\n"
        "  no devices\n"
        "└ claim gpu, request nic (1 x nic): 0 free by themselves\n"
        "  no devices\n"
    )


def test_extended_resource_is_named_with_its_container() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.add(pod("train", NAMESPACE, cpu="0", extended={"example.com/gpu": "1"}))
    text = node_tree(asked(made))
    assert '└ extended resource example.com/gpu of container "main" (1 x backed): 1 free by\n    themselves\n' in text


def test_node_that_fits_is_said_to_fit(made: MadeCluster) -> None:
    made.pod("small", request("gpu", "gpu", MIG))
    report = why_on_node(made.view(), NAMESPACE, "small", "n1")
    assert report.fits
    assert node_tree(report).splitlines()[0] == "ml/small on n1  devices would suffice"


def test_unknown_node_and_unknown_pod_are_refused(made: MadeCluster) -> None:
    with pytest.raises(UnknownObjectError, match="node n9 does not exist in a test"):
        asked(made, "n9")
    with pytest.raises(UnknownObjectError, match="pod ml/nobody does not exist in a test"):
        why_on_node(made.view(), NAMESPACE, "nobody", "n1")


@pytest.mark.parametrize(("most", "notes"), [(3, ("the first 3 devices are listed",)), (4, ())])
def test_that_a_long_list_is_cut_is_said(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch, most: int, notes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(node, "MOST_DEVICES", most)
    report = asked(made)
    assert [len(each.devices) for each in report.requests] == [min(most, 4)] * 2
    assert report.notes == notes
