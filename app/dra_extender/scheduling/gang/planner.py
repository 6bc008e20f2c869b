"""Plans the members of a gang: asks `GangSearch`, keeps paused searches, and asks again without holds that may end."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection, SearchPaused
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.filter_result import WithoutHolds
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.gang.members import members_of
from dra_extender.scheduling.gang.placements import Pausable, PlacementOracle, PlanRequest, PlanUnfinishedError
from dra_extender.scheduling.gang.search import Assignment, GangSearch
from dra_extender.scheduling.holds.stale_holds import StaleHolds

_MOST_CAPACITIES: Final = 10_000
_MOST_PAUSED: Final = 4
_NOT_EVEN_ALONE: Final = Rejection(code=Code.COMBINATION, detail="on no node, even for this pod alone")


class PlanResult(NamedTuple):
    """Assignments by pod UID, none if the gang does not fit, or if it is not known whether it does (`limited`).

    `unplaceable`: members (UIDs) that get no devices even alone, one of each kind.
    """

    assignments: Mapping[str, Assignment] = {}
    unplaceable: frozenset[str] = frozenset()
    limited: bool = False


class _PlanFacts(NamedTuple):
    """The versions of what a plan reads.  `state` and `held` may change in a pause, except for the nodes of its assignments.

    `backed_off`: the devices in backoff for some member.
    """

    state: int
    held: int
    nodes: int
    classes: int
    claims: tuple[tuple[str, str], ...]
    offered: tuple[str, ...]
    backed_off: frozenset[DeviceId]


class _OngoingPlan(NamedTuple):
    """A search that may be paused, and the facts at its start."""

    request: PlanRequest
    facts: _PlanFacts
    oracle: PlacementOracle
    search: GangSearch
    running: Pausable[Mapping[str, Assignment] | None]

    def can_continue(self, request: PlanRequest, facts: _PlanFacts) -> bool:
        """Return whether claims, nodes and classes are the same as at the start, and so are the nodes of each member."""
        uids = [member.pod.uid for member in request.candidates]
        return facts[2:] == self.facts[2:] and all(
            request.offered.to(uid) == self.request.offered.to(uid) for uid in uids
        )


@dataclass(eq=False)
class GangPlanner:
    """Plans the members of a gang; paused searches and the capacities of equivalent nodes outlive a call."""

    ledger: Ledger
    allocator: NodeAllocator
    equivalence: NodeEquivalence
    device_backoff: DeviceBackoff
    stale: StaleHolds

    def __post_init__(self) -> None:
        self._capacities: dict[Hashable, int] = {}
        self._paused: LruCache[Hashable, _OngoingPlan] = LruCache(_MOST_PAUSED)

    def plan_members(self, request: PlanRequest, budget: CallBudget) -> PlanResult:
        """Assign all candidates, or at least those needed.

        A paused search continues for an equal request.  Its result is valid if nothing changed on the nodes of its assignments.

        Raises:
            PlanUnfinishedError: claims must be read first, or the budget is closed.
        """
        if budget.closed:
            raise PlanUnfinishedError
        ledger, key, facts = self.ledger, request.key, self._facts(request)
        known: tuple[_PlanFacts, PlanResult] | None = budget.answers.get(key)
        if known is not None and known[0] == facts:
            return known[1]
        self._require_specs(request, budget)
        ongoing = self._paused.pop(key, None)
        if ongoing is None or not ongoing.can_continue(request, facts):
            ongoing = self._begin(request, facts, budget)
        ongoing.oracle.budget = budget
        try:
            next(ongoing.running)
        except StopIteration as end:
            assignments: Mapping[str, Assignment] = end.value or {}
        else:
            self._paused[key] = ongoing
            raise SearchPaused
        if facts != ongoing.facts:
            nodes = {assignment.node for assignment in assignments.values()}
            by_state = ledger.state_versions.since(ongoing.facts.state)[0]
            by_held = ledger.hold_versions.since(ongoing.facts.held)[0]
            if not nodes or by_state is None or by_held is None or not nodes.isdisjoint((*by_state, *by_held)):
                # Something changed during a pause: the next slice begins a new search.
                raise SearchPaused
        unplaceable = frozenset(member.uid for member in ongoing.search.unplaceable)
        result = PlanResult(assignments, unplaceable, ongoing.search.limited)
        budget.answers[key] = facts, result
        return result

    def without_holds(self, request: PlanRequest, unit: str, budget: CallBudget) -> WithoutHolds:
        """Find out whether the member of the call, which gets no assignment, would get one without holds that may end.

        `unit`: the UID of the PodGroup, whose own holds do not block it.
        """
        endable = self.stale.endable_holds(ignored_unit=unit)

        def planned(ignored_holds: frozenset[str], freed: tuple[DeviceHolding, ...] = ()) -> Mapping[str, Assignment]:
            result = self.plan_members(request._replace(ignored_holds=ignored_holds, freed=freed), budget)
            return result.assignments if request.pod_uid in result.assignments else {}

        loose = {} if endable.is_empty else planned(endable.loose, endable.freed)
        if not loose:
            return WithoutHolds()
        stale = planned(endable.stale, endable.freed) if endable.has_stale else {}
        multi_node = planned(endable.multi_node) if endable.multi_node else {}
        return WithoutHolds(_placements(loose), _placements(stale), multi_node=bool(multi_node))

    def why_unplaceable(
        self, request: PlanRequest, result: PlanResult, budget: CallBudget
    ) -> Sequence[tuple[Pod, Rejection]]:
        """Return the members that get no devices even alone, one of each kind, and why."""
        reasons = []
        for member in request.candidates:
            if member.pod.uid in result.unplaceable:
                demand = self.allocator.demand(member.open, budget) if member.open else None
                if isinstance(demand, UnreadSpecs):
                    raise PlanUnfinishedError(demand)
                reasons.append((member.pod, demand if isinstance(demand, Rejection) else _NOT_EVEN_ALONE))
        return reasons

    def _require_specs(self, request: PlanRequest, budget: CallBudget) -> None:
        """Raise PlanUnfinishedError with all specs that the ledger does not keep; they are read before the search begins."""
        unread: dict[bytes, ClaimRecord] = {}
        for member in request.candidates:
            for record in self.allocator.unread_specs(member.open).records:
                if record.claim.metadata.uid not in budget.read_again:
                    unread.setdefault(record.spec_digest, record)
        if unread:
            raise PlanUnfinishedError(UnreadSpecs(tuple(unread.values())))

    def _begin(self, request: PlanRequest, facts: _PlanFacts, budget: CallBudget) -> _OngoingPlan:
        members = members_of(request.candidates, request.offered.to, self.ledger.member_fit.digest)
        if len(self._capacities) > _MOST_CAPACITIES:
            self._capacities.clear()
        oracle = PlacementOracle(
            self.ledger, self.allocator, self.equivalence, self._capacities, request, facts.backed_off, budget
        )
        search = GangSearch(members, request.offered.nodes, oracle, request.steps)
        return _OngoingPlan(request, facts, oracle, search, search.solve(request.needed))

    def _facts(self, request: PlanRequest) -> _PlanFacts:
        ledger, members = self.ledger, request.candidates
        claims = (claim for member in members for claim in (*member.open, *member.held))
        return _PlanFacts(
            state=ledger.state_versions.place,
            held=ledger.hold_versions.place,
            nodes=ledger.node_versions.place,
            classes=ledger.changes.classes,
            claims=tuple((claim.uid, claim.record.claim.metadata.resource_version) for claim in claims),
            offered=tuple(request.offered.nodes),
            backed_off=frozenset(
                device for member in members for device in self.device_backoff.devices_of(member.pod.uid)
            ),
        )


def _placements(assignments: Mapping[str, Assignment]) -> tuple[ClaimPlacement, ...]:
    return tuple(placement for assignment in assignments.values() for placement in assignment.placements.values())
