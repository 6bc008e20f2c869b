"""What `why`, `devices`, `what-if` and `audit` say of a shared device that `bindsToNode` keeps on a node."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps
from dra_extender.inspection.audit.findings import Check
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.what_if.changes import Changes
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.why import why
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, holdings_of
from dra_extender.model.resource_claim import claim_from
from msgspec.structs import replace

from tests.controlplane.objects import consumption, counter_set, device, device_class, on_node, request, resource_slice
from tests.support.inspection.made_cluster import NAMESPACE, NOW, Json, MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    """Pod `old` has a share of the only fabric device, on n1; pod `train` may run on n2 alone."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("fabric"))
    shared = device("port-0", allowMultipleAllocations=True, bindsToNode=True)
    made.add(resource_slice("rack", pool="rack", devices=[shared], allNodes=True))
    made.running("old", "n1", "port-0", request("gpu", "fabric"))
    allocation = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0].update(pool="rack", shareID="3b1c9b8e-0000-4000-8000-000000000001")
    allocation["nodeSelector"] = on_node("n1")
    made.pod("train", request("gpu", "fabric"), nodeSelector={"kubernetes.io/hostname": "n2"})
    return made


def test_why_names_who_keeps_the_device(made: MadeCluster) -> None:
    report = why(made.view(), NAMESPACE, "train")
    (reason,) = [each for branch in report.branches for each in branch.reasons if each.code == "BOUND_ELSEWHERE"]
    assert "bound to another node" in reason.text
    assert reason.nearest is not None
    assert [each.holder.claim for each in reason.nearest.holders] == [f"{NAMESPACE}/claim-old"]


def share_of(made: MadeCluster, pod: str) -> Json:
    """The claim of this pod."""
    return next(each for each in made.objects["resourceclaims"] if each["metadata"]["name"] == f"claim-{pod}")


def published(made: MadeCluster) -> Json:
    (slice_,) = made.objects["resourceslices"]
    return slice_


def bound(made: MadeCluster) -> None:
    """The device binds as it is published."""


