"""Plans for gangs as the ledger stands."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.ledger.state.node_versions import NodeVersions
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.device import DeviceId
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.fairness.stale_holds import StaleHolds
from dra_extender.scheduling.gang.assignment import Assignment
from dra_extender.scheduling.gang.offers import OfferedNodes
from dra_extender.scheduling.gang.placement_oracle import LedgerPlacementOracle, PlannerContext
from dra_extender.scheduling.gang.search import MAX_STEPS, GangSearch, PlanLimitError
from dra_extender.scheduling.permit.members import MemberCandidate, members_of
from dra_extender.scheduling.search_time.time_slices import CallBudget

_REMEMBERED: Final = 10_000
_PAUSED: Final = 4


class PlanUnfinishedError(Exception):
    """There is no time left to plan; nothing is known about the gang."""


class PlanResult(NamedTuple):
    """Assignments by pod UID, none if the gang does not fit.

    `limited`: it is not known whether it fits.  `unsettled`: only holds that are about to settle stand in the way.  `behind` and
    `revocable`: see Attempt.
    """

    assignments: Mapping[str, Assignment] = {}
    limited: bool = False
    unsettled: bool = False
    behind: tuple[ClaimPlacement, ...] = ()
    revocable: tuple[ClaimPlacement, ...] = ()


class _Facts(NamedTuple):
    """What a plan is made from.  Of the first two a plan that was paused may see changes, if none concerns its assignments."""

    state: int
    held: int
    nodes: int
    classes: int
    claims: tuple[tuple[str, str], ...]
    offered: tuple[str, ...]
    cooling: frozenset[DeviceId]


class _Question(NamedTuple):
    """Which plan is asked for; `without` the holds of these claims."""

    asked: str
    candidates: Sequence[MemberCandidate]
    needed: int
    offered: OfferedNodes
    steps: int
    without: frozenset[str]

    @property
    def key(self) -> Hashable:
        """Equal for what is asked again."""
        return (self.asked, tuple(each.pod.uid for each in self.candidates), self.needed, self.steps, self.without)


class _Answer(NamedTuple):
    facts: _Facts
    assignments: Mapping[str, Assignment] | None


class _Kept(NamedTuple):
    """A plan that can go on."""

    question: _Question
    facts: _Facts
    oracle: LedgerPlacementOracle
    plan: GangSearch
    versions: tuple[NodeVersions, NodeVersions]

    def same(self, question: _Question, facts: _Facts) -> bool:
        """Whether the plan is about the same claims, nodes and classes, and members may still go where they might."""
        return facts[2:] == self.facts[2:] and all(
            question.offered.to(each.pod.uid) == self.question.offered.to(each.pod.uid) for each in question.candidates
        )


class GangPlanner:
    """Plans the members of a gang, and remembers how many of a kind there is room for on equivalent nodes."""

    def __init__(
        self,
        ledger: Ledger,
        searching: NodeAllocator,
        equivalence: NodeEquivalence,
        cool_downs: DeviceBackoff,
        stale: StaleHolds,
    ) -> None:
        """`equivalence` tells which nodes need not be tried themselves."""
        self._ledger = ledger
        self._context = PlannerContext(ledger, searching, equivalence, {})
        self._cool_downs = cool_downs
        self._stale = stale
        self._paused: LruCache[Hashable, _Kept] = LruCache(_PAUSED)

    def plan(
        self,
        asked: str,
        candidates: Sequence[MemberCandidate],
        needed: int,
        offered: OfferedNodes,
        budget: CallBudget,
        terms: tuple[int, str] = (MAX_STEPS, ""),
    ) -> PlanResult:
        """Assignments for all candidates, or for `needed` of them at least; the pod with the UID `asked` may be left out, too.

        `terms`: the most steps, and the UID of their PodGroup, whose own holds are not in its way.

        Raises:
            SearchPaused: the slice of the budget is over; asked again, the plan goes on.
            SpecNotKeptError: claims have to be read before.
            PlanUnfinishedError: the budget is closed.
        """
        if budget.closed:
            raise PlanUnfinishedError
        ledger, (steps, unit) = self._ledger, terms

        def planned(usage: Callable[[], Usage], without: frozenset[str] = frozenset()) -> Mapping[str, Assignment]:
            return self._solve(_Question(asked, candidates, needed, offered, steps, without), usage, budget)

        try:
            assignments = planned(ledger.usage)
        except PlanLimitError:
            return PlanResult(limited=True)
        views = self._stale.views(besides=unit)
        if asked in assignments or views.is_empty:
            return PlanResult(assignments)
        try:
            behind = planned(lambda: views.without_loose(ledger), views.loose)
            if asked not in behind:
                return PlanResult(assignments)
            revocable = planned(lambda: views.without_stale(ledger), views.stale) if views.has_stale else {}
            unsettled = bool(views.multi_node) and asked in planned(
                lambda: views.without_multi_node(ledger), views.multi_node
            )
        except PlanLimitError:
            return PlanResult(assignments)
        found = _placements(revocable) if asked in revocable else ()
        return PlanResult(assignments, unsettled=unsettled, behind=_placements(behind), revocable=found)

    def _solve(self, question: _Question, usage: Callable[[], Usage], budget: CallBudget) -> Mapping[str, Assignment]:
        """The assignments found, none if the gang does not fit.

        A paused plan goes on while its question is the same; it counts if nothing has changed that its assignments depend on.

        Raises:
            SearchPaused: the slice of the budget is over.
            PlanLimitError: the plan ended at a limit.
        """
        key, facts = question.key, self._facts(question)
        known: _Answer | None = budget.answers.get(key)
        if known is not None and known.facts == facts:
            return _decided(known.assignments)
        self._read_before(question, budget)
        kept = self._paused.pop(key, None)
        if kept is None or not kept.same(question, facts):
            kept = self._new_plan(question, facts, usage(), budget)
        kept.oracle.budget = budget
        try:
            assignments: Mapping[str, Assignment] | None = kept.plan.solve(question.needed) or {}
        except PlanLimitError:
            assignments = None
        except SearchPaused:
            self._paused[key] = kept
            raise
        if facts != kept.facts and not self._stands(kept, assignments):
            # Something changed while it was paused: it begins anew in the next slice.
            raise SearchPaused
        budget.answers[key] = _Answer(facts, assignments)
        return _decided(assignments)

    def _read_before(self, question: _Question, budget: CallBudget) -> None:
        """Have the specs of all members read at once where they are not kept: a plan that lacks one begins anew.

        Raises:
            SpecNotKeptError: some have to be read, and were not in this call.
        """
        missing: dict[bytes, ClaimRecord] = {}
        for each in question.candidates:
            for record in self._context.searching.missing(each.claims.open):
                if record.claim.metadata.uid not in budget.read_again:
                    missing.setdefault(record.spec_digest, record)
        if missing:
            raise SpecNotKeptError(tuple(missing.values()))

    def _new_plan(self, question: _Question, facts: _Facts, usage: Usage, budget: CallBudget) -> _Kept:
        ledger, candidates, offered = self._ledger, question.candidates, question.offered
        members = members_of(candidates, offered.to)
        if len(self._context.capacities) > _REMEMBERED:
            self._context.capacities.clear()
        oracle = LedgerPlacementOracle(self._context, candidates, offered, usage, facts.cooling, budget)
        versions = (ledger.state.copy(), ledger.held.copy())
        return _Kept(question, facts, oracle, GangSearch(members, offered.nodes, oracle, question.steps), versions)

    def _stands(self, kept: _Kept, assignments: Mapping[str, Assignment] | None) -> bool:
        """Whether nothing has changed on the nodes of these assignments while the plan was paused."""
        if not assignments:
            return False
        ledger, (state, held) = self._ledger, kept.versions
        nodes = {assignment.node for assignment in assignments.values()}
        return all(ledger.state.of(name) == state.of(name) and ledger.held.of(name) == held.of(name) for name in nodes)

    def _cooling(self, question: _Question) -> frozenset[DeviceId]:
        return frozenset(device for each in question.candidates for device in self._cool_downs.of(each.pod.uid))

    def _facts(self, question: _Question) -> _Facts:
        ledger = self._ledger
        return _Facts(
            ledger.state.since(-1)[1],
            ledger.held.since(-1)[1],
            ledger.node_changes.since(-1)[1],
            ledger.changes.classes,
            tuple(
                (each.record.claim.metadata.uid, each.record.claim.metadata.resource_version)
                for one in question.candidates
                for each in (*one.claims.open, *one.claims.held)
            ),
            tuple(question.offered.nodes),
            self._cooling(question),
        )


def _decided(assignments: Mapping[str, Assignment] | None) -> Mapping[str, Assignment]:
    if assignments is None:
        raise PlanLimitError
    return assignments


def _placements(assignments: Mapping[str, Assignment]) -> tuple[ClaimPlacement, ...]:
    return tuple(placement for assignment in assignments.values() for placement in assignment.placements.values())
