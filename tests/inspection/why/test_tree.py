"""The tree that `why` prints."""

from dra_extender.inspection.lines import WIDTH
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


def test_no_line_is_wider_than_a_terminal() -> None:
    made = MadeCluster()
    made.nodes(*(f"node-with-a-rather-long-name-{index}" for index in range(4)))
    made.add(device_class("gpu"))
    made.gpus("node-with-a-rather-long-name-0", device("gpu-0", attributes={"model": "some model " * 8}))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "another one"'))

    assert all(len(line) <= WIDTH for line in tree(why(made.view(), NAMESPACE, "train")).splitlines())


def test_control_characters_of_tenants_are_not_sent_to_the_terminal() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0", attributes={"model": "a\x1b[2J\x07"}))
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    made.objects["pods"][-1]["spec"]["schedulerName"] = "\x1b]0;title\x07"

    text = tree(why(made.view(), NAMESPACE, "train"))

    assert all(line.isprintable() for line in text.splitlines())
    assert "\\u001b]0;title\\u0007" in text


def test_name_of_a_pool_may_have_slashes() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    made.add(resource_slice("a", pool="rack-1/tray-2", node="n1", devices=[device("gpu-0", taints=[taint])]))
    made.pod("train", request("gpu", "gpu"))
    report = why(made.view(), NAMESPACE, "train")
    assert "nearest n1/rack-1/tray-2/gpu-0" in tree(report)
    assert [each.text for each in report.next] == ["tolerate example.com/broken:NoSchedule"]
