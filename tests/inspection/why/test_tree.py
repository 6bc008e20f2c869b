"""The tree that `why` prints."""

from dra_extender.inspection.lines import WIDTH
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import consumption, counter_set, device, device_class, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'


def test_tree_has_the_nearest_device_its_comparison_and_the_next_step() -> None:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0", capacity={"memory": "20Gi"}))
    made.gpus("n2", device("gpu-0", capacity={"memory": "40Gi"}))
    made.pod("train", request("gpu", "gpu", LARGE))

    assert tree(why(made.view(), NAMESPACE, "train")) == (
        "ml/train  Pending 12m, dra-extender-scheduler, fits 0 of 2 nodes\n"
        "└ claim gpu, request gpu (1 x gpu)\n"
        "  2 nodes  no device matches the selectors; nearest n2/gpu-0\n"
        "           memory is 40Gi, wanted at least 80Gi (request selector 1)\n"
        "  next  ask for memory >= 40Gi  ok on n2\n"
    )


def test_tree_has_what_is_left_of_a_counter_and_who_holds_it() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    parts = [device(f"mig-{index}", consumes=[consumption("gpu-0", sm="42")]) for index in range(3)]
    made.partitions("n1", [counter_set("gpu-0", sm="98")], parts)
    made.running("a", "n1", "mig-0", request("gpu", "gpu"))
    made.running("b", "n1", "mig-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))

    lines = tree(why(made.view(), NAMESPACE, "train")).splitlines()

    assert "          gpu-0 sm: needs 42, 14 of 98 left" in lines
    assert "          held by ml/a 42, ml/b 42" in lines
    assert "  next  end ml/a  ok on n1" in lines


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
