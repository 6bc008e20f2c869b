"""Why a bound pod is on its node: the scores that prioritize gives now, those of the service."""

import asyncio

import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.report import NodeScore
from dra_extender.inspection.why.why import why
from dra_extender.scheduling.ports.options import Options, PlacementPolicy

from tests.controlplane.objects import consumption, counter_set, device, device_class, pod_group, request
from tests.support.allocator.building import preferring
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

UPSTREAM, PRESERVE = (
    Options(offered_nodes=100, placement=placement)
    for placement in (PlacementPolicy.UPSTREAM, PlacementPolicy.PRESERVE)
)


def told(made: MadeCluster, options: Options | None = None) -> str:
    return " ".join(tree(why(ClusterView(made.cluster(), options=options), NAMESPACE, "train")).split())


@pytest.fixture
def made() -> MadeCluster:
    """Pod `train` has one partition of the GPU of n1, of which `other` has another; that of n2 is whole."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for node in ("n1", "n2"):
        draws = [consumption("gpu-0", sm="40")]
        made.partitions(
            node, [counter_set("gpu-0", sm="98")], [device(f"mig-{number}", consumes=draws) for number in range(2)]
        )
    made.running("other", "n1", "mig-1", request("gpu", "gpu"))
    made.running("train", "n1", "mig-0", request("gpu", "gpu"))
    return made


def test_partition_beside_another_is_why(made: MadeCluster) -> None:
    view = ClusterView(made.cluster(), options=UPSTREAM)
    before = devices_report(view)
    assert why(view, NAMESPACE, "train").scores == (
        NodeScore(node="n1", score=10, counter_sets=1, joined=1),
        NodeScore(node="n2", score=0, counter_sets=1, joined=0),
    )
    assert devices_report(view) == before
    assert (
        "why n1: prioritize gives it 10 (1 of 1 counter set in use) of 10 now, "
        "the best other node, n2, 0 (0 of 1 counter set in use)" in told(made, UPSTREAM)
    )


def test_scores_are_those_of_prioritize_for_an_equal_pod(made: MadeCluster) -> None:
    scores = {score.node: score.score for score in why(made.view(), NAMESPACE, "train").scores}
    made.objects["pods"] = [pod for pod in made.objects["pods"] if pod["metadata"]["name"] == "other"]
    made.pod("equal", request("gpu", "gpu"))
    for claim in made.objects["resourceclaims"]:
        if claim["metadata"]["name"] == "claim-train":
            claim["status"] = {}
    view = made.view()
    pod = view.pod(NAMESPACE, "equal")
    assert pod is not None

    async def rated() -> dict[str, int]:
        nodes = tuple(view.ledger.nodes)
        await view.extender.filter(pod, nodes)
        return dict(await view.extender.prioritize(pod, nodes))

    assert asyncio.run(rated()) == scores


def test_without_terms_that_differ_the_scores_of_kube_scheduler_decide() -> None:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.gpus("n2", device("gpu-0"))
    made.running("train", "n1", "gpu-0", request("gpu", "gpu"))
    assert "why n1: prioritize rates it no better than n2 now: kube-scheduler's own scores decide" in told(
        made, UPSTREAM
    )


def test_node_that_alone_has_such_devices_is_said_to_be_the_only_one(made: MadeCluster) -> None:
    made.objects["resourceslices"] = [
        each for each in made.objects["resourceslices"] if each["spec"].get("nodeName") != "n2"
    ]
    assert "why n1: its devices fit on no other node now" in told(made)


def test_nodes_that_the_pod_may_not_use_are_no_next_best(made: MadeCluster) -> None:
    made.objects["nodes"][1]["spec"] = {"unschedulable": True}
    assert [score.node for score in why(made.view(), NAMESPACE, "train").scores] == ["n1"]


def test_members_of_a_pod_group_and_pods_that_wait_have_no_scores(made: MadeCluster) -> None:
    made.add(pod_group("group", NAMESPACE))
    made.objects["pods"][-1]["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    made.pod("waits", request("gpu", "gpu"))
    assert [why(made.view(), NAMESPACE, name).scores for name in ("train", "waits")] == [(), ()]


def test_other_node_that_is_better_now_is_not_called_worse(made: MadeCluster) -> None:
    """The GPU of `other` on n1 is free by now, and a pod on n2 has one."""
    made.objects["pods"] = [pod for pod in made.objects["pods"] if pod["metadata"]["name"] == "train"]
    made.objects["resourceclaims"] = [
        claim for claim in made.objects["resourceclaims"] if claim["metadata"]["name"] == "claim-train"
    ]
    made.running("new", "n2", "mig-1", request("gpu", "gpu"))
    assert "prioritize gives it 0 (0 of 1 counter set in use) of 10 now, the best other node, n2, 10" in told(
        made, UPSTREAM
    )


@pytest.mark.parametrize(
    ("roots", "expected"),
    [("xx", "they do (2 x x)"), ("xy", "they do not (1 x x, 1 x y)"), ("x", "they do not (1 x without it, 1 x x)")],
)
def test_pod_says_whether_its_devices_agree_in_what_is_preferred(roots: str, expected: str) -> None:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    attributes: list[dict[str, str]] = [{"root": root} for root in roots]
    made.gpus("n1", *(device(f"gpu-{index}", attributes=each) for index, each in enumerate([*attributes, {}][:2])))
    made.gpus("n2", *(device(f"gpu-{index}", attributes={"root": "z"}) for index in range(2)))
    made.running("train", "n1", "gpu-0", request("gpu", "gpu", count=2))
    claim = made.objects["resourceclaims"][-1]
    claim["spec"]["devices"]["config"] = [preferring("gpu.example.com/root")]
    (first,) = results = claim["status"]["allocation"]["devices"]["results"]
    results.append({**first, "device": "gpu-1"})
    said = told(made, UPSTREAM)
    assert f"claim gpu prefers devices that agree in gpu.example.com/root: {expected}" in said
    own = 1 if roots == "xx" else 0
    assert f"devices agree in {own} of 1 preferred attribute" in said
    assert "n2, 10 (devices agree in 1 of 1 preferred attribute)" in said


def test_what_the_placement_costs_the_expected_pods_is_told(made: MadeCluster) -> None:
    """A whole GPU is lost on n2, and none on n1."""
    view = ClusterView(made.cluster(), options=PRESERVE)
    own, other = why(view, NAMESPACE, "train").scores
    assert (own.node, own.score, other.node, other.score) == ("n1", 10, "n2", 5)
    assert own.loss is not None
    assert other.loss is not None
    assert own.loss < other.loss
    assert f"prioritize gives it 10 (costs the expected pods {own.loss:.3f} devices) of 10 now" in told(made, PRESERVE)
