"""Plans the members of a gang: asks `GangSearch`, keeps paused searches, and asks again without holds that may end."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection, SearchPaused
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.result import WithoutHolds
from dra_extender.scheduling.gang.members import MemberCandidate, members_of
from dra_extender.scheduling.gang.offers import OfferedNodes
from dra_extender.scheduling.gang.placements import Pausable, PlacementOracle, PlanUnfinishedError
from dra_extender.scheduling.gang.search import MAX_STEPS, Assignment, GangSearch
from dra_extender.scheduling.holds.stale_holds import StaleHolds

_MOST_CAPACITIES: Final = 10_000
_MOST_PAUSED: Final = 4
_NOT_EVEN_ALONE: Final = Rejection(code=Code.COMBINATION, detail="on no node, even for this pod alone")


class PlanResult(NamedTuple):
    """Assignments by pod UID, none if the gang does not fit.

    `unplaceable`: members that get no devices even alone, one of each kind, and why.
    `limited`: it is not known whether the gang fits.
    """

    assignments: Mapping[str, Assignment] = {}
    unplaceable: Sequence[tuple[Pod, Rejection]] = ()
    limited: bool = False
    without_holds: WithoutHolds = WithoutHolds()


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


class _Question(NamedTuple):
    """A plan that is asked for, `without` the holds of these claims; `pod_uid`: the member of the call."""

    pod_uid: str
    candidates: Sequence[MemberCandidate]
    needed: int
    offered: OfferedNodes
    steps: int
    without: frozenset[str]

    @property
    def key(self) -> Hashable:
        """Equal for equal questions of one or several calls."""
        pods = tuple(member.pod.uid for member in self.candidates)
        return self.pod_uid, pods, self.needed, self.steps, self.without


class _Answer(NamedTuple):
    """`assignments` is None if the search ended at a limit."""

    facts: _PlanFacts
    assignments: Mapping[str, Assignment] | None
    unplaceable: frozenset[str] = frozenset()


class _OngoingPlan(NamedTuple):
    """A search that may be paused, and the facts at its start."""

    question: _Question
    facts: _PlanFacts
    oracle: PlacementOracle
    search: GangSearch
    running: Pausable[Mapping[str, Assignment] | None]

    def can_continue(self, question: _Question, facts: _PlanFacts) -> bool:
        """Return whether claims, nodes and classes are the same as at the start, and so are the nodes of each member."""
        uids = [member.pod.uid for member in question.candidates]
        return facts[2:] == self.facts[2:] and all(
            question.offered.to(uid) == self.question.offered.to(uid) for uid in uids
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

    def plan_members(
        self,
        pod_uid: str,
        candidates: Sequence[MemberCandidate],
        needed: int,
        offered: OfferedNodes,
        budget: CallBudget,
        *,
        steps: int = MAX_STEPS,
        unit: str = "",
    ) -> PlanResult:
        """Assign all candidates, or at least `needed` of them, perhaps without the member of the call (`pod_uid`).

        `unit`: the UID of the PodGroup, whose own holds do not block it.

        Raises:
            PlanUnfinishedError: claims must be read first, or the budget is closed.
        """
        if budget.closed:
            raise PlanUnfinishedError
        ledger = self.ledger
        question = _Question(pod_uid, candidates, needed, offered, steps, frozenset())

        def planned(without: frozenset[str], freed: Sequence[DeviceHolding] = ()) -> Mapping[str, Assignment] | None:
            return self._answer(
                question._replace(without=without), lambda: ledger.usage_without(without, freed), budget
            ).assignments

        answer = self._answer(question, ledger.usage, budget)
        assignments = answer.assignments
        if assignments is None:
            return PlanResult(limited=True)
        endable = self.stale.endable_holds(ignored_unit=unit)
        without_loose: Mapping[str, Assignment] | None = {}
        if pod_uid not in assignments and not endable.is_empty:
            without_loose = planned(endable.loose, endable.freed)
        if without_loose is None:
            return PlanResult(assignments)
        if pod_uid not in without_loose:
            return PlanResult(assignments, unplaceable=self._unplaceable(question, answer, budget))
        without_stale = planned(endable.stale, endable.freed) if endable.has_stale else {}
        without_multi_node = planned(endable.multi_node) if endable.multi_node and without_stale is not None else {}
        if without_stale is None or without_multi_node is None:
            return PlanResult(assignments)
        return PlanResult(
            assignments,
            without_holds=WithoutHolds(
                loose=_placements(without_loose),
                stale=_placements(without_stale if pod_uid in without_stale else {}),
                multi_node=pod_uid in without_multi_node,
            ),
        )

    def _unplaceable(self, question: _Question, answer: _Answer, budget: CallBudget) -> Sequence[tuple[Pod, Rejection]]:
        reasons = []
        for member in question.candidates:
            if member.pod.uid in answer.unplaceable:
                demand = self.allocator.demand(member.claims.open, budget) if member.claims.open else None
                if isinstance(demand, UnreadSpecs):
                    raise PlanUnfinishedError(demand)
                reasons.append((member.pod, demand if isinstance(demand, Rejection) else _NOT_EVEN_ALONE))
        return reasons

    def _answer(self, question: _Question, usage: Callable[[], Usage], budget: CallBudget) -> _Answer:
        """Return the answer to a question: its assignments are empty if the gang does not fit, None if the search ended at a limit.

        A paused search continues for an equal question.  Its result is valid if nothing changed on the nodes of its assignments.
        """
        ledger, key, facts = self.ledger, question.key, self._facts(question)
        answer: _Answer | None = budget.answers.get(key)
        if answer is None or answer.facts != facts:
            self._require_specs(question, budget)
            ongoing = self._paused.pop(key, None)
            if ongoing is None or not ongoing.can_continue(question, facts):
                ongoing = self._begin(question, facts, usage(), budget)
            ongoing.oracle.budget = budget
            assignments: Mapping[str, Assignment] | None = None
            try:
                next(ongoing.running)
            except StopIteration as end:
                assignments = None if ongoing.search.limited else end.value or {}
            else:
                self._paused[key] = ongoing
                raise SearchPaused
            if facts != ongoing.facts:
                nodes = {assignment.node for assignment in (assignments or {}).values()}
                by_state, by_held = (
                    ledger.state.since(ongoing.facts.state)[0],
                    ledger.hold_versions.since(ongoing.facts.held)[0],
                )
                if not nodes or by_state is None or by_held is None or not nodes.isdisjoint((*by_state, *by_held)):
                    # Something changed during a pause: the next slice begins a new search.
                    raise SearchPaused
            unplaceable = frozenset(member.uid for member in ongoing.search.unplaceable)
            answer = budget.answers[key] = _Answer(facts, assignments, unplaceable)
        return answer

    def _require_specs(self, question: _Question, budget: CallBudget) -> None:
        """Raise PlanUnfinishedError with all specs that the ledger does not keep; they are read before the search begins."""
        unread: dict[bytes, ClaimRecord] = {}
        for member in question.candidates:
            for record in self.allocator.unread_specs(member.claims.open).records:
                if record.claim.metadata.uid not in budget.read_again:
                    unread.setdefault(record.spec_digest, record)
        if unread:
            raise PlanUnfinishedError(UnreadSpecs(tuple(unread.values())))

    def _begin(self, question: _Question, facts: _PlanFacts, usage: Usage, budget: CallBudget) -> _OngoingPlan:
        ledger, candidates, offered = self.ledger, question.candidates, question.offered
        members = members_of(candidates, offered.to)
        if len(self._capacities) > _MOST_CAPACITIES:
            self._capacities.clear()
        oracle = PlacementOracle(
            ledger,
            self.allocator,
            self.equivalence,
            self._capacities,
            candidates,
            offered,
            usage,
            facts.backed_off,
            budget,
        )
        search = GangSearch(members, offered.nodes, oracle, question.steps)
        return _OngoingPlan(question, facts, oracle, search, search.solve(question.needed))

    def _facts(self, question: _Question) -> _PlanFacts:
        ledger, members = self.ledger, question.candidates
        claims = (claim for member in members for claim in (*member.claims.open, *member.claims.held))
        return _PlanFacts(
            state=ledger.state.place,
            held=ledger.hold_versions.place,
            nodes=ledger.node_changes.place,
            classes=ledger.changes.classes,
            claims=tuple((claim.uid, claim.record.claim.metadata.resource_version) for claim in claims),
            offered=tuple(question.offered.nodes),
            backed_off=frozenset(
                device for member in members for device in self.device_backoff.devices_of(member.pod.uid)
            ),
        )


def _placements(assignments: Mapping[str, Assignment]) -> tuple[ClaimPlacement, ...]:
    return tuple(placement for assignment in assignments.values() for placement in assignment.placements.values())
