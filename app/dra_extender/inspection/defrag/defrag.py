"""Which pods to move so that a goal is met: found in trials, and played by `what-if`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.allocator.overlay.policy import Overlay
from dra_extender.inspection.defrag.goals import Goal
from dra_extender.inspection.defrag.movable import (
    SYSTEM_PRIORITY,
    Movable,
    MovingPods,
    forbidden_together,
    forbidding_budget,
    movable_pods,
)
from dra_extender.inspection.defrag.report import FORMAT, DefragReport, Finding, Move, StayingPods
from dra_extender.inspection.defrag.search import MoveSearch, Required
from dra_extender.inspection.objects import BUDGETS, EVERYTHING, ClusterObjects, require
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.what_if.applied_changes import AppliedChanges
from dra_extender.inspection.what_if.changes import Changes, PodKey
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster
from dra_extender.inspection.what_if.report import OutcomeKind, PodRow
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.inspection.what_if.what_if import DEVICES_ONLY, what_if
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
    policy: Overlay | None = None,
) -> DefragReport:
    """Return the fewest moves after which a goal is met.

    Args:
        objects: The cluster.
        find_goal: Returns the goal.
        most_moves: How many pods may be moved at most, beside those of a node that is to be empty.
        most_priority: Pods with a higher priority stay; by default those above the pod that is to fit, and those of the system.
        policy: The policy in force.

    Raises:
        ChangeError: the goal names something that is not there, or that waits for no device.
        UnreadKindsError: a kind could not be read.
    """
    require(objects.origin, EVERYTHING)
    plain = Trial(CopiedCluster(objects), policy)
    goal = find_goal(plain)
    waiting = None if goal.pod is None else plain.view.pod(*goal.pod)
    if most_priority is None:
        most_priority = SYSTEM_PRIORITY - 1 if waiting is None else waiting.priority
    group = None if waiting is None or waiting.pod_group is None else (waiting.namespace, waiting.pod_group)
    movable = movable_pods(plain, most_priority, group)
    report = DefragReport(
        format=FORMAT,
        origin=objects.origin,
        goal=goal.text,
        finding=Finding.NONE,
        staying=movable.staying,
        verified="" if plain.judges_nodes else DEVICES_ONLY,
        notes=(
            *map(str, plain.view.unreadable),
            *(() if BUDGETS in objects.by_kind else ("PodDisruptionBudgets were not read",)),
        ),
    )
    trial, applied = _begun(objects, goal.changes, policy)
    own = tuple(facts for moving in movable.moving for facts in moving.pods if facts.key in applied.evicted)
    kept = _kept_on_the_node(plain, applied, movable, own)
    if kept:
        return msgspec.structs.replace(report, staying=kept, bound="pods of the node stay")
    others = [moving for moving in movable.moving if applied.evicted.keys().isdisjoint(moving.keys)]
    everything = goal.changes._replace(evicted=[key for moving in others for key in moving.keys])
    subject = goal.pod or next(iter(applied.reserved), None)
    # What lands next without any change.
    landing = (key for key, outcome in (await plain.place_waiting()).items() if outcome.kind is OutcomeKind.LANDS)
    required = Required(
        landing=frozenset((*(facts.key for facts in own), *((subject,) if subject else ()))),
        undisturbed=frozenset(landing),
        subject=subject,
        evicted=own,
    )
    rows: dict[tuple[PodKey, ...], Sequence[PodRow]] = {}

    async def verify(pods: tuple[PodKey, ...]) -> bool:
        if pods not in rows:
            rows[pods] = (await what_if(objects, goal.changes._replace(evicted=pods), policy=policy)).pods
        landed = {split_key(row.pod) for row in rows[pods] if row.after.kind is OutcomeKind.LANDS}
        return landed >= {*required.landing, *required.undisturbed, *pods}

    search = MoveSearch(trial, lambda: _begun(objects, everything, policy)[0], others, required, most_moves)
    found = await search.find(verify)
    if found.pods is None:
        unfit = "" if found.unfit is None else "/".join(found.unfit)
        return msgspec.structs.replace(
            report,
            pod=unfit,
            tried=found.tried,
            bound=found.bound,
            reasons=found.reasons,
            staying=(*report.staying, *found.forbidden),
        )
    moved = {*found.pods, *(facts.key for facts in own)}
    moves = tuple(_moves(rows[found.pods], movable.moving, moved))
    return msgspec.structs.replace(
        report,
        finding=Finding.PLAN if moves else Finding.MET,
        moves=moves,
        pod="" if subject is None else "/".join(subject),
        lands=None if subject is None else next(row.after for row in rows[found.pods] if split_key(row.pod) == subject),
        fewest=found.fewest,
        tried=found.tried,
        bound=found.bound,
        what_if=(*goal.arguments, *(word for key in sorted(found.pods) for word in ("--evict", "/".join(key)))),
    )


def _begun(objects: ClusterObjects, changes: Changes, policy: Overlay | None) -> tuple[Trial, AppliedChanges]:
    copy = CopiedCluster(objects)
    applied = AppliedChanges(copy, changes)
    return Trial(copy, policy), applied


def _kept_on_the_node(
    trial: Trial, applied: AppliedChanges, movable: Movable, own: Sequence[PodFacts]
) -> tuple[StayingPods, ...]:
    """Return the pods that would have to move in any case and may not, by reason."""
    needed = {"/".join(key) for key in applied.evicted}
    unread = StayingPods(
        reason="cannot be read", pods=tuple("/".join(key) for key in applied.evicted if trial.view.pod(*key) is None)
    )
    staying = (
        (each.reason, tuple(name for name in each.pods if name in needed)) for each in (*movable.staying, unread)
    )
    kept = tuple(StayingPods(reason=reason, pods=pods) for reason, pods in staying if pods)
    together = forbidding_budget(trial, own)
    return kept if kept or not together else (forbidden_together(together, own),)


def _moves(rows: Sequence[PodRow], moving: Sequence[MovingPods], moved: set[PodKey]) -> Iterator[Move]:
    """Yield the moves in the order in which the pods land: kube-scheduler's queue has those of a high priority first."""
    by_key = {split_key(row.pod): row for row in rows}
    facts = {facts.key: (facts, each.priority) for each in moving for facts in each.pods if facts.key in moved}
    for key, (found, priority) in sorted(facts.items(), key=lambda entry: (-entry[1][1], entry[0])):
        row = by_key[key]
        yield Move(
            pod=row.pod,
            before=row.before,
            after=row.after,
            controller=found.controller,
            priority=priority,
            claims=row.claims,
        )