def bound_before(made: MadeCluster) -> None:
    """The slice does not bind the device any more; it did when the share was allocated."""
    published(made)["spec"]["devices"][0]["bindsToNode"] = False
    claim = share_of(made, "old")
    stored = claim_from(claim)
    assert stored.status.allocation is not None
    frozen = tuple(replace(each, consumption=(), binds_to_node=True) for each in holdings_of(stored))
    claim["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(stored.status.allocation, frozen)}


def never_bound(made: MadeCluster) -> None:
    published(made)["spec"]["devices"][0]["bindsToNode"] = False


def with_admin_access(made: MadeCluster) -> None:
    claim = share_of(made, "old")
    claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True


def asked_with_admin_access(made: MadeCluster) -> None:
    share_of(made, "train")["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True


def naming_no_node(made: MadeCluster) -> None:
    del share_of(made, "old")["status"]["allocation"]["nodeSelector"]


def local_to_nodes(made: MadeCluster) -> None:
    """Each node has a device of this name of its own."""
    slice_ = published(made)
    del slice_["spec"]["allNodes"]
    slice_["spec"]["pool"]["resourceSliceCount"] = 2
    other = deepcopy(slice_)
    other["metadata"] |= {"name": "rack-2", "uid": "rack-2"}
    slice_["spec"]["nodeName"], other["spec"]["nodeName"] = "n1", "n2"
    made.objects["resourceslices"].append(other)


def of_a_node_that_is_gone(made: MadeCluster) -> None:
    made.objects["nodes"] = [each for each in made.objects["nodes"] if each["metadata"]["name"] != "n1"]


@pytest.mark.parametrize(
    ("case", "device_is_bound", "refused"),
    [
        (bound, True, True),
        (bound_before, True, True),
        (of_a_node_that_is_gone, True, True),
        (asked_with_admin_access, True, False),
        (never_bound, False, False),
        (with_admin_access, False, False),
        (naming_no_node, False, False),
        (local_to_nodes, False, False),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
async def test_all_answers_follow_one_rule(
    made: MadeCluster, case: Callable[[MadeCluster], None], *, device_is_bound: bool, refused: bool
) -> None:
    case(made)
    view = made.view()
    train = view.ledger.pods.by_key(NAMESPACE, "train")
    assert train is not None
    assert ("n2" not in view.evaluate(train, ["n2"]).fits) is refused
    assert why_on_node(view, NAMESPACE, "train", "n2").fits is not refused
    (outcome,) = (each.after for each in (await what_if(made.cluster())).pods if each.pod.endswith("/train"))
    assert outcome.node == ("" if refused else "n2")
    (pool,) = devices_report(view).pools
    assert {each.bound_to for each in pool.devices} == {("n1",) if device_is_bound else ()}
    ended = await what_if(made.cluster(), Changes(without=((NAMESPACE, "old"),)))
    (outcome,) = (each.after for each in ended.pods if each.pod.endswith("/train"))
    assert outcome.node == "n2"

    allocation = deepcopy(share_of(made, "old")["status"]["allocation"])
    allocation["nodeSelector"] = on_node("n2")
    (result,) = allocation["devices"]["results"]
    result["shareID"] = "3b1c9b8e-0000-4000-8000-000000000002"
    result["adminAccess"] = share_of(made, "train")["spec"]["devices"]["requests"][0]["exactly"].get("adminAccess")
    share_of(made, "train")["status"] = {"allocation": allocation}
    steps = audit_steps(AuditedCluster(made.view().ledger, lambda: NOW, 600))
    assert any(each is not None and each.check is Check.NODE_BINDING for each in steps) is refused


DOUBLE = {Check.DOUBLE_ALLOCATION, Check.GROUPS, Check.COUNTERS}


def watched(count: int, *groups: str, **fields: Any) -> MadeCluster:
    """Pod `monitor` watches both devices of the counter set, `train` asks for some."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    drawn = [[consumption("card", groups=[group] if group else [], sm="1")] for group in groups]
    devices = [device(f"part-{index}", consumes=each, **fields) for index, each in enumerate(drawn)]
    made.partitions("n1", [counter_set("card", sm="2")], devices)
    watch = request("gpu", "gpu")
    watch["exactly"] |= {"adminAccess": True, "allocationMode": "All"}
    made.running("monitor", "n1", "part-0", watch)
    results = made.objects["resourceclaims"][-1]["status"]["allocation"]["devices"]["results"]
    results[:] = [results[0] | {"device": each["name"], "adminAccess": True} for each in devices]
    made.pod("train", request("gpu", "gpu", count=count))
    return made


@pytest.mark.parametrize(
    ("count", "groups", "fits"),
    [(2, ("", ""), True), (2, ("a", "a"), True), (1, ("a", "b"), True), (2, ("a", "b"), False), (2, ("a", ""), False)],
    ids=["no-groups", "one-group", "one-of-two-groups", "two-groups", "a-group-and-none"],
)
async def test_all_answers_take_watched_devices_as_free(count: int, groups: tuple[str, ...], *, fits: bool) -> None:
    made = watched(count, *groups)
    view = made.view()
    (pool,) = devices_report(view).pools
    assert [each.is_free for each in pool.devices] == [True, True]
    assert [each.members for each in pool.counter_sets] == [()]
    assert all(counter.drawn == 0 for each in pool.counter_sets for counter in each.counters)
    assert why_on_node(view, NAMESPACE, "train", "n1").fits is fits
    steps = why(view, NAMESPACE, "train").next
    assert not any("monitor" in each.text for each in steps)
    (outcome,) = (each.after for each in (await what_if(made.cluster())).pods if each.pod.endswith("/train"))
    assert outcome.node == ("n1" if fits else "")

    claim = made.objects["resourceclaims"][-1]
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1"}
    claim["status"] = {
        "allocation": {"devices": {"results": [result | {"device": f"part-{index}"} for index in range(count)]}}
    }
    found = {
        each.check for each in audit_steps(AuditedCluster(made.view().ledger, lambda: NOW, 600)) if each is not None
    }
    assert bool(found & DOUBLE) is not fits
