"""Diagnoses of gangs: the members that get devices at once, and the first member that gets none."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.gang.offers import GangOffers
from dra_extender.scheduling.gang.planner import GangPlanner
from dra_extender.scheduling.gang.plans import GangHolds
from dra_extender.scheduling.gang.search import Assignment
from dra_extender.scheduling.permit.gang_members import MemberCandidate, existing_members, take_snapshot, too_large
from dra_extender.scheduling.time_slices import CallBudget


class PlacedMember(NamedTuple):
    """A member that gets its devices on a node."""

    pod: Pod
    node: str


class GangDiagnosis(NamedTuple):
    """The members of a gang by state, each in the order of their names.

    `decided` run, or have all their claims allocated or held.  `placed` get devices at once, and the first of `waiting` gets none
    with them.  `unready` members cannot be placed now: their claims are not ready, or kube-scheduler finds no node for them.
    `needed`: so many of `placed` and `waiting` must get devices.
    `limit` says why nothing was planned, or that a plan was not searched to its end.
    """

    group: PodGroup
    needed: int
    decided: tuple[Pod, ...] = ()
    placed: tuple[PlacedMember, ...] = ()
    waiting: tuple[Pod, ...] = ()
    unready: tuple[tuple[Pod, Rejection], ...] = ()
    limit: str = ""

    @property
    def cannot_start(self) -> bool:
        """True if the `unready` members leave fewer than the gang needs, so that nothing is planned."""
        return bool(self.unready) and self.needed > len(self.placed) + len(self.waiting)


class GangDiagnoses:
    """Makes diagnoses of gangs: a plan of all members that the gang needs, else of as many of the first ones as fit."""

    def __init__(self, ledger: Ledger, offers: GangOffers, planner: GangPlanner, holds: GangHolds) -> None:
        self._ledger = ledger
        self._offers = offers
        self._planner = planner
        self._holds = holds

    @contextmanager
    def diagnose(
        self, group: PodGroup, nodes: Sequence[str], budget: CallBudget, *, partly: bool = True
    ) -> Iterator[GangDiagnosis]:
        """Diagnose a gang; members without an offer may go to these nodes.  Inside, what is `placed` is held.

        Without `partly` no member is placed if the gang does not fit.
        """
        snapshot = take_snapshot(group, self._ledger)
        candidates = snapshot.candidates
        undecided = {member.pod.uid for member in candidates} | {pod.uid for pod, _ in snapshot.missing}
        diagnosis = GangDiagnosis(
            group=group,
            needed=snapshot.needed,
            decided=tuple(pod for pod in existing_members(group, self._ledger) if pod.uid not in undecided),
            waiting=tuple(member.pod for member in candidates),
            unready=snapshot.missing,
        )
        refusal = too_large(group, self._ledger)
        if refusal is not None or not candidates or diagnosis.cannot_start:
            yield diagnosis._replace(limit="" if refusal is None else refusal.detail)
            return
        plan, limited = self._plan(group, candidates, max(snapshot.needed, 1), nodes, budget, partly=partly)
        self._holds.place(group, plan, candidates)
        try:
            pods = [member.pod for member in candidates]
            yield diagnosis._replace(
                placed=tuple(PlacedMember(pod, plan[pod.uid].node) for pod in pods if pod.uid in plan),
                waiting=tuple(pod for pod in pods if pod.uid not in plan),
                limit="a plan was not searched to its end" if limited else "",
            )
        finally:
            self._holds.release(plan)

    def _plan(
        self,
        group: PodGroup,
        candidates: Sequence[MemberCandidate],
        needed: int,
        nodes: Sequence[str],
        budget: CallBudget,
        *,
        partly: bool,
    ) -> tuple[dict[str, Assignment], bool]:
        """Return assignments for all that are needed, else for the most of the first members; whether a search was cut short."""
        limited = False
        offered = self._offers.among(group, "", nodes)

        def planned(count: int, least: int) -> dict[str, Assignment]:
            nonlocal limited
            chosen = candidates[:count]
            result = self._planner.plan_members(chosen[0].pod.uid, chosen, least, offered, budget)
            limited |= result.limited
            return dict(result.assignments)

        whole = planned(len(candidates), min(needed, len(candidates)))
        if whole or not partly:
            return whole, limited
        best: dict[str, Assignment] = {}
        fitting, failing = 0, len(candidates)
        while failing - fitting > 1:
            middle = (fitting + failing) // 2
            found = planned(middle, middle)
            if len(found) == middle:
                best, fitting = found, middle
            else:
                failing = middle
        return best, limited
