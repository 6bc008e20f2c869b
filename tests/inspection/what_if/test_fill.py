"""How many more of a pod fit: what repeated placing says, why no more, and what is stranded."""

from typing import Any

import pytest
from dra_extender.cel.budget import Budget
from dra_extender.cel.values.quantity import NANO
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.what_if import fill
from dra_extender.inspection.what_if.changes import ChangeError
from dra_extender.inspection.what_if.report import Fill
from dra_extender.inspection.what_if.what_if import what_if

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    pod,
    request,
    resource_claim_template,
)
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    return made


def template(made: MadeCluster, name: str, *requests: dict[str, Any]) -> None:
    for each in requests:
        each["exactly"]["allocationMode"] = "ExactCount"
    made.add(resource_claim_template(name, NAMESPACE, *requests))


async def filled(made: MadeCluster, name: str, most: int = 100) -> Fill:
    report = await what_if(made.cluster(), subject=(NAMESPACE, name), most=most)
    assert report.fill is not None
    return report.fill


async def test_copies_of_a_pod_have_claims_of_their_own_from_its_template(made: MadeCluster) -> None:
    for node, count in (("n1", 3), ("n2", 2)):
        made.gpus(node, *(device(f"gpu-{index}") for index in range(count)))
    template(made, "one", request("gpu", "gpu"))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one"}))

    found = await filled(made, "train")

    assert (found.subject, found.copies) == ("pod ml/train", 4)
    assert sum(each.copies for each in found.nodes) == 4
    assert [(each.nodes, "in use" in each.text) for each in found.reasons] == [(2, True)]
    assert found.stranded == ()


async def test_template_stands_for_a_pod_with_one_claim(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(5)))
    template(made, "two", request("gpu", "gpu", count=2))

    found = await filled(made, "two")

    assert (found.subject, found.copies) == ("a pod with a claim from template ml/two", 2)
    (left,) = found.stranded
    assert (left.node, left.devices) == ("n1", ("gpu.example.com/n1/gpu-4",))
    assert "does not fit" in left.text


async def test_counters_that_no_copy_can_use_are_stranded_with_what_is_left(made: MadeCluster) -> None:
    parts = [device(f"mig-{index}", consumes=[consumption("gpu-0", sm="42")]) for index in range(4)]
    made.partitions("n1", [counter_set("gpu-0", sm="98")], parts)
    template(made, "part", request("gpu", "gpu"))

    found = await filled(made, "part")

    assert found.copies == 2
    (left,) = found.stranded
    assert (left.node, left.code, left.devices) == ("n1", "COUNTERS", ())
    assert [(each.counter, each.left, each.total) for each in left.counters] == [("sm", 14 * NANO, 98 * NANO)]


async def test_devices_on_a_node_without_cpu_for_a_copy_are_stranded_for_that_reason(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(4)))
    template(made, "one", request("gpu", "gpu"))
    made.add(pod("train", NAMESPACE, templates={"gpu": "one"}, cpu="20"))

    found = await filled(made, "train")

    assert found.copies == 2
    assert [(each.code, len(each.devices)) for each in found.stranded] == [("NODE_FIT", 1)]
    assert "Insufficient cpu" in found.stranded[0].text


async def test_count_that_ends_at_its_bound_says_so_and_gives_no_reason(made: MadeCluster) -> None:
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(9)))
    template(made, "one", request("gpu", "gpu"))
    found = await filled(made, "one", most=3)
    assert (found.copies, found.bounded, found.reasons, found.stranded) == (3, True, (), ())


async def test_count_ends_when_its_time_is_up(made: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "MOST_SECONDS", -1.0)
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(9)))
    template(made, "one", request("gpu", "gpu"))
    found = await filled(made, "one")
    assert (found.copies, found.bounded) == (1, True)


async def test_search_for_what_is_stranded_ends_with_the_budget_for_expressions_and_says_so(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterView, "budget", lambda _: Budget(0))
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    template(made, "two", request("gpu", "gpu", count=2))
    found = await filled(made, "two")
    assert (found.copies, found.stranded, found.stranded_in_part) == (1, (), True)


async def test_subject_that_does_not_exist_is_refused(made: MadeCluster) -> None:
    with pytest.raises(
        ChangeError, match="--fill: expected a pod or a ResourceClaimTemplate ml/none; a test has neither"
    ):
        await filled(made, "none")
