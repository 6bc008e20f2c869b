"""The phases of a gang's plan."""

from dra_extender.scheduling.gang.plans import GangPhase, GangPlan
from dra_extender.scheduling.gang.search import Assignment

AT = Assignment("n1", {})


def test_a_plan_goes_from_new_to_planned_to_announced() -> None:
    plan = GangPlan("g")
    phases = [plan.phase]
    plan.assignments.update({"a": AT, "b": AT})
    phases.append(plan.phase)
    plan.announced.add("a")
    phases.append(plan.phase)
    assert phases == [GangPhase.NEW, GangPhase.PLANNED, GangPhase.ANNOUNCED]
    assert plan.unannounced == ["b"]


def test_revoking_the_announced_assignment_makes_the_plan_changeable_again() -> None:
    plan = GangPlan("g")
    plan.assignments.update({"a": AT, "b": AT})
    plan.announced.add("a")
    phases = list[GangPhase]()
    for uid in ("a", "b", "b"):
        plan.revoke(uid)
        phases.append(plan.phase)
    assert phases == [GangPhase.PLANNED, GangPhase.NEW, GangPhase.NEW]


def test_a_restart_leaves_no_assignment() -> None:
    plan = GangPlan("g")
    plan.assignments.update({"a": AT, "b": AT})
    plan.announced.add("a")
    plan.restart()
    assert plan.phase is GangPhase.NEW
    assert not plan.assignments
