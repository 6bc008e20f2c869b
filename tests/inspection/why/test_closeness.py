"""The nodes that come closest decide what is said first, however many others there are."""

from dra_extender.allocator.state.reasons import CLOSEST_FIRST, NEAREST_MISS_FIRST, Code, Rejection, closeness
from dra_extender.inspection.why.gang import blocker_text
from dra_extender.inspection.why.report import WhyReport
from dra_extender.inspection.why.waiting import WaitingCause, waiting
from dra_extender.inspection.why.why import why
from dra_extender.scheduling.evaluation.filter_result import MOST_REASONS, FilterResult

from tests.controlplane.objects import device, device_class, node, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

NIC = "nic.example.com"
OTHERS = [f"other-{number:02}" for number in range(47)]


def cluster() -> MadeCluster:
    """Of 50 nodes 47 have devices of another driver, two have none, and one has a GPU that pod `old` has."""
    made = MadeCluster()
    made.nodes(*OTHERS, "bare-1", "bare-2", "gpu-node")
    made.add(device_class("gpu"), device_class("nic", f'device.driver == "{NIC}"'))
    for name in OTHERS:
        made.gpus(name, device("nic-0"), driver=NIC)
    made.gpus("gpu-node", device("gpu-0"))
    made.running("old", "gpu-node", "gpu-0", request("r", "gpu"))
    return made


def answer(made: MadeCluster) -> WhyReport:
    return why(made.view(), NAMESPACE, "train")


def row(made: MadeCluster) -> WaitingCause:
    (found,) = waiting(made.view()).causes
    return found


def test_one_node_with_the_device_in_use_decides_beside_47_without_the_driver() -> None:
    made = cluster()
    made.pod("train", request("r", "gpu"))
    report = answer(made)
    (branch,) = report.branches
    assert [(each.code, each.nodes) for each in branch.reasons] == [("IN_USE", 1), ("NO_MATCH", 47), ("NO_DEVICES", 2)]
    assert report.next[0].text == "end ml/old"
    assert blocker_text(report.branches).startswith("r: matching devices are in use (1 node)")
    found = row(made)
    assert (found.code, found.text) == ("IN_USE", "matching devices are in use")


def test_of_nodes_without_a_match_the_nearest_device_decides() -> None:
    made = cluster()
    memory = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("{}")) >= 0'
    made.nodes("small-1", "small-2", "close")
    made.gpus("small-1", device("gpu-0", capacity={"memory": "10Gi"}))
    made.gpus("small-2", device("gpu-0", capacity={"memory": "10Gi"}, attributes={"model": "B"}))
    made.gpus("close", device("gpu-0", capacity={"memory": "40Gi"}))
    made.objects["resourceslices"] = [
        each for each in made.objects["resourceslices"] if each["spec"].get("nodeName") != "gpu-node"
    ]
    made.pod("train", request("r", "gpu", memory.format("80Gi")))
    first, second, *_ = answer(made).branches[0].reasons
    assert first.nearest is not None
    assert (first.nearest.node, second.text) == ("close", "no device of driver gpu.example.com")


def test_nodes_that_the_pod_may_not_use_come_last() -> None:
    made = cluster()
    made.add(node("meant", labels={"team": "a"}))
    made.pod("train", request("r", "gpu"), nodeSelector={"team": "a"})
    assert answer(made).branches[0].reasons[0].code == "NO_DEVICES"
    assert row(made).code == "NO_DEVICES"


def test_node_that_lacks_an_amount_is_closer_than_nodes_that_the_selector_excludes() -> None:
    made = cluster()
    made.add(node("meant", labels={"team": "a"}, cpu="1"))
    made.gpus("meant", device("gpu-0"))
    for name in ("far-1", "far-2"):
        made.nodes(name)
        made.gpus(name, device("gpu-0"))
    made.pod("train", request("r", "gpu"), nodeSelector={"team": "a"}, cpu="4")
    assert answer(made).beside[0].text == "Insufficient cpu"
    assert row(made).text == "Insufficient cpu"


def test_reasons_that_are_left_out_are_those_of_the_farthest_nodes() -> None:
    result = FilterResult()
    far = [f"far-{number}" for number in range(MOST_REASONS + 2)]
    rejections = {name: Rejection(code=Code.NO_DEVICES, claim=name) for name in far}
    near = Rejection(code=Code.IN_USE, claim="gpu")
    result.reject_all(["near"], near)
    for name, rejection in rejections.items():
        result.reject_all([name, f"{name}-too"], rejection)
    assert result.why()[0].rejection == near
    assert result.node_statuses()["near"] == near.summary


def test_every_code_of_devices_has_a_place() -> None:
    assert len(set(CLOSEST_FIRST)) == len(CLOSEST_FIRST)
    assert set(NEAREST_MISS_FIRST) < set(CLOSEST_FIRST)
    assert closeness(Code.CLAIM_MISSING) == closeness(Code.CLASS_MISSING) == 0
