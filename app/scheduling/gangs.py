"""Gangs: all members get their devices at once, or none does.

kube-scheduler asks about one member after the other and never tells where it has put the ones before, so the whole group is planned
at the first member's call, and each member is answered with the one node that is planned for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.allocator import NoFit
from app.allocator.state import Usage
from app.ledger.holds import Hold
from app.ledger.ledger import Ledger
from app.ledger.usage import Overlaid, UsageTable
from app.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from app.model.base import ModelError
from app.model.node import Node
from app.model.pod import Pod
from app.model.pod_group import PodGroup
from app.model.rejection import Code, Rejection
from app.scheduling.attempt import Attempt, refused_everywhere
from app.scheduling.claim_lookup import FoundClaim
from app.scheduling.cool_downs import CoolDowns, SetAside
from app.scheduling.deadline import time_is_up
from app.scheduling.extended_resources import Special
from app.scheduling.fresh_shares import new_share_id, with_fresh_shares
from app.scheduling.gang_gate import GangGate
from app.scheduling.gang_members import Candidate, Roll, call_the_roll, members_of
from app.scheduling.gang_plan import Ask, GangPlan, Member, PlanLimitError, Seat
from app.scheduling.options import Options
from app.scheduling.ports import Clock
from app.scheduling.searching import Searching

_NOTHING = ClaimPlacement(allocation=AllocationResult(), holdings=())
_ELSEWHERE = Rejection(code=Code.GANG_ELSEWHERE)

GroupKey = tuple[str, str]


@dataclass(slots=True)
class _Plan:
    """The seats of one gang by pod UID, which nodes were offered to whom, and who has been told its seat."""

    group_uid: str
    seats: dict[str, Seat]
    offered: dict[str, frozenset[str]]
    told: set[str] = field(default_factory=set)


class _Refusal(NamedTuple):
    """Why a member is not seated, and whether too few others are, so that the gang cannot come together now."""

    attempt: Attempt
    short: bool


class Gangs:
    """The plans of all gangs that are being scheduled.  A plan is nothing but holds, and may be dropped at any time."""

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        gate: GangGate,
        cool_downs: CoolDowns,
        clock: Clock,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._searching = searching
        self._gate = gate
        self._cool_downs = cool_downs
        self._clock = clock
        self._options = options
        self._plans: dict[GroupKey, _Plan] = {}

    def attempt(self, pod: Pod, group: PodGroup, nodes: Sequence[str]) -> Attempt | None:
        """The one node that is planned for this member, held for it, or why the gang does not fit; None if it needs no plan.

        A member that has been told before begins a new attempt of the whole gang.  A member whose planned node is not among the
        `nodes` offered for it causes a new plan for it and for the members that have not been told yet.
        """
        key, plan = group.metadata.key, self._plans.get(group.metadata.key)
        if plan is not None and (plan.group_uid != group.metadata.uid or pod.uid in plan.told):
            self._drop(key)
            plan = None
        if plan is None:
            self._forget_settled()
            plan = _Plan(group.metadata.uid, {}, {})
        plan.offered[pod.uid] = frozenset(nodes)
        seat = plan.seats.get(pod.uid)
        if seat is None or seat.node not in plan.offered[pod.uid] or not self._is_held(pod, seat):
            refusal = self._seat_the_rest(plan, pod, group, nodes)
            if refusal is not None:
                if refusal.short:
                    self._drop(key)
                    self._gate.break_up(group)
                return refusal.attempt
            seat = plan.seats.get(pod.uid)
            if seat is None:
                return None
        self._plans[key] = plan
        plan.told.add(pod.uid)
        attempt = Attempt(seat=seat.node, fits={seat.node: None})
        for name in nodes:
            if name != seat.node:
                attempt.refuse(name, _ELSEWHERE)
        return attempt

    def _forget_settled(self) -> None:
        """Drop plans of which nothing is held any more."""
        for key, plan in list(self._plans.items()):
            if not any(self._ledger.holds.of_pod(uid) for uid in plan.seats):
                del self._plans[key]

    def _drop(self, key: GroupKey) -> None:
        plan = self._plans.pop(key, None)
        for uid in plan.seats if plan is not None else ():
            self._ledger.holds.leave(uid)

    def _is_held(self, pod: Pod, seat: Seat) -> bool:
        holds = self._ledger.holds
        return all(
            (hold := holds.get(uid)) is not None and pod.uid in hold.pods and seat.node in hold.placements
            for uid in seat.placements
        )

    def _seat_the_rest(self, plan: _Plan, pod: Pod, group: PodGroup, nodes: Sequence[str]) -> _Refusal | None:
        """Plan the members that have not been told; why that is impossible, if it is.  A pod without open claims gets none."""
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
            return None
        candidates = tuple(each for each in roll.candidates if each.pod.uid not in plan.told)
        lacking = roll.needed - sum(each.pod.uid in plan.told for each in roll.candidates)
        needed, short = max(lacking, 1), lacking > 0
        if len(candidates) < needed:
            return _Refusal(refused_everywhere(nodes, self._too_few(group, roll)), short)
        try:
            cooling = frozenset(device for each in candidates for device in self._cool_downs.of(each.pod.uid))
            usage = self._ledger.usage()
            found = self._planned(candidates, plan, nodes, needed, SetAside(usage, cooling) if cooling else usage)
        except PlanLimitError:
            return _Refusal(refused_everywhere(nodes, _stopped(group)), short=False)
        if found is None or pod.uid not in found:
            refused = refused_everywhere(nodes, _does_not_fit(group, len(candidates), needed))
            refused.unsettled = self._only_for_now(candidates, plan, nodes, needed, pod)
            return _Refusal(refused, short and found is None and not refused.unsettled)
        plan.seats |= found
        self._hold(found, candidates)
        return None

    def _planned(
        self, candidates: Sequence[Candidate], plan: _Plan, nodes: Sequence[str], needed: int, usage: Usage
    ) -> Mapping[str, Seat] | None:
        by_uid = {each.pod.uid: each for each in candidates}
        out_of_time = time_is_up(self._clock, self._options.filter_budget_seconds)
        known = [name for name in nodes if name in self._ledger.nodes]

        def allowed(member: Member, name: str) -> bool:
            offered = plan.offered.get(member.uid)
            if offered is not None and name not in offered:
                return False
            return by_uid[member.uid].refusal(self._ledger.nodes[name], self._ledger) is None

        ask = self._asking(candidates, usage, out_of_time)
        search = GangPlan(members_of(candidates), known, ask, allowed, self._usable, self._is_wide, out_of_time)
        return search.seats(needed)

    def _asking(self, candidates: Sequence[Candidate], usage: Usage, out_of_time: Callable[[], bool]) -> Ask:
        claims = {each.record.claim.metadata.uid: each for one in candidates for each in one.claims.open}
        special = {each.special: each for each in candidates if each.special}

        def claim_on(uid: str, node: Node) -> FoundClaim | None:
            """The claim with this UID; None for one that is not needed on the node."""
            if uid not in special:
                return claims[uid]
            found = special[uid].special_on(node)
            return found.found if isinstance(found, Special) else None

        def ask(
            uids: Sequence[str], name: str, elsewhere: Sequence[DeviceHolding]
        ) -> Mapping[str, ClaimPlacement] | None:
            node = self._ledger.nodes[name]
            wanted = {uid: claim for uid in uids if (claim := claim_on(uid, node)) is not None}
            placements = dict.fromkeys(uids, _NOTHING)
            if not wanted:
                return placements
            demand = self._searching.demand(tuple(wanted.values()))
            if isinstance(demand, Rejection):
                return None
            extra = UsageTable()
            extra.add(elsewhere)
            answer = self._searching.on_node(demand, node, Overlaid(usage, extra) if elsewhere else usage, out_of_time)
            if isinstance(answer, NoFit):
                return None
            return placements | dict(zip(wanted, answer.claims, strict=True))

        return ask

    def _only_for_now(
        self, candidates: Sequence[Candidate], plan: _Plan, nodes: Sequence[str], needed: int, pod: Pod
    ) -> bool:
        """Whether only holds that are about to settle stand in the way."""
        if not self._ledger.holds.unsettled:
            return False
        try:
            found = self._planned(candidates, plan, nodes, needed, self._ledger.usage_without_unsettled())
        except PlanLimitError:
            return False
        return found is not None and pod.uid in found

    def _usable(self, placement: ClaimPlacement, name: str) -> bool:
        node = self._ledger.nodes[name]
        try:
            return placement.allocation.usable_on(node.name, node.labels)
        except ModelError:
            return False

    def _is_wide(self, holding: DeviceHolding) -> bool:
        nodes = self._ledger.slices.nodes_of(holding.pool_id)
        return nodes is None or len(nodes) > 1

    def _hold(self, seats: Mapping[str, Seat], candidates: Sequence[Candidate]) -> None:
        """Hold each claim on the nodes of the members that it is for."""
        expires = self._clock.monotonic() + self._options.hold_seconds
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
                )
            )
        for each in candidates:
            for held in each.claims.held if each.pod.uid in seats else ():
                self._ledger.holds.join(held.record.claim.metadata.uid, each.pod.uid, expires)

    def _too_few(self, group: PodGroup, roll: Roll) -> Rejection:
        detail = f"{max(roll.needed, 1)} more members needed, {len(roll.candidates)} can be placed"
        if roll.missing:
            pod, refusal = roll.missing[0]
            detail += f"; pod {pod.name}: {refusal.text}"
        return Rejection(code=Code.GANG_INCOMPLETE, detail=f"PodGroup {group.metadata.name}: {detail}")


def _does_not_fit(group: PodGroup, members: int, needed: int) -> Rejection:
    detail = f"PodGroup {group.metadata.name}: no placement for {needed} of {members} waiting members at once"
    return Rejection(code=Code.GANG, detail=detail)


def _stopped(group: PodGroup) -> Rejection:
    return Rejection(code=Code.SEARCH_LIMIT, detail=f"PodGroup {group.metadata.name}: no plan found in time")
