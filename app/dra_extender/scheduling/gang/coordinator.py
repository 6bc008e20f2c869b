"""Gangs: all members get their devices at once, or none does.

kube-scheduler calls filter for one member after the other, and does not report where it put the earlier ones.  So the coordinator
plans the whole group at the call for the first member, holds the plan, and answers each call with the node planned for the member.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.pod_claims import PodClaims
from dra_extender.scheduling.evaluation.filter_result import FilterResult, rejected_everywhere
from dra_extender.scheduling.gang.members import (
    GangSnapshot,
    candidate_of,
    existing_members,
    lacking_text,
    take_snapshot,
    why_too_large,
)
from dra_extender.scheduling.gang.offers import GangOffers
from dra_extender.scheduling.gang.permit import Permit
from dra_extender.scheduling.gang.placements import MAX_STEPS, PlanRequest, PlanUnfinishedError
from dra_extender.scheduling.gang.planner import GangPlanner
from dra_extender.scheduling.gang.plans import GangDiagnosis, GangPlan, PlacedMember
from dra_extender.scheduling.gang.search import Assignment
from dra_extender.scheduling.holds.fairness import HoldFairness
from dra_extender.scheduling.holds.service import HoldService, with_new_share_ids
from dra_extender.scheduling.holds.stale_holds import StaleHolds

_ELSEWHERE: Final = Rejection(code=Code.GANG_ELSEWHERE)
_EXTENSION_DIVISOR: Final = 4
"""An extension of a plan may take this fraction of the steps of a whole plan."""


class _MemberCall(NamedTuple):
    """A filter call for one member: the nodes offered to it, and its budget of time."""

    pod: Pod
    group: PodGroup
    nodes: Sequence[str]
    budget: CallBudget


class _MemberFailure(NamedTuple):
    """The reason why a member gets no assignment.

    `cannot_start`: too few other members have one for the gang to start.  `cached`: the rejection that further calls get until a
    fact changes; None if a further call may end otherwise.
    """

    result: FilterResult
    cannot_start: bool
    cached: Rejection | None = None


@dataclass(eq=False)
class GangCoordinator:
    """The plans of all gangs that are being scheduled.  A plan consists of holds only, and may be revoked at any time.

    `plans`: by UID of the PodGroup.  `on_assigned` is called with the UID of each member that gets an assignment in a call for
    another member.
    """

    ledger: Ledger
    planner: GangPlanner
    permit: Permit
    holds: HoldService
    fairness: HoldFairness
    stale: StaleHolds
    on_assigned: Callable[[str], None]
    plans: dict[str, GangPlan] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._offers = GangOffers(self.ledger, self.planner.device_backoff)
        self.stale.subscribe(self.revoke)

    def place_member(self, pod: Pod, group: PodGroup, nodes: Sequence[str], budget: CallBudget) -> FilterResult | None:
        """Return the node that is planned and held for this member, or why the gang does not fit; None if it needs no node.

        If the planned node is not among the offered `nodes`, the member gets another one next to the other assignments, or a new
        plan is made for it and for the members whose assignments are not announced.  If an announced assignment has become
        invalid, the whole gang is planned anew; other members keep their announced assignments if the gang fits with these.
        """
        rejection = why_too_large(group, self.ledger)
        if rejection is not None:
            return rejected_everywhere(nodes, rejection)
        call = _MemberCall(pod, group, nodes, budget)
        self._offers.record(group, pod.uid, nodes)
        plan = self.plans.get(group.metadata.uid)
        if plan is None or pod.uid not in plan.assignments:
            cached = self._offers.failure(group, pod.uid)
            if cached is not None:
                return rejected_everywhere(nodes, cached)
        if plan is None:
            for uid, existing_plan in list(self.plans.items()):
                # Another plan for this name is that of a PodGroup that this one replaced.
                if existing_plan.group == group.metadata.key or not self._are_held(existing_plan.assignments):
                    self.revoke(uid)
            self.fairness.check_plan(group.metadata.uid, *group.metadata.key)
            plan = GangPlan(group.metadata.key)
        for uid in [uid for uid in plan.assignments if self.ledger.pods.was_deleted(uid)]:
            plan.revoke(uid)
            # The others may be too few.
            plan.lost_members = True
        if plan.lost_members or not self._has_valid_assignment(plan, call):
            may_restart = self._revoke_invalid(plan, pod.uid)
            try:
                failure = None
                if plan.lost_members or may_restart or not self._extend(plan, call):
                    failure = self._plan_unannounced(plan, call)
                if failure is not None and failure.cannot_start and may_restart and plan.announced:
                    self.holds.release_pods(*plan.assignments)
                    plan.restart()
                    failure = self._plan_unannounced(plan, call)
            except PlanUnfinishedError as unfinished:
                if unfinished.unread is not None:
                    return FilterResult(unfinished=unfinished.unread)
                result = rejected_everywhere(nodes, _search_stopped(group))
                result.limited = True
                return result
            plan.replanned.discard(pod.uid)
            plan.lost_members = False
            if failure is not None:
                return self._reject(failure, call)
        assignment = plan.assignments.get(pod.uid)
        return None if assignment is None else self._announce(plan, call, assignment)

    def record_offer(self, pod: Pod, nodes: Sequence[str]) -> None:
        """Note that the other filters of kube-scheduler let the pod use only these nodes; without effect for a pod in no group."""
        if (group := self.ledger.pod_groups.get(pod.namespace, pod.pod_group or "")) is not None:
            self._offers.record(group, pod.uid, nodes)

    def may_fit(
        self, pod: Pod, group: PodGroup, nodes: Collection[str], budget: CallBudget, lacking: Rejection | None
    ) -> bool | UnreadSpecs:
        """Return whether a filter call for this rejected member might end with an assignment now; nothing is held for it.

        Also True if the answer would require revoking a plan, and if the gang does not lack the members named in `lacking`, the
        reason of the last rejection: the call then says what is true now.
        """
        plan = self.plans.get(group.metadata.uid)
        if plan is not None and self._are_held(plan.assignments):
            return True
        if self._offers.failure(group, pod.uid) is not None:
            return False
        if why_too_large(group, self.ledger) is not None:
            return False
        snapshot = take_snapshot(group, self.ledger, budget)
        if any(unready_pod.uid == pod.uid for unready_pod, _ in snapshot.unready):
            return False
        lacks = _too_few(group, snapshot) if snapshot.cannot_start else None
        if lacks != lacking:
            return True
        if all(member.pod.uid != pod.uid for member in snapshot.candidates):
            return not self._lacks_members(group, snapshot)
        if lacks is not None:
            return False
        offered = self._offers.among(group, pod.uid, self._offers.last(group, pod.uid) or nodes)
        request = PlanRequest(pod.uid, snapshot.candidates, max(snapshot.needed, 1), offered)
        try:
            planned = self.planner.plan_members(request, budget)
            if planned.limited or pod.uid in planned.assignments:
                return not planned.limited or budget.remaining <= 0
            return self.planner.without_holds(request, group.metadata.uid, budget).may_end_in_call
        except PlanUnfinishedError as unfinished:
            return unfinished.unread or False

    @contextmanager
    def diagnose(
        self, group: PodGroup, nodes: Sequence[str], budget: CallBudget, *, partly: bool = True
    ) -> Iterator[GangDiagnosis]:
        """Diagnose a gang: plan all members that it needs, else as many of the first ones as fit; inside, their devices are held.

        Members without an offer may go to these nodes.  Without `partly` no member is placed if the gang does not fit.
        """
        snapshot = take_snapshot(group, self.ledger, budget)
        candidates = snapshot.candidates
        undecided = {member.pod.uid for member in candidates} | {pod.uid for pod, _ in snapshot.unready}
        diagnosis = GangDiagnosis(
            group=group,
            needed=snapshot.needed,
            decided=tuple(pod for pod in existing_members(group, self.ledger) if pod.uid not in undecided),
            waiting=tuple(member.pod for member in candidates),
            unready=snapshot.unready,
        )
        refusal = why_too_large(group, self.ledger)
        if refusal is not None or not candidates or diagnosis.cannot_start:
            yield diagnosis._replace(limit="" if refusal is None else refusal.detail)
            return
        plan, limited = self._plan_first_members(
            group, candidates, max(snapshot.needed, 1), nodes, budget, partly=partly
        )
        self._hold(group, plan, candidates)
        try:
            pods = [member.pod for member in candidates]
            yield diagnosis._replace(
                placed=tuple(PlacedMember(pod, plan[pod.uid].node) for pod in pods if pod.uid in plan),
                waiting=tuple(pod for pod in pods if pod.uid not in plan),
                limit="a plan was not searched to its end" if limited else "",
            )
        finally:
            self.holds.release_pods(*plan)

    def _plan_first_members(
        self,
        group: PodGroup,
        candidates: Sequence[PodClaims],
        needed: int,
        nodes: Sequence[str],
        budget: CallBudget,
        *,
        partly: bool,
    ) -> tuple[Mapping[str, Assignment], bool]:
        """Return assignments for all that are needed, else for the most of the first members; whether a search was cut short."""
        pod_uid, offered = candidates[0].pod.uid, self._offers.among(group, "", nodes)
        least = min(needed, len(candidates))
        result = self.planner.plan_members(PlanRequest(pod_uid, candidates, least, offered), budget)
        best, limited = result.assignments, result.limited
        if best or not partly:
            return best, limited
        fitting, failing = 0, len(candidates)
        while failing - fitting > 1:
            middle = (fitting + failing) // 2
            result = self.planner.plan_members(PlanRequest(pod_uid, candidates[:middle], middle, offered), budget)
            limited |= result.limited
            if len(result.assignments) == middle:
                best, fitting = result.assignments, middle
            else:
                failing = middle
        return best, limited

    def revoke(self, group_uid: str) -> None:
        """End the plan of a gang and its holds."""
        plan = self.plans.pop(group_uid, None)
        if plan is not None:
            self.holds.release_pods(*plan.assignments)

    def _has_valid_assignment(self, plan: GangPlan, call: _MemberCall) -> bool:
        """Return whether the member's assignment can be announced; the node of an announced one must be unchanged."""
        uid = call.pod.uid
        assignment = plan.assignments.get(uid)
        return (
            assignment is not None
            and assignment.node in call.nodes
            and self._covers(uid, assignment, unchanged=uid in plan.announced)
        )

    def _revoke_invalid(self, plan: GangPlan, uid: str) -> bool:
        """Return whether the member's announced assignment became invalid, in this call or before a pause of it.

        If so, revoke all announced assignments that are invalid.
        """
        if uid not in plan.announced and uid not in plan.replanned:
            return False
        plan.replanned.add(uid)
        for member_uid in list(plan.announced):
            if member_uid == uid or not self._covers(member_uid, plan.assignments[member_uid], unchanged=True):
                plan.revoke(member_uid)
                self.holds.release_pods(member_uid)
        return True

    def _extend(self, plan: GangPlan, call: _MemberCall) -> bool:
        """Assign the pod and leave all others as they are; return whether that is possible.  It costs much less than a new plan."""
        pod, group, nodes, budget = call
        other_uids = plan.assignments.keys() - {pod.uid}
        if not other_uids or not all(self._covers(uid, plan.assignments[uid]) for uid in other_uids - plan.announced):
            return False
        plan.revoke(pod.uid)
        self.holds.release_pods(pod.uid)
        candidate = candidate_of(pod, self.ledger)
        if candidate is None or isinstance(candidate, Rejection):
            return False
        offered = self._offers.among(group, pod.uid, nodes)
        request = PlanRequest(pod.uid, (candidate,), 1, offered, steps=MAX_STEPS // _EXTENSION_DIVISOR)
        planned = self.planner.plan_members(request, budget)
        if pod.uid not in planned.assignments:
            return False
        self._assign(plan, call, planned.assignments, (candidate,))
        return True

    def _plan_unannounced(self, plan: GangPlan, call: _MemberCall) -> _MemberFailure | None:
        """Assign the members whose assignments are not announced, all or as many as the gang lacks.

        Returns why the member of the call gets no assignment, if it does not get one and needs one.
        """
        pod, group, nodes, budget = call
        self.holds.release_pods(pod.uid, *plan.unannounced)
        for uid in plan.unannounced:
            plan.revoke(uid)
        snapshot = take_snapshot(group, self.ledger, budget, pod.uid)
        if snapshot.limited:
            raise PlanUnfinishedError
        if all(member.pod.uid != pod.uid for member in snapshot.candidates):
            # Its claims are not ready, or its gang lacks members; otherwise it needs no assignment.
            rejection = next((why for unready_pod, why in snapshot.unready if unready_pod.uid == pod.uid), None)
            if rejection is None and self._lacks_members(group, snapshot):
                rejection = _too_few(group, snapshot)
            if rejection is None:
                return None
            return _MemberFailure(rejected_everywhere(nodes, rejection), cannot_start=False)
        candidates = tuple(member for member in snapshot.candidates if member.pod.uid not in plan.announced)
        lacking = snapshot.needed - sum(member.pod.uid in plan.announced for member in snapshot.candidates)
        needed, cannot_start = max(lacking, 1), lacking > 0
        if len(candidates) < needed:
            return _MemberFailure(rejected_everywhere(nodes, _too_few(group, snapshot)), cannot_start=cannot_start)
        request = PlanRequest(pod.uid, candidates, needed, self._offers.among(group, pod.uid, nodes))
        planned = self.planner.plan_members(request, budget)
        if planned.limited:
            if budget.remaining <= 0:
                # A further call may end otherwise; one that reached its limit of steps would reach it again.
                raise PlanUnfinishedError
            why = _search_stopped(group)
            return _MemberFailure(rejected_everywhere(nodes, why), cannot_start=False, cached=why)
        if pod.uid in planned.assignments:
            self._assign(plan, call, planned.assignments, candidates)
            return None
        without_holds = self.planner.without_holds(request, group.metadata.uid, budget)
        unplaceable = () if without_holds.loose else self.planner.why_unplaceable(request, planned, budget)
        why = _does_not_fit(group, len(candidates), needed, unplaceable)
        result = rejected_everywhere(nodes, why)
        result.without_holds = without_holds
        if without_holds.may_end_in_call:
            return _MemberFailure(result, cannot_start=False)
        if planned.assignments:
            self.plans[group.metadata.uid] = plan
            self._assign(plan, call, planned.assignments, candidates)
            cannot_start = False
        # The gang may fit without holds that end, or without its announced assignments.
        may_fit_otherwise = without_holds.loose or (cannot_start and plan.announced)
        return _MemberFailure(result, cannot_start, None if may_fit_otherwise else why)

    def _assign(
        self,
        plan: GangPlan,
        call: _MemberCall,
        assignments: Mapping[str, Assignment],
        candidates: Sequence[PodClaims],
    ) -> None:
        """Hold these assignments, and report them: earlier calls for the other members may have ended with a rejection."""
        plan.assignments.update(assignments)
        self._hold(call.group, assignments, candidates)
        for uid in assignments:
            if uid != call.pod.uid:
                self.on_assigned(uid)

    def _hold(self, group: PodGroup, assignments: Mapping[str, Assignment], candidates: Sequence[PodClaims]) -> None:
        # First the holds that exist: a new one may end the oldest of the namespace.
        for candidate in candidates:
            for held_claim in candidate.held if candidate.pod.uid in assignments else ():
                self.holds.extend(held_claim.uid, candidate.pod.uid)
        meta = group.metadata
        users: dict[str, list[str]] = {}
        for uid, assignment in assignments.items():
            for claim in assignment.placements:
                users.setdefault(claim, []).append(uid)
        for claim, pods in users.items():
            placement = with_new_share_ids(assignments[pods[0]].placements[claim])
            nodes = {assignments[uid].node for uid in pods}
            versions = {name: self.ledger.state_versions.version(name) for name in nodes}
            self.holds.place(meta.namespace, meta.uid, claim, pods, dict.fromkeys(nodes, placement), versions)

    def _are_held(self, pods: Iterable[str]) -> bool:
        return any(self.ledger.holds.of_pod(uid) for uid in pods)

    def _covers(self, pod_uid: str, assignment: Assignment, *, unchanged: bool = False) -> bool:
        """Return whether the whole assignment is held for the member; `unchanged`: and its node is as it was at the decision."""
        holds, state = self.ledger.holds, self.ledger.state_versions.version(assignment.node)
        return all(
            (hold := holds.get(uid)) is not None
            and pod_uid in hold.pods
            and assignment.node in hold.placements
            and (not unchanged or hold.versions.get(assignment.node) == state)
            for uid in assignment.placements
        )

    def _announce(self, plan: GangPlan, call: _MemberCall, assignment: Assignment) -> FilterResult:
        uid, group = call.pod.uid, call.group
        if not plan.announced:
            self.fairness.offered(group.metadata.uid)
        if uid not in plan.announced:
            self.stale.progressed(group.metadata.uid)
        self.plans[group.metadata.uid] = plan
        plan.announced.add(uid)
        for claim in assignment.placements:
            self.holds.extend(claim, uid)
        result = rejected_everywhere([name for name in call.nodes if name != assignment.node], _ELSEWHERE)
        result.assigned_node, result.fits = assignment.node, {assignment.node: None}
        return result

    def _reject(self, failure: _MemberFailure, call: _MemberCall) -> FilterResult:
        """Answer the call with a rejection, which further calls get as long as no fact changes."""
        group, cached = call.group, failure.cached
        if failure.cannot_start:
            self.revoke(group.metadata.uid)
            self.permit.reject(group)
        if cached is not None:
            whole_gang = failure.cannot_start or cached.code is Code.SEARCH_LIMIT
            self._offers.record_failure(group, call.pod.uid, cached, whole_gang=whole_gang)
        return failure.result

    def _lacks_members(self, group: PodGroup, snapshot: GangSnapshot) -> bool:
        """Return whether too few members exist for the gang to start, and none is bound yet."""
        return snapshot.cannot_start and not self.permit.is_admitted(group)


def _too_few(group: PodGroup, snapshot: GangSnapshot) -> Rejection:
    detail = f"{max(snapshot.needed, 1)} more members needed, {len(snapshot.candidates)} can be placed"
    if snapshot.unready:
        detail += f"; {lacking_text(snapshot.unready)}"
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
