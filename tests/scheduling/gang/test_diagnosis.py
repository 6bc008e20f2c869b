"""The account of a gang: which members are placed, which one is the first that is not, and that nothing stays held."""

import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.scheduling.gang.plans import GangDiagnosis

from tests.controlplane.objects import device, device_class, pod, pod_group, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes with two GPUs each, and a gang that is called `team`."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for name in ("n1", "n2"):
        made.gpus(name, device("gpu-0"), device("gpu-1"))
    return made


def member(made: MadeCluster, name: str, count: int = 1) -> None:
    made.pod(name, request("gpu", "gpu", count=count), schedulingGroup={"podGroupName": "team"})


def account(view: ClusterView, name: str) -> GangDiagnosis:
    asked = view.pod(NAMESPACE, name)
    assert asked is not None
    planned = view.extender.diagnose_gang(asked, tuple(view.ledger.nodes))
    assert planned is not None
    with planned as found:
        assert len(view.ledger.holds) == len(found.placed)
    assert len(view.ledger.holds) == 0
    return found


def names(found: GangDiagnosis) -> tuple[list[str], list[str]]:
    return [each.pod.name for each in found.placed], [each.name for each in found.waiting]


def test_first_members_that_fit_are_placed_and_held_only_while_they_are_looked_at(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE, min_count=6))
    for number in (10, 2, 1, 5, 3, 4):
        member(made, f"worker-{number}")

    found = account(made.view(), "worker-10")

    assert names(found) == (["worker-1", "worker-10", "worker-2", "worker-3"], ["worker-4", "worker-5"])
    assert {each.node for each in found.placed} == {"n1", "n2"}
    assert found.needed == 6


def test_gang_that_needs_fewer_than_all_members_has_no_more_to_wait_for(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE, min_count=3))
    for number in range(5):
        member(made, f"worker-{number}")

    found = account(made.view(), "worker-0")

    assert len(found.placed) >= found.needed == 3


def test_member_that_fits_nowhere_is_the_first_that_waits(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE, min_count=3))
    member(made, "a")
    member(made, "b", count=3)
    member(made, "c")

    assert names(account(made.view(), "c")) == (["a"], ["b", "c"])


def test_members_that_run_and_members_without_their_claims_are_listed_apart(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE, min_count=3))
    made.running("a", "n1", "gpu-0", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["schedulingGroup"] = {"podGroupName": "team"}
    member(made, "b")
    made.add(pod("c", NAMESPACE, claims={"gpu": "absent"}, schedulingGroup={"podGroupName": "team"}))

    found = account(made.view(), "b")

    assert [each.name for each in found.decided] == ["a"]
    assert [(each.name, rejection.code.name) for each, rejection in found.unready] == [("c", "CLAIM_MISSING")]
    assert names(found) == ([], ["b"])
    assert found.needed == 2
    assert found.cannot_start


def test_pod_in_no_gang_has_no_account(made: MadeCluster) -> None:
    made.add(pod_group("team", NAMESPACE))
    member(made, "a")
    made.pod("alone", request("gpu", "gpu"))

    view = made.view()
    for name in ("a", "alone"):
        asked = view.pod(NAMESPACE, name)
        assert asked is not None
        assert view.extender.diagnose_gang(asked, tuple(view.ledger.nodes)) is None
