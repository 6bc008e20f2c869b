"""Gangs: all members get their devices at once, or none does.

kube-scheduler asks about one member after the other and never tells where it has put the ones before, so the whole group is planned
at the first member's call, and each member is answered with the one node that is planned for it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dra_extender.ledger.holds.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.evaluation.fresh_shares import new_share_id, with_fresh_shares
from dra_extender.scheduling.evaluation.result import FilterResult, refused_everywhere
from dra_extender.scheduling.fairness.hold_fairness import HoldFairness
from dra_extender.scheduling.gang.assignment import Assignment
from dra_extender.scheduling.gang.failure_cache import GangFailures
from dra_extender.scheduling.gang.offers import GangOffers
from dra_extender.scheduling.gang.planner import GangPlanner, PlanResult, PlanUnfinishedError
from dra_extender.scheduling.gang.search import MAX_STEPS
from dra_extender.scheduling.permit.members import GangSnapshot, MemberCandidate, candidate_of, take_snapshot, too_large
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.search_time.deadline import CallBudget

_ELSEWHERE = Rejection(code=Code.GANG_ELSEWHERE)

_SHARE = 4

GroupKey = tuple[str, str]


@dataclass(slots=True)
class _Plan:
    """The assignments of one gang by pod UID, the members to which they were announced, and those of them that are replanned."""

    group_uid: str
    assignments: dict[str, Assignment] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    replanned: set[str] = field(default_factory=set)


class _Request(NamedTuple):
    """The nodes offered to a member, and what finding an assignment for it may spend."""

    nodes: Collection[str]
    budget: CallBudget


class _Refusal(NamedTuple):
    """Why a member is not assigned, and whether too few others are, so that the gang cannot come together now.

    `why` counts as long as the facts are what they are; None if that cannot be said.
    """

    attempt: FilterResult
    short: bool
    why: Rejection | None = None


class Gangs:
    """The plans of all gangs that are being scheduled.  A plan is nothing but holds, and may be dropped at any time."""

    def __init__(
        self,
        ledger: Ledger,
        planning: GangPlanner,
        permit: Permit,
        failures: GangFailures,
        clock: Clock,
        options: Options,
        fairness: HoldFairness,
        assigned: Callable[[str], None],
    ) -> None:
        """`assigned` is called with the UID of each member that gets an assignment while another member is asked about."""
        self._ledger = ledger
        self._planning = planning
        self._permit = permit
        self._clock = clock
        self._options = options
        self.fairness = fairness
        self._assigned = assigned
        self._offers = GangOffers(ledger)
        self._failures = failures
        self._plans: dict[GroupKey, _Plan] = {}

    def attempt(self, pod: Pod, group: PodGroup, nodes: Sequence[str], budget: CallBudget) -> FilterResult | None:
        """The one node that is planned for this member, held for it, or why the gang does not fit; None if it needs no plan.

        If the planned node is not among the offered `nodes`, the member gets another one beside the others, or causes a new plan
        for itself and for the members whose assignments are not announced.  If an announced assignment has become invalid, the
        gang is planned anew: others keep what was announced to them only if the gang fits with that.

        Raises:
            SearchPaused: the slice of the budget is over; asked again, it goes on.
        """
        refusal = too_large(group, self._ledger)
        if refusal is not None:
            return refused_everywhere(nodes, refusal)
        try:
            return self._attempt(pod, group, nodes, budget)
        except PlanUnfinishedError:
            refused = refused_everywhere(nodes, _stopped(group))
            refused.limited = True
            return refused

    def _attempt(self, pod: Pod, group: PodGroup, nodes: Sequence[str], budget: CallBudget) -> FilterResult | None:
        key = group.metadata.key
        self._offers.note(group, pod.uid, nodes)
        plan = self._plans.get(key)
        if plan is not None and plan.group_uid != group.metadata.uid:
            self._drop(key)
            plan = None
        if plan is None or pod.uid not in plan.assignments:
            known = self._failures.known(group, pod.uid, self._offers.revision(group))
            if known is not None:
                return refused_everywhere(nodes, known)
        if plan is None:
            self.fairness.shares.check_plan(group.metadata.uid, *key)
            self._forget_settled()
            plan = _Plan(group.metadata.uid)
        complete = not self._drop_deleted(plan)
        if not complete or not self._has_valid_assignment(plan, pod, nodes):
            refusal = self._assign(plan, pod, group, _Request(nodes, budget), beside=complete)
            if refusal is not None:
                if refusal.short:
                    self._drop(key)
                    self._permit.reject(group)
                self._remember(refusal, pod, group)
                return refusal.attempt
        assignment = plan.assignments.get(pod.uid)
        return None if assignment is None else self._announce(plan, pod, group, assignment, nodes)

    def _announce(
        self, plan: _Plan, pod: Pod, group: PodGroup, assignment: Assignment, nodes: Sequence[str]
    ) -> FilterResult:
        """The answer that names the assignment, which is held from now on."""
        if not plan.announced:
            self.fairness.shares.offered(group.metadata.uid)
        if pod.uid not in plan.announced:
            self.fairness.stale.progressed(group.metadata.uid)
        self._plans[group.metadata.key] = plan
        plan.announced.add(pod.uid)
        expires = self._clock.monotonic() + self._options.hold_seconds
        for uid in assignment.placements:
            self._ledger.holds.add_pod(uid, pod.uid, expires)
        attempt = refused_everywhere([name for name in nodes if name != assignment.node], _ELSEWHERE)
        attempt.assigned_node, attempt.fits = assignment.node, {assignment.node: None}
        return attempt

    def _remember(self, refusal: _Refusal, pod: Pod, group: PodGroup) -> None:
        """Answer the next members at once as long as nothing changes."""
        if refusal.why is not None:
            limited = refusal.why.code is Code.SEARCH_LIMIT
            everybody = limited or refusal.short
            offers = self._offers.revision(group)
            self._failures.note(group, pod.uid, offers, refusal.why, everybody=everybody, limited=limited)

    def may_fit(self, pod: Pod, group: PodGroup, nodes: Collection[str], budget: CallBudget) -> bool:
        """Whether a call for this refused member might end with an assignment now; nothing is held for it.

        What cannot be found out without giving up a plan may be so.  Raises Paused when the slice of the budget is over.
        """
        plan = self._plans.get(group.metadata.key)
        if plan is not None and any(self._ledger.holds.of_pod(uid) for uid in plan.assignments):
            return True
        if self._failures.known(group, pod.uid, self._offers.revision(group)) is not None:
            return False
        if too_large(group, self._ledger) is not None:
            return False
        snapshot = take_snapshot(group, self._ledger)
        if any(other.uid == pod.uid for other, _ in snapshot.missing):
            return False
        if all(each.pod.uid != pod.uid for each in snapshot.candidates):
            return not self._lacks_members(group, snapshot)
        if len(snapshot.candidates) < snapshot.needed:
            return False
        offered = self._offers.last(group, pod.uid) or nodes
        needed = max(snapshot.needed, 1)
        planned = self._planned(pod, group, _Request(offered, budget), snapshot.candidates, needed)
        return planned.unsettled or bool(planned.revocable) or pod.uid in planned.assignments

    def _forget_settled(self) -> None:
        """Drop plans of which nothing is held any more."""
        for key, plan in list(self._plans.items()):
            if not any(self._ledger.holds.of_pod(uid) for uid in plan.assignments):
                del self._plans[key]

    def _drop(self, key: GroupKey) -> None:
        plan = self._plans.pop(key, None)
        for uid in plan.assignments if plan is not None else ():
            self._ledger.holds.release_pod(uid)

    def revoke(self, group_uid: str) -> None:
        """Give up the whole plan of this gang."""
        for key, plan in list(self._plans.items()):
            if plan.group_uid == group_uid:
                self._drop(key)

    def _has_valid_assignment(self, plan: _Plan, pod: Pod, nodes: Sequence[str]) -> bool:
        """Whether the member has an assignment that can be announced; an announced one must not have changed since."""
        assignment = plan.assignments.get(pod.uid)
        return (
            assignment is not None
            and assignment.node in nodes
            and self._is_held(pod.uid, assignment, as_decided=pod.uid in plan.announced)
        )

    def _drop_deleted(self, plan: _Plan) -> bool:
        """Whether a member with an assignment is gone, so that the others may be too few now."""
        gone = [uid for uid in plan.assignments if self._ledger.pods.gone(uid)]
        for uid in gone:
            plan.announced.discard(uid)
            del plan.assignments[uid]
        return bool(gone)

    def _is_held(self, pod_uid: str, assignment: Assignment, *, as_decided: bool = False) -> bool:
        holds, state = self._ledger.holds, self._ledger.state.of(assignment.node)
        return all(
            (hold := holds.get(uid)) is not None
            and pod_uid in hold.pods
            and assignment.node in hold.placements
            and (not as_decided or hold.versions.get(assignment.node) == state)
            for uid in assignment.placements
        )

    def _assign(self, plan: _Plan, pod: Pod, group: PodGroup, request: _Request, *, beside: bool) -> _Refusal | None:
        """Find an assignment for the pod, if possible `beside` the others; why there is none, if so.  It may need none."""
        again = pod.uid in plan.announced or pod.uid in plan.replanned
        if again:
            # For as long as it is not answered: pauses come in between.
            plan.replanned.add(pod.uid)
            self._keep_what_is_good(plan, pod.uid)
        elif beside and self._assign_beside_others(plan, pod, group, request):
            return None
        refusal = self._replan_unannounced(plan, pod, group, request)
        if refusal is not None and refusal.short and again and plan.announced:
            for uid in plan.assignments:
                self._ledger.holds.release_pod(uid)
            plan.assignments.clear()
            plan.announced.clear()
            refusal = self._replan_unannounced(plan, pod, group, request)
        plan.replanned.discard(pod.uid)
        return refusal

    def _keep_what_is_good(self, plan: _Plan, pod_uid: str) -> None:
        """Give up the assignment of this member and those announced assignments about which something has changed."""
        for uid in list(plan.announced):
            if uid == pod_uid or not self._is_held(uid, plan.assignments[uid], as_decided=True):
                plan.announced.discard(uid)
                del plan.assignments[uid]
                self._ledger.holds.release_pod(uid)

    def _assign_beside_others(self, plan: _Plan, pod: Pod, group: PodGroup, request: _Request) -> bool:
        """Whether the pod gets an assignment beside all others, which costs much less than a new plan."""
        others = plan.assignments.keys() - {pod.uid}
        if not others or not all(self._is_held(uid, plan.assignments[uid]) for uid in others - plan.announced):
            return False
        plan.assignments.pop(pod.uid, None)
        self._ledger.holds.release_pod(pod.uid)
        candidate = candidate_of(pod, self._ledger)
        if candidate is None or isinstance(candidate, Rejection):
            return False
        planned = self._planned(pod, group, request, (candidate,), 1, MAX_STEPS // _SHARE)
        if pod.uid not in planned.assignments:
            return False
        self._take(plan, pod, group, planned.assignments, (candidate,))
        return True

    def _replan_unannounced(self, plan: _Plan, pod: Pod, group: PodGroup, request: _Request) -> _Refusal | None:
        """Plan the members whose assignments are not announced; why that is impossible, if it is.

        A pod without open claims gets no assignment; it is refused while its gang lacks members for which it would wait.
        """
        nodes = tuple(request.nodes)
        holds = self._ledger.holds
        holds.release_pod(pod.uid)
        for uid in plan.assignments.keys() - plan.announced:
            holds.release_pod(uid)
            del plan.assignments[uid]
        snapshot = take_snapshot(group, self._ledger)
        for other, refusal in snapshot.missing:
            if other.uid == pod.uid:
                return _Refusal(refused_everywhere(nodes, refusal), short=False)
        if all(each.pod.uid != pod.uid for each in snapshot.candidates):
            if self._lacks_members(group, snapshot):
                return _Refusal(refused_everywhere(nodes, self._too_few(group, snapshot)), short=False)
            return None
        candidates = tuple(each for each in snapshot.candidates if each.pod.uid not in plan.announced)
        lacking = snapshot.needed - sum(each.pod.uid in plan.announced for each in snapshot.candidates)
        needed, short = max(lacking, 1), lacking > 0
        if len(candidates) < needed:
            return _Refusal(refused_everywhere(nodes, self._too_few(group, snapshot)), short)
        planned = self._planned(pod, group, request, candidates, needed)
        if planned.limited:
            return _refusal(nodes, _stopped(group), plan, short=False)
        if pod.uid not in planned.assignments:
            why = _does_not_fit(group, len(candidates), needed)
            if planned.unsettled or planned.revocable:
                refused = refused_everywhere(nodes, why)
                refused.unsettled, refused.behind = planned.unsettled, planned.behind
                refused.revocable = planned.revocable
                return _Refusal(refused, short=False)
            if planned.assignments:
                self._plans[group.metadata.key] = plan
                self._take(plan, pod, group, planned.assignments, candidates)
            failed = _refusal(nodes, why, plan, short=short and not planned.assignments)
            failed.attempt.behind = planned.behind
            return failed._replace(why=None) if planned.behind else failed
        self._take(plan, pod, group, planned.assignments, candidates)
        return None

    def _take(
        self,
        plan: _Plan,
        pod: Pod,
        group: PodGroup,
        assignments: Mapping[str, Assignment],
        candidates: Sequence[MemberCandidate],
    ) -> None:
        """Hold these assignments; members that were refused before are reconsidered."""
        plan.assignments |= assignments
        self._hold(group, assignments, candidates)
        for uid in assignments.keys() - {pod.uid}:
            self._assigned(uid)

    def _planned(
        self,
        pod: Pod,
        group: PodGroup,
        request: _Request,
        candidates: Sequence[MemberCandidate],
        needed: int,
        steps: int = MAX_STEPS,
    ) -> PlanResult:
        offered = self._offers.among(group, pod.uid, request.nodes)
        return self._planning(pod.uid, candidates, needed, offered, request.budget, (steps, group.metadata.uid))

    def _hold(
        self, group: PodGroup, assignments: Mapping[str, Assignment], candidates: Sequence[MemberCandidate]
    ) -> None:
        """Hold each claim on the nodes of the members that it is for."""
        now = self._clock.monotonic()
        expires = now + self._options.hold_seconds
        users: dict[str, list[str]] = {}
        for uid, assignment in assignments.items():
            for claim in assignment.placements:
                users.setdefault(claim, []).append(uid)
        for claim, pods in users.items():
            placement = with_fresh_shares(assignments[pods[0]].placements[claim], new_share_id)
            nodes = {assignments[uid].node for uid in pods}
            self._ledger.holds.place(
                Hold(
                    claim_uid=claim,
                    placements=dict.fromkeys(nodes, placement),
                    versions={name: self._ledger.state.of(name) for name in nodes},
                    expires=expires,
                    pods=set(pods),
                    namespace=group.metadata.namespace,
                    unit=group.metadata.uid,
                    since=now,
                    latest=expires + self._options.binding_timeout_seconds,
                )
            )
        for each in candidates:
            for held in each.claims.held if each.pod.uid in assignments else ():
                self._ledger.holds.add_pod(held.record.claim.metadata.uid, each.pod.uid, expires)

    def _lacks_members(self, group: PodGroup, snapshot: GangSnapshot) -> bool:
        """Whether too few members exist to open the gate, and none is bound whom others may follow."""
        return snapshot.needed > len(snapshot.candidates) and not self._permit.is_admitted(group)

    def _too_few(self, group: PodGroup, snapshot: GangSnapshot) -> Rejection:
        detail = f"{max(snapshot.needed, 1)} more members needed, {len(snapshot.candidates)} can be placed"
        if snapshot.missing:
            pod, refusal = snapshot.missing[0]
            detail += f"; pod {pod.name}: {refusal.text}"
        return Rejection(code=Code.GANG_INCOMPLETE, detail=f"PodGroup {group.metadata.name}: {detail}")


def _refusal(nodes: Sequence[str], why: Rejection, plan: _Plan, *, short: bool) -> _Refusal:
    """A gang that does not fit beside its announced assignments may fit without them."""
    refused = refused_everywhere(nodes, why)
    return _Refusal(refused, short, None if short and plan.announced else why)


def _does_not_fit(group: PodGroup, members: int, needed: int) -> Rejection:
    detail = f"PodGroup {group.metadata.name}: no placement for {needed} of {members} waiting members at once"
    return Rejection(code=Code.GANG, detail=detail)


def _stopped(group: PodGroup) -> Rejection:
    return Rejection(code=Code.SEARCH_LIMIT, detail=f"PodGroup {group.metadata.name}: no plan found in time")
