"""Gangs: all members get their devices at once, or none does.

kube-scheduler calls filter for one member after the other, and does not report where it put the earlier ones.  So the coordinator
plans the whole group at the call for the first member, holds the plan, and answers each call with the node planned for the member.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.evaluation.result import FilterResult, rejected_everywhere
from dra_extender.scheduling.fairness.hold_fairness import HoldFairness
from dra_extender.scheduling.gang.account import GangAccounts
from dra_extender.scheduling.gang.assignment import Assignment
from dra_extender.scheduling.gang.failure_cache import GangFailures
from dra_extender.scheduling.gang.holds import GangHolds
from dra_extender.scheduling.gang.offers import GangOffers
from dra_extender.scheduling.gang.plan import GangPhase, GangPlan
from dra_extender.scheduling.gang.planner import GangPlanner, PlanResult, PlanUnfinishedError
from dra_extender.scheduling.gang.search import MAX_STEPS
from dra_extender.scheduling.permit.members import (
    GangSnapshot,
    MemberCandidate,
    candidate_of,
    lacking_text,
    take_snapshot,
    too_large,
)
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.search_time.time_slices import CallBudget

_ELSEWHERE: Final = Rejection(code=Code.GANG_ELSEWHERE)
_EXTENSION_DIVISOR: Final = 4
"""An extension of a plan may take this fraction of the steps of a whole plan."""

GroupKey = tuple[str, str]
"""(namespace, name) of a PodGroup."""


class _Request(NamedTuple):
    """A filter call for one member: the nodes offered to it, and its budget of time."""

    pod: Pod
    group: PodGroup
    nodes: Sequence[str]
    budget: CallBudget


class _Failure(NamedTuple):
    """Why a member gets no assignment.

    `short`: whether too few other members have one for the gang to start.  `cached`: the rejection that further calls get until a
    fact changes; None if a further call may end otherwise.
    """

    result: FilterResult
    short: bool
    cached: Rejection | None = None


@dataclass(frozen=True, slots=True)
class GangDependencies:
    """What the coordinator works with.

    `on_assigned` is called with the UID of each member that gets an assignment in a call for another member.
    """

    ledger: Ledger
    planner: GangPlanner
    permit: Permit
    failures: GangFailures
    holds: GangHolds
    fairness: HoldFairness
    on_assigned: Callable[[str], None]


class GangCoordinator:
    """The plans of all gangs that are being scheduled.  A plan consists of holds only, and may be dropped at any time.

    `plans` shows them to readers.
    """

    def __init__(self, uses: GangDependencies) -> None:
        self._ledger = uses.ledger
        self._planner = uses.planner
        self._permit = uses.permit
        self._failures = uses.failures
        self._holds = uses.holds
        self.fairness = uses.fairness
        self._on_assigned = uses.on_assigned
        self._offers = GangOffers(uses.ledger)
        self.accounts = GangAccounts(uses.ledger, self._offers, uses.planner, uses.holds)
        self._plans: dict[GroupKey, GangPlan] = {}
        self.plans: Mapping[GroupKey, GangPlan] = MappingProxyType(self._plans)
        uses.fairness.stale.subscribe(self.revoke)

    def offer(self, pod: Pod, group: PodGroup, nodes: Sequence[str], budget: CallBudget) -> FilterResult | None:
        """The one node that is planned and held for this member, or why the gang does not fit; None if the pod needs no assignment.

        If the planned node is not among the offered `nodes`, the member gets another one beside the other assignments, or a new
        plan is made for it and for the members whose assignments are not announced.  If an announced assignment has become
        invalid, the whole gang is planned anew; other members keep their announced assignments if the gang fits with these.

        Raises:
            SearchPaused: the slice of the budget is over; the same call continues.
        """
        rejection = too_large(group, self._ledger)
        if rejection is not None:
            return rejected_everywhere(nodes, rejection)
        try:
            return self._offer(_Request(pod, group, nodes, budget))
        except PlanUnfinishedError:
            result = rejected_everywhere(nodes, _search_stopped(group))
            result.limited = True
            return result

    def record_offer(self, pod: Pod, nodes: Sequence[str]) -> None:
        """Note that the other filters of kube-scheduler let the pod use these nodes alone; of no effect for one in no group."""
        if (group := self._ledger.pod_groups.get(pod.namespace, pod.pod_group or "")) is not None:
            self._offers.record(group, pod.uid, nodes)

    def may_fit(
        self, pod: Pod, group: PodGroup, nodes: Collection[str], budget: CallBudget, lacking: Rejection | None
    ) -> bool:
        """Whether a filter call for this rejected member might end with an assignment now; nothing is held for it.

        Also True if the answer would require dropping a plan, and if the gang does not lack the members named in `lacking`, the
        reason of the last rejection: the call then says what is true now.

        Raises:
            SearchPaused: the slice of the budget is over.
        """
        plan = self._plans.get(group.metadata.key)
        if plan is not None and self._holds.any_of(plan.assignments):
            return True
        if self._failures.find(group, pod.uid, self._offers.revision(group)) is not None:
            return False
        if too_large(group, self._ledger) is not None:
            return False
        snapshot = take_snapshot(group, self._ledger)
        if any(other.uid == pod.uid for other, _ in snapshot.missing):
            return False
        lacks = _too_few(group, snapshot) if snapshot.cannot_start else None
        if lacks != lacking:
            return True
        if all(each.pod.uid != pod.uid for each in snapshot.candidates):
            return not self._lacks_members(group, snapshot)
        if lacks is not None:
            return False
        offered = self._offers.last(group, pod.uid) or nodes
        request = _Request(pod, group, tuple(offered), budget)
        planned = self._search(request, snapshot.candidates, max(snapshot.needed, 1))
        return planned.narrowing or bool(planned.revocable) or pod.uid in planned.assignments

    def revoke(self, group_uid: str) -> None:
        """Drop the plan of this gang."""
        for key, plan in list(self._plans.items()):
            if plan.group_uid == group_uid:
                self._drop(key)

    def phase(self, group: PodGroup) -> GangPhase:
        """How far the gang has come."""
        if self._permit.is_admitted(group):
            return GangPhase.BOUND
        plan = self._plans.get(group.metadata.key)
        return GangPhase.NEW if plan is None or plan.group_uid != group.metadata.uid else plan.phase

    def _offer(self, request: _Request) -> FilterResult | None:
        pod, group, nodes = request.pod, request.group, request.nodes
        self._offers.record(group, pod.uid, nodes)
        plan = self._plan_of(group)
        if plan is None or pod.uid not in plan.assignments:
            cached = self._failures.find(group, pod.uid, self._offers.revision(group))
            if cached is not None:
                return rejected_everywhere(nodes, cached)
        if plan is None:
            self.fairness.shares.check_plan(group.metadata.uid, *group.metadata.key)
            self._forget_without_holds()
            plan = GangPlan(group.metadata.uid)
        deleted = self._revoke_deleted(plan)
        if deleted or not self._has_valid_assignment(plan, request):
            failure = self._replan(plan, request, may_extend=not deleted)
            if failure is not None:
                return self._reject(failure, request)
        assignment = plan.assignments.get(pod.uid)
        return None if assignment is None else self._announce(plan, request, assignment)

    def _plan_of(self, group: PodGroup) -> GangPlan | None:
        """The plan of this gang; one of an earlier PodGroup of the same name is dropped."""
        key = group.metadata.key
        plan = self._plans.get(key)
        if plan is not None and plan.group_uid != group.metadata.uid:
            self._drop(key)
            return None
        return plan

    def _has_valid_assignment(self, plan: GangPlan, request: _Request) -> bool:
        """Whether the member has an assignment that can be announced; the node of an announced one must be unchanged."""
        uid = request.pod.uid
        assignment = plan.assignments.get(uid)
        return (
            assignment is not None
            and assignment.node in request.nodes
            and self._holds.has(uid, assignment, unchanged=uid in plan.announced)
        )

    def _replan(self, plan: GangPlan, request: _Request, *, may_extend: bool) -> _Failure | None:
        """Find an assignment for the member; returns why there is none, or None if it has one or needs none.

        1. Extend: all others keep their assignments.
        2. Replan the members whose assignments are not announced.
        3. Restart the gang, if an announced assignment became invalid and too few members fit beside the other announced ones.
        """
        uid = request.pod.uid
        restartable = uid in plan.announced or uid in plan.replanned
        if restartable:
            # Until the call for it ends: the search may pause in between.
            plan.replanned.add(uid)
            self._revoke_invalid(plan, uid)
        elif may_extend and self._extend(plan, request):
            return None
        failure = self._replan_unannounced(plan, request)
        if failure is not None and failure.short and restartable and plan.phase is GangPhase.ANNOUNCED:
            self._holds.release(plan.assignments)
            plan.restart()
            failure = self._replan_unannounced(plan, request)
        plan.replanned.discard(uid)
        return failure

    def _extend(self, plan: GangPlan, request: _Request) -> bool:
        """Whether the pod gets an assignment beside all others.  That costs much less than a new plan."""
        pod = request.pod
        others = plan.assignments.keys() - {pod.uid}
        if not others or not all(self._holds.has(uid, plan.assignments[uid]) for uid in others - plan.announced):
            return False
        plan.revoke(pod.uid)
        self._holds.release((pod.uid,))
        candidate = candidate_of(pod, self._ledger)
        if candidate is None or isinstance(candidate, Rejection):
            return False
        planned = self._search(request, (candidate,), 1, MAX_STEPS // _EXTENSION_DIVISOR)
        if pod.uid not in planned.assignments:
            return False
        self._assign(plan, request, planned.assignments, (candidate,))
        return True

    def _replan_unannounced(self, plan: GangPlan, request: _Request) -> _Failure | None:
        """Plan the members whose assignments are not announced; returns why that is impossible, if it is."""
        pod, group = request.pod, request.group
        self._holds.release((pod.uid, *plan.unannounced))
        for uid in plan.unannounced:
            plan.revoke(uid)
        snapshot = take_snapshot(group, self._ledger, pod.uid)
        if all(each.pod.uid != pod.uid for each in snapshot.candidates):
            return self._check_without_assignment(request, snapshot)
        candidates = tuple(each for each in snapshot.candidates if each.pod.uid not in plan.announced)
        lacking = snapshot.needed - sum(each.pod.uid in plan.announced for each in snapshot.candidates)
        if len(candidates) < max(lacking, 1):
            return _Failure(rejected_everywhere(request.nodes, _too_few(group, snapshot)), short=lacking > 0)
        return self._plan_candidates(plan, request, candidates, lacking)

    def _check_without_assignment(self, request: _Request, snapshot: GangSnapshot) -> _Failure | None:
        """Why a pod that is no candidate is rejected: its claims are not ready, or its gang lacks members; None if it is not."""
        pod, group, nodes = request.pod, request.group, request.nodes
        for other, rejection in snapshot.missing:
            if other.uid == pod.uid:
                return _Failure(rejected_everywhere(nodes, rejection), short=False)
        if self._lacks_members(group, snapshot):
            return _Failure(rejected_everywhere(nodes, _too_few(group, snapshot)), short=False)
        return None

    def _plan_candidates(
        self, plan: GangPlan, request: _Request, candidates: Sequence[MemberCandidate], lacking: int
    ) -> _Failure | None:
        """Assign all candidates, or as many as the gang lacks; returns why the member of the call gets no assignment, if so."""
        pod, group, nodes = request.pod, request.group, request.nodes
        needed, short = max(lacking, 1), lacking > 0
        planned = self._search(request, candidates, needed)
        if planned.limited:
            return _failure(nodes, _search_stopped(group), plan, short=False)
        if pod.uid in planned.assignments:
            self._assign(plan, request, planned.assignments, candidates)
            return None
        why = _does_not_fit(group, len(candidates), needed, planned.unplaceable)
        if planned.narrowing or planned.revocable:
            result = rejected_everywhere(nodes, why)
            result.narrowing, result.behind, result.revocable = planned.narrowing, planned.behind, planned.revocable
            return _Failure(result, short=False)
        if planned.assignments:
            self._plans[group.metadata.key] = plan
            self._assign(plan, request, planned.assignments, candidates)
        failure = _failure(nodes, why, plan, short=short and not planned.assignments)
        failure.result.behind = planned.behind
        return failure._replace(cached=None) if planned.behind else failure

    def _search(
        self, request: _Request, candidates: Sequence[MemberCandidate], needed: int, steps: int = MAX_STEPS
    ) -> PlanResult:
        pod, group = request.pod, request.group
        offered = self._offers.among(group, pod.uid, request.nodes)
        return self._planner.plan(pod.uid, candidates, needed, offered, request.budget, (steps, group.metadata.uid))

    def _assign(
        self,
        plan: GangPlan,
        request: _Request,
        assignments: Mapping[str, Assignment],
        candidates: Sequence[MemberCandidate],
    ) -> None:
        """Hold these assignments, and report them: earlier calls for the other members may have ended with a rejection."""
        plan.assign(assignments)
        self._holds.place(request.group, assignments, candidates)
        for uid in assignments:
            if uid != request.pod.uid:
                self._on_assigned(uid)

    def _announce(self, plan: GangPlan, request: _Request, assignment: Assignment) -> FilterResult:
        """Answer the call with the member's node."""
        uid, group = request.pod.uid, request.group
        if plan.phase is not GangPhase.ANNOUNCED:
            self.fairness.shares.offered(group.metadata.uid)
        if uid not in plan.announced:
            self.fairness.stale.progressed(group.metadata.uid)
        self._plans[group.metadata.key] = plan
        plan.announce(uid)
        self._holds.extend(uid, assignment)
        result = rejected_everywhere([name for name in request.nodes if name != assignment.node], _ELSEWHERE)
        result.assigned_node, result.fits = assignment.node, {assignment.node: None}
        return result

    def _reject(self, failure: _Failure, request: _Request) -> FilterResult:
        """Answer the call with a rejection, which further calls get as long as no fact changes."""
        pod, group = request.pod, request.group
        if failure.short:
            self._drop(group.metadata.key)
            self._permit.reject(group)
        if failure.cached is not None:
            limited = failure.cached.code is Code.SEARCH_LIMIT
            whole_gang, revision = limited or failure.short, self._offers.revision(group)
            self._failures.record(group, pod.uid, revision, failure.cached, whole_gang=whole_gang, limited=limited)
        return failure.result

    def _revoke_deleted(self, plan: GangPlan) -> bool:
        """Revoke the assignments of deleted members; whether there were any, so that the others may be too few now."""
        deleted = [uid for uid in plan.assignments if self._ledger.pods.was_deleted(uid)]
        for uid in deleted:
            plan.revoke(uid)
        return bool(deleted)

    def _revoke_invalid(self, plan: GangPlan, pod_uid: str) -> None:
        """Revoke this member's assignment, and announced ones whose holds or nodes have changed."""
        for uid in list(plan.announced):
            if uid == pod_uid or not self._holds.has(uid, plan.assignments[uid], unchanged=True):
                plan.revoke(uid)
                self._holds.release((uid,))

    def _forget_without_holds(self) -> None:
        """Drop plans without holds."""
        for key, plan in list(self._plans.items()):
            if not self._holds.any_of(plan.assignments):
                del self._plans[key]

    def _drop(self, key: GroupKey) -> None:
        plan = self._plans.pop(key, None)
        if plan is not None:
            self._holds.release(plan.assignments)

    def _lacks_members(self, group: PodGroup, snapshot: GangSnapshot) -> bool:
        """Whether too few members exist for the gang to start, and none is bound yet."""
        return snapshot.cannot_start and self.phase(group) is not GangPhase.BOUND


