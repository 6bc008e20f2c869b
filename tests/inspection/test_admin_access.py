"""Devices that a pod watches with admin access: free for `devices`, `why`, `what-if`, the filter and `audit` alike."""

from typing import Any

import pytest
from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps
from dra_extender.inspection.audit.findings import Check
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, NOW, MadeCluster

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
