"""What a running extender holds is in what-if, audit, the map and the view of a node."""

import msgspec
from dra_extender.inspection.audit.report import Soundness, audit_report, lasting
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.holders import MOST_LINES, HeldDevices, held_lines
from dra_extender.inspection.text.audit import audit_tree
from dra_extender.inspection.text.what_if import table
from dra_extender.inspection.what_if.changes import Changes
from dra_extender.inspection.what_if.report import WhatIfReport
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.model.metadata import Moment
from dra_extender.page.devices_view import DeviceState, device_text, pool_states

from tests.controlplane.objects import device, device_class, pod, request, resource_claim_template
from tests.support.inspection.made_cluster import (
    HOLD_SECONDS,
    NAMESPACE,
    NOW,
    MadeCluster,
    held_for,
    one_gpu,
    with_holds,
)

HELD = HeldDevices(
    claim="ml/claim-second",
    pods=("ml/second",),
    node="n1",
    devices=("gpu.example.com/n1/gpu-0",),
    until=Moment(NOW + HOLD_SECONDS),
)
LINE = "held for ml/second until 09:47:05Z: gpu-0 on n1"


def landing(report: WhatIfReport) -> dict[str, str]:
    return {each.pod.removeprefix("ml/"): each.after.node or str(each.after.kind) for each in report.pods}


async def test_pod_whose_devices_are_held_lands_before_those_that_are_ahead_of_it_in_the_queue() -> None:
    cluster = one_gpu()
    assert landing(await what_if(with_holds(cluster, None))) == {"first": "n1", "second": "waits"}
    report = await what_if(with_holds(cluster, held_for(cluster, "second")))
    assert landing(report) == {"first": "waits", "second": "n1"}
    assert report.held == (HELD,)
    assert LINE in table(report).splitlines()


async def test_end_of_the_pod_that_devices_are_held_for_ends_the_hold() -> None:
    cluster = one_gpu()
    objects = with_holds(cluster, held_for(cluster, "second"))
    report = await what_if(objects, Changes(without=[(NAMESPACE, "second")]))
    assert landing(report) == {"first": "n1", "second": "ended"}
    assert report.held == ()


async def test_pod_that_cannot_use_what_is_held_for_it_gives_it_up() -> None:
    cluster = one_gpu()
    cluster.objects["pods"][1]["spec"]["nodeSelector"] = {"disk": "ssd"}
    report = await what_if(with_holds(cluster, held_for(cluster, "second")))
    assert landing(report) == {"first": "n1", "second": "waits"}


async def test_copies_get_what_is_not_held_alone() -> None:
    cluster = one_gpu()
    del cluster.objects["pods"][0]
    cluster.objects["pods"][0]["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    asked = request("gpu", "gpu")
    asked["exactly"]["allocationMode"] = "ExactCount"
    cluster.add(resource_claim_template("one", NAMESPACE, asked))
    objects = with_holds(cluster, held_for(cluster, "second"))
    report = await what_if(objects, Changes(added=[("n1", 1)]), (NAMESPACE, "one"))
    assert report.fill is not None
    assert [(each.node, each.copies) for each in report.fill.nodes] == [("n1-added-1", 1)]


def test_audit_lists_what_is_held_and_is_sound_all_the_same() -> None:
    cluster = one_gpu()
    view = ClusterView(with_holds(cluster, held_for(cluster, "second")))
    report = audit_report(view)
    assert (report.verdict, report.held) == (Soundness.SOUND, (HELD,))
    assert LINE in audit_tree(report).splitlines()
    without = audit_report(ClusterView(with_holds(cluster, None)))
    assert lasting(report, without).held == ()


def test_map_and_node_show_the_device_as_held_and_for_whom() -> None:
    cluster = one_gpu()
    report = devices_report(ClusterView(with_holds(cluster, held_for(cluster, "second"))))
    (pool,) = pool_states(report)
    ((use, stands),) = pool.devices
    assert stands is DeviceState.HELD
    assert device_text(use, stands, NOW) == "held for a pod: ml/second (held until 09:47:05Z)"
    (holder,) = pool.holders[use.name]
    assert (holder.consumers, holder.until) == (("ml/second",), NOW + HOLD_SECONDS)


def test_claim_for_extended_resources_is_named_as_the_bind_will_name_it() -> None:
    cluster = MadeCluster()
    cluster.nodes("n1")
    cluster.gpus("n1", device("gpu-0"))
    cluster.add(device_class("backed", extendedResourceName="example.com/gpu"))
    cluster.add(pod("second", NAMESPACE, cpu="0", extended={"example.com/gpu": "1"}))
    view = ClusterView(with_holds(cluster, held_for(cluster, "second")))
    (held,) = audit_report(view).held
    assert held.claim.startswith("ml/second-extended-resources-")
    (device_use,) = devices_report(view).pools[0].devices
    assert [each.claim for each in device_use.holders] == [held.claim]


def test_lines_name_a_bounded_number_of_holds() -> None:
    many = [msgspec.structs.replace(HELD, claim=f"ml/{number}") for number in range(MOST_LINES + 5)]
    lines = list(held_lines(many, 80))
    assert (len(lines), lines[-1]) == (MOST_LINES + 1, "and 5 more holds")
