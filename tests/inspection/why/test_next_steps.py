"""The smallest sets of changes after which a pod, or a gang, fits."""

import random
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.snapshot_file import read_snapshot
from dra_extender.inspection.why import reasons, trials
from dra_extender.inspection.why.report import DEVICES_AND_NODES, Cause, NextStep
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    pod,
    pod_group,
    request,
    resource_claim,
)
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "snapshots" / "fragmented.tar.gz"
BROKEN = {"key": "example.com/broken", "effect": "NoSchedule"}


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    return made


def found(made: MadeCluster, name: str = "train") -> tuple[NextStep, ...]:
    return why(made.view(), NAMESPACE, name).next


def steps(made: MadeCluster, name: str = "train") -> dict[str, tuple[str, ...]]:
    """The steps that were found to help with devices and nodes, with the nodes."""
    return {each.text: each.nodes for each in found(made, name) if each.verified == DEVICES_AND_NODES}


def memory(amount: str) -> str:
    return f'device.capacity["gpu.example.com"].memory.compareTo(quantity("{amount}")) >= 0'


def held_gpus(made: MadeCluster, nodes: int) -> None:
    """Nodes n1, n2, ... with a GPU each, which the pods h1, h2, ... have."""
    made.nodes(*(f"n{number}" for number in range(2, nodes + 1)))
    for number in range(1, nodes + 1):
        made.gpus(f"n{number}", device("gpu-0"))
        made.running(f"h{number}", f"n{number}", "gpu-0", request("r", "gpu"))


def gang(made: MadeCluster, size: int) -> None:
    made.add(pod_group("train", NAMESPACE, min_count=size))
    for name in ("train", *(f"train-{number}" for number in range(1, size))):
        made.pod(name, request("gpu", "gpu"), schedulingGroup={"podGroupName": "train"})


# Single changes.


def test_request_that_gets_no_device_beside_the_others_is_left_out(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("a", "gpu"), request("b", "gpu"))
    assert steps(made) == {"do without request b": ("n1",)}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ((request("a", "gpu", count=33),), "ask for 32 devices"),
        ((request("a", "gpu", count=2), request("b", "gpu", count=40)), "ask for 30 devices in request b"),
    ],
)
def test_as_many_devices_are_asked_for_as_a_claim_may_have(
    made: MadeCluster, asked: tuple[dict[str, Any], ...], text: str
) -> None:
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(45)))
    made.pod("train", *asked)
    assert steps(made) == {text: ("n1",)}