def _failure(nodes: Sequence[str], why: Rejection, plan: GangPlan, *, short: bool) -> _Failure:
    """A gang that does not fit beside its announced assignments may fit without them."""
    return _Failure(rejected_everywhere(nodes, why), short, None if short and plan.announced else why)


def _too_few(group: PodGroup, snapshot: GangSnapshot) -> Rejection:
    detail = f"{max(snapshot.needed, 1)} more members needed, {len(snapshot.candidates)} can be placed"
    if snapshot.missing:
        detail += f"; {lacking_text(snapshot.missing)}"
    return Rejection(code=Code.GANG_INCOMPLETE, detail=f"PodGroup {group.metadata.name}: {detail}")


def _does_not_fit(
    group: PodGroup, members: int, needed: int, unplaceable: Sequence[tuple[Pod, Rejection]]
) -> Rejection:
    detail = f"PodGroup {group.metadata.name}: no placement for {needed} of {members} waiting members at once"
    if unplaceable:
        detail += f"; {lacking_text(unplaceable)}"
    return Rejection(code=Code.GANG, detail=detail)


def _search_stopped(group: PodGroup) -> Rejection:
    return Rejection(code=Code.SEARCH_LIMIT, detail=f"PodGroup {group.metadata.name}: no plan found in time")
