"""What leaves the service about holds and plans: all that others need to know, bounded, and nothing of a tenant's parameters."""

import msgspec
import pytest
from dra_extender.model.metadata import encoded_moment
from dra_extender.scheduling import hold_report
from dra_extender.scheduling.hold_report import FORMAT

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER, InMemoryExtender

PLANTED = "s3cr3t-of-a-tenant"


async def test_report_has_what_is_held_where_for_whom_and_until_when() -> None:
    world = InMemoryExtender().furnish(n0=1, n1=1, p1="c1")
    await world.filter("p1", "n0", "n1")

    report = world.extender.hold_reporter.report(leads=True)

    assert (report.format, report.leads, report.taken_at, report.left_out) == (FORMAT, True, world.clock.now(), 0)
    (held,) = report.holds
    assert (held.claim, held.namespace, held.nominated) == ("c1", "default", False)
    assert held.pods == (("default/p1", world.uid("p1")),)
    assert held.until == world.clock.now() + world.options.hold_seconds
    assert {each.node: [device.device for device in each.devices] for each in held.nodes} == {
        "n0": ["gpu-0"],
        "n1": ["gpu-0"],
    }


async def test_parameters_for_drivers_stay_in_the_service() -> None:
    world = InMemoryExtender().furnish(n0=1)
    opaque = {"driver": DRIVER, "parameters": {"password": PLANTED}}
    request = {"name": "req", "exactly": {"deviceClassName": "gpu"}}
    world.add_claim_of("c1", request, config=[{"opaque": opaque}])
    world.add_pod("p1", "c1")
    await world.filter("p1", "n0")
    report = world.extender.hold_reporter.report(leads=True)
    assert report.holds
    assert PLANTED.encode() not in msgspec.json.encode(report, enc_hook=encoded_moment)


async def test_report_is_bounded_and_counts_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_report, "MOST_DEVICES", 3)
    world = InMemoryExtender().furnish(n0=8, n1=8, p0="c0", p1="c1", p2="c2", p3="c3")
    for index in range(4):
        await world.filter(f"p{index}", "n0", "n1")
    report = world.extender.hold_reporter.report(leads=True)
    assert (len(report.holds), report.left_out) == (1, 3)
    assert sum(len(each.devices) for held in report.holds for each in held.nodes) <= 3


async def test_without_holds_the_report_is_empty() -> None:
    report = InMemoryExtender().furnish(n0=1).extender.hold_reporter.report(leads=False)
    assert (report.leads, report.holds, report.plans) == (False, (), ())


async def test_plan_of_a_gang_names_the_node_of_each_member_and_which_are_announced() -> None:
    world = GangExtender()
    for node in ("n1", "n2"):
        world.cards(node, 1)
    world.gang("g", 2, "whole", "ab")
    assert await world.ask("a", "n1", "n2") in ({"a": ["n1"]}, {"a": ["n2"]})

    (plan,) = world.extender.hold_reporter.report(leads=True).plans

    assert (plan.pod_group, plan.phase, plan.needed, plan.waiting) == ("default/g", "announced", 2, 0)
    assert {(each.pod, each.announced) for each in plan.members} == {("default/a", True), ("default/b", False)}
    assert {each.node for each in plan.members} == {"n1", "n2"}
