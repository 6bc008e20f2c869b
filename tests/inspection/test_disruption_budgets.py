"""Pods that a PodDisruptionBudget protects are said to be, and ended only where no other pods are enough."""

from typing import Any

import msgspec
import pytest
from dra_extender.inspection.pod_facts import DisruptionBudgets, PodFacts
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.what_if.changes import Changes
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.report import NextStep
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, budget, one_gpu_held

APP = {"app": "old"}


def labelled(made: MadeCluster, *names: str) -> None:
    for pod in made.objects["pods"]:
        if pod["metadata"]["name"] in names:
            pod["metadata"]["labels"] = dict(APP)


def two_gpus_held(**priorities: int) -> MadeCluster:
    """Two GPUs of one node, which pods `first` and `second` have; `train` waits for one."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    made.running("first", "n1", "gpu-0", request("gpu", "gpu"))
    made.running("second", "n1", "gpu-1", request("gpu", "gpu"))
    for pod in made.objects["pods"]:
        pod["spec"]["priority"] = priorities.get(pod["metadata"]["name"], 0)
    return made


def ends(made: MadeCluster) -> list[NextStep]:
    return [step for step in why(made.view(), NAMESPACE, "train").next if step.ends]


def test_step_says_which_budget_forbids_to_evict_the_pod_that_it_ends() -> None:
    made = one_gpu_held()
    labelled(made, "old")
    made.add(budget(0, {"matchLabels": APP}))
    report = why(made.view(), NAMESPACE, "train")
    (ended,) = report.next[-1].ends
    assert (ended.pod, ended.budget) == ("ml/old", "keep")
    assert "ml/old: no owner, priority 0, 12m old; PodDisruptionBudget keep forbids its eviction now" in " ".join(
        tree(report).split()
    )


@pytest.mark.parametrize(
    ("allowed", "selector", "namespace"),
    [
        (1, {"matchLabels": APP}, NAMESPACE),
        (0, {"matchLabels": APP}, "other"),
        (0, {"matchLabels": {"app": "new"}}, NAMESPACE),
        (0, None, NAMESPACE),
    ],
)
def test_budget_that_allows_it_or_is_about_others_is_not_named(allowed: int, selector: Any, namespace: str) -> None:
    made = one_gpu_held()
    labelled(made, "old")
    made.add(budget(allowed, selector, namespace=namespace))
    assert [ended.budget for step in ends(made) for ended in step.ends] == [""]


def test_other_pod_is_ended_where_it_is_enough_though_it_has_a_higher_priority() -> None:
    made = two_gpus_held(first=0, second=7)
    made.pod("train", request("gpu", "gpu"))
    assert [ended.pod for step in ends(made) for ended in step.ends] == ["ml/first"]
    labelled(made, "first")
    made.add(budget(0, {"matchLabels": APP}))
    assert [(ended.pod, ended.budget) for step in ends(made) for ended in step.ends] == [("ml/second", "")]


def test_pods_that_may_end_together_are_ended_before_pods_that_may_end_one_by_one() -> None:
    made = two_gpus_held()
    made.nodes("n2")
    made.gpus("n2", device("gpu-0"), device("gpu-1"))
    made.running("third", "n2", "gpu-0", request("gpu", "gpu"))
    made.running("fourth", "n2", "gpu-1", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", count=2))
    labelled(made, "first", "second")
    made.add(budget(1, {"matchLabels": APP}))
    (step,) = (step for step in ends(made) if len(step.ends) > 1)
    assert sorted((ended.pod, ended.budget) for ended in step.ends) == [("ml/fourth", ""), ("ml/third", "")]


def test_step_that_a_budget_forbids_comes_last() -> None:
    made = two_gpus_held()
    made.nodes("n2")
    made.pod("train", request("gpu", "gpu", count=2))
    labelled(made, "first")
    made.add(budget(0, {"matchLabels": APP}))
    forbidden = [any(ended.budget for ended in step.ends) for step in why(made.view(), NAMESPACE, "train").next]
    assert forbidden[-1]
    assert forbidden == sorted(forbidden)


async def test_drain_says_which_budget_makes_it_wait() -> None:
    made = one_gpu_held()
    labelled(made, "old")
    made.add(budget(0, {"matchLabels": APP}))
    report = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert report.changes == (
        "node n1 cordoned, 1 pod evicted",
        "PodDisruptionBudget keep forbids to evict pod ml/old now: a drain waits",
        "ml/old has no controller: create it again after the end; kubectl drain needs --force",
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": APP, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["old", "x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["old"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["old"]}]}, False),
    ],
)
def test_selector_means_pods_as_that_of_the_api_does(selector: Any, expected: bool) -> None:
    budgets = DisruptionBudgets([msgspec.json.encode(budget(0, selector)), b"no JSON"])
    pod = PodFacts(key=(NAMESPACE, "old"), labels=APP)
    assert bool(budgets.forbidding([pod])) is expected


def test_pod_with_several_budgets_may_not_be_evicted_whatever_they_allow() -> None:
    """The eviction subresource refuses it, and counts it for none of the budgets."""
    budgets = DisruptionBudgets(
        [
            msgspec.json.encode(budget(1, {}, "all")),
            msgspec.json.encode(budget(1, {"matchLabels": APP}, "keep")),
        ]
    )
    both, one = PodFacts(key=(NAMESPACE, "old"), labels=APP), PodFacts(key=(NAMESPACE, "other"))
    assert budgets.forbidding([both, one]) == {both.key: "all beside keep"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (PodFacts(key=(NAMESPACE, "old"), phase="Running"), True),
        (PodFacts(key=(NAMESPACE, "old"), phase="Unknown"), True),
        (PodFacts(key=(NAMESPACE, "old"), phase="Pending"), False),
        (PodFacts(key=(NAMESPACE, "old"), phase="Succeeded"), False),
        (PodFacts(key=(NAMESPACE, "old"), phase="Failed"), False),
        (PodFacts(key=(NAMESPACE, "old"), phase="Running", deleting=True), False),
    ],
)
def test_budget_guards_pods_that_run(pod: PodFacts, expected: bool) -> None:
    assert bool(DisruptionBudgets([msgspec.json.encode(budget(0, {}))]).forbidding([pod])) is expected


async def test_drain_does_not_wait_for_a_pod_that_is_being_deleted() -> None:
    made = one_gpu_held()
    labelled(made, "old")
    made.add(budget(0, {"matchLabels": APP}))
    (old,) = (pod for pod in made.objects["pods"] if pod["metadata"]["name"] == "old")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    report = await what_if(made.cluster(), Changes(drained=["n1"]))
    assert report.changes == ("node n1 cordoned, 0 pods evicted, 1 ended",)
