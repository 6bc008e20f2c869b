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
from dra_extender.scheduling.permit.members import GangSnapshot, MemberCandidate, call_the_roll, candidate_of, too_large
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.search_time.deadline import CallBudget

_ELSEWHERE = Rejection(code=Code.GANG_ELSEWHERE)

_SHARE = 4

GroupKey = tuple[str, str]


@dataclass(slots=True)
class _Plan:
    """The seats of one gang by pod UID, who has been told its seat, and for whom another one is looked for after that."""

    group_uid: str
    seats: dict[str, Assignment] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)


class _Asked(NamedTuple):
    """The nodes offered to a member, and what finding a seat for it may spend."""

    nodes: Collection[str]
    budget: CallBudget


class _Refusal(NamedTuple):
    """Why a member is not seated, and whether too few others are, so that the gang cannot come together now.

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
        gate: Permit,
        failures: GangFailures,
        clock: Clock,
        options: Options,
        fairness: HoldFairness,
        seated: Callable[[str], None],
    ) -> None:
        """`seated` is told the UIDs of members for which there is a seat now, while another one was asked about."""
        self._ledger = ledger
        self._planning = planning
        self._gate = gate
        self._clock = clock
        self._options = options
        self.fairness = fairness
        self._seated = seated
        self._offers = GangOffers(ledger)
        self._failures = failures
        self._plans: dict[GroupKey, _Plan] = {}

    def attempt(self, pod: Pod, group: PodGroup, nodes: Sequence[str], budget: CallBudget) -> FilterResult | None:
        """The one node that is planned for this member, held for it, or why the gang does not fit; None if it needs no plan.

        A member whose planned node is not among the `nodes` offered for it gets another one beside the others, or causes a new plan
        for it and for the members that have not been told yet.  A member that has been told before and whose seat is no good any
        more begins a new attempt of the gang: others keep what they were told only if the gang fits with that.  What was offered
        to whom is remembered for later plans.

        Raises:
            Paused: the slice of the budget is over; asked again, it goes on.
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
        if plan is None or pod.uid not in plan.seats:
            known = self._failures.known(group, pod.uid, self._offers.revision(group))
            if known is not None:
                return refused_everywhere(nodes, known)
        if plan is None:
            self.fairness.shares.check_plan(group.metadata.uid, *key)
            self._forget_settled()
            plan = _Plan(group.metadata.uid)
        complete = not self._give_up_seats_of_gone(plan)
        if not complete or not self._has_good_seat(plan, pod, nodes):
            refusal = self._seat(plan, pod, group, _Asked(nodes, budget), beside=complete)
            if refusal is not None:
                if refusal.short:
                    self._drop(key)
                    self._gate.break_up(group)
                self._remember(refusal, pod, group)
                return refusal.attempt
        seat = plan.seats.get(pod.uid)
        return None if seat is None else self._told(plan, pod, group, seat, nodes)

    def _told(self, plan: _Plan, pod: Pod, group: PodGroup, seat: Assignment, nodes: Sequence[str]) -> FilterResult:
        """The answer that names the seat, which is held from now on."""
        if not plan.told:
            self.fairness.shares.offered(group.metadata.uid)
        if pod.uid not in plan.told:
            self.fairness.stale.progressed(group.metadata.uid)
        self._plans[group.metadata.key] = plan
        plan.told.add(pod.uid)
        expires = self._clock.monotonic() + self._options.hold_seconds
        for uid in seat.placements:
            self._ledger.holds.join(uid, pod.uid, expires)
        attempt = refused_everywhere([name for name in nodes if name != seat.node], _ELSEWHERE)
        attempt.seat, attempt.fits = seat.node, {seat.node: None}
        return attempt

    def _remember(self, refusal: _Refusal, pod: Pod, group: PodGroup) -> None:
        """Answer the next members at once as long as nothing changes."""
        if refusal.why is not None:
            limited = refusal.why.code is Code.SEARCH_LIMIT
            everybody = limited or refusal.short
            offers = self._offers.revision(group)
            self._failures.note(group, pod.uid, offers, refusal.why, everybody=everybody, limited=limited)

    def may_fit(self, pod: Pod, group: PodGroup, nodes: Collection[str], budget: CallBudget) -> bool:
        """Whether a call for this refused member might end with a seat now; nothing is held for it.

        What cannot be found out without giving up a plan may be so.  Raises Paused when the slice of the budget is over.
        """
        plan = self._plans.get(group.metadata.key)
        if plan is not None and any(self._ledger.holds.of_pod(uid) for uid in plan.seats):
            return True
        if self._failures.known(group, pod.uid, self._offers.revision(group)) is not None:
            return False
        if too_large(group, self._ledger) is not None:
            return False
        roll = call_the_roll(group, self._ledger)
        if any(other.uid == pod.uid for other, _ in roll.missing):
            return False
        if all(each.pod.uid != pod.uid for each in roll.candidates):
            return not self._lacks_members(group, roll)
        if len(roll.candidates) < roll.needed:
            return False
        offered = self._offers.last(group, pod.uid) or nodes
        needed = max(roll.needed, 1)
        planned = self._planned(pod, group, _Asked(offered, budget), roll.candidates, needed)
        return planned.unsettled or bool(planned.revocable) or pod.uid in planned.seats

    def _forget_settled(self) -> None:
        """Drop plans of which nothing is held any more."""
        for key, plan in list(self._plans.items()):
            if not any(self._ledger.holds.of_pod(uid) for uid in plan.seats):
                del self._plans[key]

    def _drop(self, key: GroupKey) -> None:
        plan = self._plans.pop(key, None)
        for uid in plan.seats if plan is not None else ():
            self._ledger.holds.leave(uid)

    def revoke(self, group_uid: str) -> None:
        """Give up the whole plan of this gang."""
        for key, plan in list(self._plans.items()):
            if plan.group_uid == group_uid:
                self._drop(key)

    def _has_good_seat(self, plan: _Plan, pod: Pod, nodes: Sequence[str]) -> bool:
        """Whether there is a seat that can be told (again).  Once told, nothing about it may have changed since."""
        seat = plan.seats.get(pod.uid)
        return seat is not None and seat.node in nodes and self._is_held(pod.uid, seat, as_decided=pod.uid in plan.told)

    def _give_up_seats_of_gone(self, plan: _Plan) -> bool:
        """Whether a member with a seat is gone, so that the others may be too few now."""
        gone = [uid for uid in plan.seats if self._ledger.pods.gone(uid)]
        for uid in gone:
            plan.told.discard(uid)
            del plan.seats[uid]
        return bool(gone)

    def _is_held(self, pod_uid: str, seat: Assignment, *, as_decided: bool = False) -> bool:
        holds, state = self._ledger.holds, self._ledger.state.of(seat.node)
        return all(
            (hold := holds.get(uid)) is not None
            and pod_uid in hold.pods
            and seat.node in hold.placements
            and (not as_decided or hold.versions.get(seat.node) == state)
            for uid in seat.placements
        )

    def _seat(self, plan: _Plan, pod: Pod, group: PodGroup, asked: _Asked, *, beside: bool) -> _Refusal | None:
        """Find a seat for the pod, if possible `beside` the others; why there is none, if so.  It may need none."""
        again = pod.uid in plan.told or pod.uid in plan.again
        if again:
            # For as long as it is not answered: pauses come in between.
            plan.again.add(pod.uid)
            self._keep_what_is_good(plan, pod.uid)
        elif beside and self._seat_beside_the_others(plan, pod, group, asked):
            return None
        refusal = self._seat_the_rest(plan, pod, group, asked)
        if refusal is not None and refusal.short and again and plan.told:
            for uid in plan.seats:
                self._ledger.holds.leave(uid)
            plan.seats.clear()
            plan.told.clear()
            refusal = self._seat_the_rest(plan, pod, group, asked)
        plan.again.discard(pod.uid)
        return refusal

    def _keep_what_is_good(self, plan: _Plan, pod_uid: str) -> None:
        """Give up the seat of this member and those told seats about which something has changed."""
        for uid in list(plan.told):
            if uid == pod_uid or not self._is_held(uid, plan.seats[uid], as_decided=True):
                plan.told.discard(uid)
                del plan.seats[uid]
                self._ledger.holds.leave(uid)

    def _seat_beside_the_others(self, plan: _Plan, pod: Pod, group: PodGroup, asked: _Asked) -> bool:
        """Whether the pod got a seat while all others keep theirs: that takes much less than a new plan."""
        others = plan.seats.keys() - {pod.uid}
        if not others or not all(self._is_held(uid, plan.seats[uid]) for uid in others - plan.told):
            return False
        plan.seats.pop(pod.uid, None)
        self._ledger.holds.leave(pod.uid)
        candidate = candidate_of(pod, self._ledger)
        if candidate is None or isinstance(candidate, Rejection):
            return False
        planned = self._planned(pod, group, asked, (candidate,), 1, MAX_STEPS // _SHARE)
        if pod.uid not in planned.seats:
            return False
        self._take(plan, pod, group, planned.seats, (candidate,))
        return True

    def _seat_the_rest(self, plan: _Plan, pod: Pod, group: PodGroup, asked: _Asked) -> _Refusal | None:
        """Plan the members that have not been told; why that is impossible, if it is.

        A pod without open claims gets no seat, and is refused while its gang lacks members that it would wait for at the gate.
        """
        nodes = tuple(asked.nodes)
        holds = self._ledger.holds
        holds.leave(pod.uid)
        for uid in plan.seats.keys() - plan.told:
            holds.leave(uid)
            del plan.seats[uid]
        roll = call_the_roll(group, self._ledger)
        for other, refusal in roll.missing:
            if other.uid == pod.uid:
                return _Refusal(refused_everywhere(nodes, refusal), short=False)
        if all(each.pod.uid != pod.uid for each in roll.candidates):
            if self._lacks_members(group, roll):
                return _Refusal(refused_everywhere(nodes, self._too_few(group, roll)), short=False)
            return None
        candidates = tuple(each for each in roll.candidates if each.pod.uid not in plan.told)
        lacking = roll.needed - sum(each.pod.uid in plan.told for each in roll.candidates)
        needed, short = max(lacking, 1), lacking > 0
        if len(candidates) < needed:
            return _Refusal(refused_everywhere(nodes, self._too_few(group, roll)), short)
        planned = self._planned(pod, group, asked, candidates, needed)
        if planned.limited:
            return _refusal(nodes, _stopped(group), plan, short=False)
        if pod.uid not in planned.seats:
            why = _does_not_fit(group, len(candidates), needed)
            if planned.unsettled or planned.revocable:
                refused = refused_everywhere(nodes, why)
                refused.unsettled, refused.behind = planned.unsettled, planned.behind
                refused.revocable = planned.revocable
                return _Refusal(refused, short=False)
            if planned.seats:
                self._plans[group.metadata.key] = plan
                self._take(plan, pod, group, planned.seats, candidates)
            failed = _refusal(nodes, why, plan, short=short and not planned.seats)
            failed.attempt.behind = planned.behind
            return failed._replace(why=None) if planned.behind else failed
        self._take(plan, pod, group, planned.seats, candidates)
        return None

    def _take(
        self,
        plan: _Plan,
        pod: Pod,
        group: PodGroup,
        seats: Mapping[str, Assignment],
        candidates: Sequence[MemberCandidate],
    ) -> None:
        """Hold these seats; whoever was refused before is told that there is one now."""
        plan.seats |= seats
        self._hold(group, seats, candidates)
        for uid in seats.keys() - {pod.uid}:
            self._seated(uid)

    def _planned(
        self,
        pod: Pod,
        group: PodGroup,
        asked: _Asked,
        candidates: Sequence[MemberCandidate],
        needed: int,
        steps: int = MAX_STEPS,
    ) -> PlanResult:
        offered = self._offers.among(group, pod.uid, asked.nodes)
        return self._planning(pod.uid, candidates, needed, offered, asked.budget, (steps, group.metadata.uid))

    def _hold(self, group: PodGroup, seats: Mapping[str, Assignment], candidates: Sequence[MemberCandidate]) -> None:
        """Hold each claim on the nodes of the members that it is for."""
        now = self._clock.monotonic()
        expires = now + self._options.hold_seconds
        users: dict[str, list[str]] = {}
        for uid, seat in seats.items():
            for claim in seat.placements:
                users.setdefault(claim, []).append(uid)
        for claim, pods in users.items():
            placement = with_fresh_shares(seats[pods[0]].placements[claim], new_share_id)
            nodes = {seats[uid].node for uid in pods}
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
            for held in each.claims.held if each.pod.uid in seats else ():
                self._ledger.holds.join(held.record.claim.metadata.uid, each.pod.uid, expires)

    def _lacks_members(self, group: PodGroup, roll: GangSnapshot) -> bool:
        """Whether too few members exist to open the gate, and none is bound whom others may follow."""
        return roll.needed > len(roll.candidates) and not self._gate.is_admitted(group)

    def _too_few(self, group: PodGroup, roll: GangSnapshot) -> Rejection:
        detail = f"{max(roll.needed, 1)} more members needed, {len(roll.candidates)} can be placed"
        if roll.missing:
            pod, refusal = roll.missing[0]
            detail += f"; pod {pod.name}: {refusal.text}"
        return Rejection(code=Code.GANG_INCOMPLETE, detail=f"PodGroup {group.metadata.name}: {detail}")


def _refusal(nodes: Sequence[str], why: Rejection, plan: _Plan, *, short: bool) -> _Refusal:
    """A gang that does not fit beside what some of its members were told might do so anew."""
    refused = refused_everywhere(nodes, why)
    return _Refusal(refused, short, None if short and plan.told else why)


def _does_not_fit(group: PodGroup, members: int, needed: int) -> Rejection:
    detail = f"PodGroup {group.metadata.name}: no placement for {needed} of {members} waiting members at once"
    return Rejection(code=Code.GANG, detail=detail)


def _stopped(group: PodGroup) -> Rejection:
    return Rejection(code=Code.SEARCH_LIMIT, detail=f"PodGroup {group.metadata.name}: no plan found in time")
