"""Each next step that `why` says was tried, followed as a person follows it: the pod lands."""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.report import DEVICES_ONLY
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device_class, pod
from tests.inspection.why import test_all_reasons, test_combined_causes, test_constructed_causes, test_trees
from tests.support.inspection.following import follow
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

LEAST_CAUSES = 100
LEAST_STEPS = 50


def causes() -> Iterator[tuple[str, bool, Callable[[MadeCluster], None]]]:
    """Yield the name of each cause, whether there is a node at first, and what builds it."""
    for name, (build, _) in test_all_reasons.case.by_name.items():
        yield name, True, build
    for name, (build, _) in test_trees.case.by_name.items():
        yield name, False, build
    for build in (*test_constructed_causes.CASES, *test_combined_causes.CASES):
        yield build.__name__, True, build


def made_of(build: Callable[[MadeCluster], None], *, has_node: bool) -> MadeCluster:
    made = MadeCluster()
    made.nodes(*(("n1",) if has_node else ()))
    made.add(device_class("gpu"))
    build(made)
    made.add(pod("seen", NAMESPACE, nodeName="n1"))
    return made


def tried_steps(build: Callable[[MadeCluster], None], *, has_node: bool) -> list[str]:
    report = why(made_of(build, has_node=has_node).view(), NAMESPACE, "train")
    return [step.text for step in report.next if step.nodes and step.verified != DEVICES_ONLY]


def test_there_are_many() -> None:
    assert len(list(causes())) >= LEAST_CAUSES
    steps = (step for _, has_node, build in causes() for step in tried_steps(build, has_node=has_node))
    assert len(list(islice(steps, LEAST_STEPS))) == LEAST_STEPS


@pytest.mark.parametrize(("has_node", "build"), [pytest.param(*case, id=name) for name, *case in causes()])
async def test_pod_lands_after_each_step(build: Callable[[MadeCluster], None], *, has_node: bool) -> None:
    for step in tried_steps(build, has_node=has_node):
        made = made_of(build, has_node=has_node)
        waits = await what_if(made.cluster())
        assert not any(lands(row.after) for row in waits.pods if row.pod == f"{NAMESPACE}/train")
        report = await what_if(follow(made, step).cluster())
        (outcome,) = [row.after for row in report.pods if row.pod == f"{NAMESPACE}/train"]
        assert lands(outcome), f"{step}: {outcome}"


def lands(outcome: PodOutcome) -> bool:
    """Return whether the pod is placed, and nothing such as an absent scheduler may keep it all the same."""
    return outcome.kind is OutcomeKind.LANDS and not outcome.unjudged