def test_pod_that_lacks_cpu_gets_it_from_the_pod_that_takes_least_of_what_is_enough(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    for name, cpu in (("small", "1"), ("middle", "20"), ("large", "42")):
        made.add(pod(name, NAMESPACE, cpu=cpu, nodeName="n1"))
    made.pod("train", request("gpu", "gpu"), cpu="10")
    assert steps(made) == {"ask for 1 of cpu": ("n1",), "end ml/middle": ("n1",)}


# Sets of changes.


def test_three_changes_are_found_where_two_are_not_enough(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0", capacity={"memory": "40Gi"}, taints=[BROKEN]))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.pod("train", request("g", "gpu", memory("80Gi")))
    (step,) = steps(made)
    assert set(step.split(", ")) == {"ask for memory >= 40Gi", "tolerate example.com/broken:NoSchedule", "end ml/old"}


def test_two_changes_of_one_pod_are_tried_together(made: MadeCluster) -> None:
    for name in ("gpu", "nic"):
        driver = f"{name}.example.com"
        made.add(device_class(name, f'device.driver == "{driver}"', extendedResourceName=f"example.com/{name}"))
        made.gpus("n1", device(f"{name}-0"), driver=driver)
    made.add(pod("train", NAMESPACE, extended={"example.com/gpu": "2", "example.com/nic": "2"}))
    assert steps(made) == {"ask for 1 of example.com/gpu, ask for 1 of example.com/nic": ("n1",)}


def test_trials_of_sets_are_bounded(made: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "SECONDS", 3600.0)
    monkeypatch.setattr(trials, "MOST_TRIALS", 7)
    made.gpus("n1", *(device(f"gpu-{n}", capacity={"memory": f"{n}Gi"}, taints=[BROKEN]) for n in range(1, 9)))
    made.pod("train", request("g", "gpu", memory("80Gi")), request("h", "gpu", memory("70Gi")))
    report = why(made.view(), NAMESPACE, "train")
    assert "7 changes were tried, which is the limit" in report.notes


# Gangs.


def test_gang_ends_no_more_pods_than_it_is_short_of(made: MadeCluster) -> None:
    held_gpus(made, nodes=3)
    made.nodes("free")
    made.gpus("free", device("gpu-0"))
    gang(made, 3)
    (step,) = found(made, "train-2")
    assert step.text == "end ml/h1, ml/h2"


def test_each_reason_against_a_gang_has_its_share_of_the_trials() -> None:
    """Shared counters keep the gang from seven nodes of the example, and devices in use from two: both can be freed by two pods."""
    view = ClusterView(read_snapshot(EXAMPLE))
    ends = [each.text.removeprefix("end ").split(", ") for each in why(view, NAMESPACE, "sweep-0").next]
    assert [len(each) for each in ends] == [2, 2]


# The smallest sets.


@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_set_of_pods_lets_the_pod_fit(seed: int) -> None:
    chance = random.Random(seed)
    made = MadeCluster()
    made.add(device_class("gpu"))
    holders = [holder for name in ("n1", "n2") for holder in partly_held(made, name, chance)]
    made.pod("train", request("whole", "gpu", 'device.attributes["gpu.example.com"].kind == "whole"'))
    least = next(
        size
        for size in range(1, len(holders) + 1)
        if any(fits_without(made, each) for each in combinations(holders, size))
    )
    named = [each.removeprefix("end ").replace("ml/", "").split(", ") for each in steps(made)]
    assert min(map(len, named)) == least
    assert all(fits_without(made, each) for each in named)


def partly_held(made: MadeCluster, node: str, chance: random.Random) -> list[str]:
    """A node whose parts of a GPU are held, each by a pod, and a device that needs more units of it than are left."""
    made.nodes(node)
    parts = [chance.randint(1, 4) for _ in range(chance.randint(2, 4))]
    free = chance.randint(0, 2)
    whole = chance.randint(free + 1, sum(parts) + free)
    made.partitions(
        node,
        [counter_set("gpu-0", units=str(sum(parts) + free))],
        [
            device("whole", attributes={"kind": "whole"}, consumes=[consumption("gpu-0", units=str(whole))]),
            *(
                device(f"part-{index}", attributes={"kind": "part"}, consumes=[consumption("gpu-0", units=str(units))])
                for index, units in enumerate(parts)
            ),
        ],
    )
    names = [f"{node}-{index}" for index in range(len(parts))]
    for index, name in enumerate(names):
        made.running(name, node, f"part-{index}", request("r", "gpu"))
    return names


def fits_without(made: MadeCluster, ended: Sequence[str]) -> bool:
    left = MadeCluster()
    left.objects = {kind: list(items) for kind, items in made.objects.items()}
    left.objects["pods"] = [each for each in made.objects["pods"] if each["metadata"]["name"] not in ended]
    left.objects["resourceclaims"] = [
        each for each in made.objects["resourceclaims"] if each["metadata"]["name"].removeprefix("claim-") not in ended
    ]
    return why(left.view(), NAMESPACE, "train").fitting > 0


# What no trial can tell.


def test_missing_pod_group_is_the_cause_and_is_to_be_created(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"), schedulingGroup={"podGroupName": "absent"})
    report = why(made.view(), NAMESPACE, "train")
    assert (report.cause, [each.text for each in report.next]) == (Cause.POD_GROUP, ["create PodGroup ml/absent"])


def test_claim_of_another_object_is_said_and_the_pod_is_to_be_created_again(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.add(
        resource_claim("theirs", NAMESPACE, request("gpu", "gpu")), pod("train", NAMESPACE, templates={"gpu": "one"})
    )
    made.objects["pods"][-1]["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}
    (step,) = found(made)
    assert step.text.startswith("create the pod again")


def test_devices_that_the_extender_leaves_alone_for_a_while_are_waited_for(made: MadeCluster) -> None:
    """The extender alone knows that; kube-scheduler reports it."""
    made.gpus("n1", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    message = f"0/1 nodes are available: 1 node(s): {Code.DEVICES_IN_BACKOFF.value}."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made.objects["pods"][-1]["status"] = {"phase": "Pending", "conditions": [condition]}
    (step,) = found(made)
    assert step.text.startswith("wait until the extender tries again")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1, 1, ["do without claim b"]),
        (2, 1, ["ask for 1 device in request r of claim a", "do without claim b"]),
        (1, 2, ["ask for 1 device in request r of claim b", "do without claim b"]),
    ],
)
def test_claims_of_one_pod_that_compete_give_way_to_each_other(
    made: MadeCluster, first: int, second: int, expected: list[str]
) -> None:
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(max(first, second))))
    for name, count in (("a", first), ("b", second)):
        made.add(resource_claim(name, NAMESPACE, request("r", "gpu", count=count)))
    made.add(pod("train", NAMESPACE, claims={"a": "a", "b": "b"}))
    assert [step.text for step in found(made)] == expected
    assert set(steps(made)) == set(expected)


def test_claims_that_do_not_compete_stay_as_they_are(made: MadeCluster) -> None:
    made.gpus("n1", device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    for name in ("a", "b"):
        made.add(resource_claim(name, NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, claims={"a": "a", "b": "b"}))
    assert not [step.text for step in found(made) if "claim a" in step.text]


def test_pod_gives_up_one_claim_before_somebody_else_is_hurt(made: MadeCluster) -> None:
    made.nodes("n2")
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("r", "gpu"))
    made.add(resource_claim("own", NAMESPACE, request("r", "gpu")))
    made.add(pod("train", NAMESPACE, claims={"shared": "claim-old", "own": "own"}))
    (step,) = found(made)
    assert step.text == "do without claim own"
    assert not step.harmful


def test_json_names_the_taints_that_the_request_does_not_tolerate(made: MadeCluster) -> None:
    made.nodes("n1")
    taints = [{"key": f"example.com/{key}", "effect": "NoSchedule"} for key in "xy"]
    made.gpus("n1", device("gpu-0", taints=taints))
    made.pod("train", request("r", "gpu", tolerations=[{"key": "example.com/x", "operator": "Exists"}]))
    (branch,) = why(made.view(), NAMESPACE, "train").branches
    nearest = branch.reasons[0].nearest
    assert nearest is not None
    assert nearest.taints == ("example.com/y:NoSchedule",)
