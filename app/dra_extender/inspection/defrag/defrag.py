"""Which pods to move so that a goal is met: found in trials, and played by `what-if`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.inspection.defrag.goals import Goal
from dra_extender.inspection.defrag.movable import (
    SYSTEM_PRIORITY,
    MovingPods,
    forbidden_together,
    forbidding_budget,
    movable_pods,
)
from dra_extender.inspection.defrag.report import FORMAT, DefragReport, Finding, Move, StayingPods
from dra_extender.inspection.defrag.search import MoveSearch, Required
from dra_extender.inspection.objects import BUDGETS, KINDS, ClusterObjects, require
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.what_if.applied_changes import AppliedChanges
from dra_extender.inspection.what_if.changes import Changes, PodKey
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster
from dra_extender.inspection.what_if.report import OutcomeKind, PodRow
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.report import DEVICES_ONLY
from dra_extender.model.metadata import split_key

MOST_MOVES: Final = 8
"""Pods that a plan may move, beside those of a node that is to be empty."""
FindGoal = Callable[[Trial], Goal]
"""Returns the goal in a cluster without changes.  Raises ChangeError."""


async def defrag(
    objects: ClusterObjects,
    find_goal: FindGoal,
    *,
    most_moves: int = MOST_MOVES,
    most_priority: int | None = None,
    policy: PolicyOverlay | None = None,
) -> DefragReport:
    """Return the fewest moves, at most `most_moves` beside those from a node that is to be empty, after which a goal is met.

    Pods of a priority above `most_priority` stay; by default those above the pod that is to fit, and those of the system.

    Raises:
        ChangeError: the goal names something that is not there, or that waits for no device.
        UnreadKindsError: a kind could not be read.
    """
    require(objects.origin, KINDS)
    unchanged = Trial(CopiedCluster(objects), policy)
    goal = find_goal(unchanged)
    moving, staying = _movable_for(unchanged, goal, most_priority)
    report = DefragReport(
        format=FORMAT,
        origin=objects.origin,
        goal=goal.text,
        finding=Finding.NONE,
        staying=staying,
        verified="" if unchanged.judges_nodes else DEVICES_ONLY,
        notes=(
            *map(str, unchanged.view.unreadable),
            *(() if BUDGETS in objects.by_kind else ("PodDisruptionBudgets were not read",)),
        ),
    )

    def begin(changes: Changes) -> tuple[Trial, AppliedChanges]:
        copy = CopiedCluster(objects)
        applied = AppliedChanges(copy, changes)
        return Trial(copy, policy), applied

    trial, applied = begin(goal.changes)
    drained = tuple(facts for unit in moving for facts in unit.pods if facts.key in applied.evicted)
    kept = _kept_on_the_node(unchanged, applied, staying, drained)
    if kept:
        return msgspec.structs.replace(report, staying=kept, bound="pods of the node stay")
    others = [unit for unit in moving if applied.evicted.keys().isdisjoint(unit.keys)]
    everything = goal.changes._replace(evicted=[key for unit in others for key in unit.keys])
    subject = goal.pod or next(iter(applied.reserved), None)
    before = await unchanged.place_waiting()
    required = Required(
        landing=frozenset((*(facts.key for facts in drained), *((subject,) if subject else ()))),
        undisturbed=frozenset(key for key, outcome in before.items() if outcome.kind is OutcomeKind.LANDS),
        subject=subject,
        drained=drained,
    )
    played: dict[tuple[PodKey, ...], Mapping[PodKey, PodRow]] = {}

    async def verify(pods: tuple[PodKey, ...]) -> bool:
        if pods not in played:
            rows = (await what_if(objects, goal.changes._replace(evicted=pods), policy=policy)).pods
            played[pods] = {split_key(row.pod): row for row in rows}
        landed = {key for key, row in played[pods].items() if row.after.kind is OutcomeKind.LANDS}
        return landed >= {*required.landing, *required.undisturbed, *pods}

    search = MoveSearch(trial, lambda: begin(everything)[0], others, required, most_moves)
    pods = await search.find(verify)
    report = msgspec.structs.replace(report, tried=search.tried, bound=search.bound)
    if pods is None:
        unfit, reasons = search.unfit() or (None, ())
        return msgspec.structs.replace(
            report,
            pod="" if unfit is None else "/".join(unfit),
            reasons=reasons,
            staying=(*report.staying, *search.forbidden.values()),
        )
    rows = played[pods]
    moves = tuple(_moves(rows, moving, {*pods, *(facts.key for facts in drained)}))
    return msgspec.structs.replace(
        report,
        finding=Finding.PLAN if moves else Finding.MET,
        moves=moves,
        pod="" if subject is None else "/".join(subject),
        lands=None if subject is None else rows[subject].after,
        fewest=search.complete,
        what_if=(*goal.arguments, *(word for key in sorted(pods) for word in ("--evict", "/".join(key)))),
    )


def _movable_for(
    trial: Trial, goal: Goal, most_priority: int | None
) -> tuple[Sequence[MovingPods], tuple[StayingPods, ...]]:
    """Return the pods that may be moved for a goal, and those that may not.

    By default none above the pod that is to fit may, and none of the system.
    """
    pod = None if goal.pod is None else trial.view.pod(*goal.pod)
    group = None if pod is None or pod.pod_group is None else (pod.namespace, pod.pod_group)
    if most_priority is None:
        most_priority = SYSTEM_PRIORITY - 1 if pod is None else pod.priority
    return movable_pods(trial, most_priority, group)


def _kept_on_the_node(
    trial: Trial, applied: AppliedChanges, staying: Sequence[StayingPods], drained: Sequence[PodFacts]
) -> tuple[StayingPods, ...]:
    """Return the pods of the node that is to be empty and that may not be moved, by reason."""
    needed = {"/".join(key) for key in applied.evicted}
    unread = StayingPods(
        reason="cannot be read", pods=tuple("/".join(key) for key in applied.evicted if trial.view.pod(*key) is None)
    )
    of_node = ((group.reason, tuple(name for name in group.pods if name in needed)) for group in (*staying, unread))
    kept = tuple(StayingPods(reason=reason, pods=pods) for reason, pods in of_node if pods)
    together = forbidding_budget(trial, drained)
    return kept if kept or not together else (forbidden_together(together, drained),)


def _moves(rows: Mapping[PodKey, PodRow], moving: Sequence[MovingPods], moved: set[PodKey]) -> Iterator[Move]:
    """Yield the moves in the order in which the pods land: kube-scheduler's queue has those of a high priority first."""
    pods = [(-unit.priority, facts.key, facts) for unit in moving for facts in unit.pods if facts.key in moved]
    for negated, key, facts in sorted(pods, key=lambda pod: pod[:2]):
        row = rows[key]
        yield Move(
            pod=row.pod,
            before=row.before,
            after=row.after,
            controller=facts.controller,
            priority=-negated,
            claims=row.claims,
        )
