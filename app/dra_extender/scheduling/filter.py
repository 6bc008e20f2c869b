"""The flow of a filter call: on which nodes the pod fits, and what is held there."""

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import SpecNotKeptError
from dra_extender.model.lazy_node_names import rotated
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import (
    ClaimsByState,
    excluded,
    fully_reserved,
    not_ready,
    sort_claims,
    useless_on,
)
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.claims.undelivered_claims import UndeliveredClaims
from dra_extender.scheduling.evaluation.backoff import NODE_IN_BACKOFF, DeviceBackoff
from dra_extender.scheduling.evaluation.evaluator import NODE_UNKNOWN, NodeEvaluator
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, rejected_everywhere
from dra_extender.scheduling.extended_resources import need as extended
from dra_extender.scheduling.extended_resources.need import ExtendedClaimNeed, ExtendedNeed, NodesByNeed
from dra_extender.scheduling.fairness.behind_holds import BehindHolds, PlacementsBehindHolds
from dra_extender.scheduling.gang.account import GangAccount
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.node_offers import NodeOffers
from dra_extender.scheduling.permit.members import gang_of
from dra_extender.scheduling.ports.errors import FilterResponse, RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.search_time.time_slices import CallBudget

_NARROWING: Final = Rejection(code=Code.UNSETTLED)


@dataclass(frozen=True, slots=True)
class FilterDependencies:
    """What a filter call works with."""

    ledger: Ledger
    allocator: NodeAllocator
    evaluator: NodeEvaluator
    unschedulable: UnschedulablePods
    gangs: GangCoordinator
    device_backoff: DeviceBackoff
    holds: HoldService
    short_claims: ShortClaims
    undelivered: UndeliveredClaims
    options: Options


class _Query(NamedTuple):
    """What a pod needs: its claims by state, its extended resources, and the demand of its open claims (None: no open claim)."""

    claims: ClaimsByState
    need: ExtendedNeed | None
    demand: Demand | None


class _Adoption(NamedTuple):
    """An allocated claim for the pod's extended resources, and claims and need of the pod if it uses that claim."""

    existing: FoundClaim
    claims: ClaimsByState
    need: ExtendedNeed


class Filter:
    """Finds the nodes on which a pod fits, and holds devices there until the bind names one of them.

    A call changes nothing but holds, and a further call for the same pod replaces them.
    """

    def __init__(self, uses: FilterDependencies) -> None:
        self._ledger = uses.ledger
        self._short = uses.short_claims
        self._undelivered = uses.undelivered
        self._allocator = uses.allocator
        self._unschedulable = uses.unschedulable
        self._device_backoff = uses.device_backoff
        self._fairness = uses.gangs.fairness
        self._slices = uses.short_claims.slices
        self._holds = uses.holds
        self._options = uses.options
        self.gangs = uses.gangs
        self._evaluator = uses.evaluator
        self._behind_holds = BehindHolds(uses.ledger, uses.allocator, uses.gangs.fairness.stale)
        prefetch = Prefetch(uses.evaluator, uses.ledger, self._slices.clock, uses.options.offered_nodes)
        self._offers = NodeOffers(uses.ledger, self._fairness, uses.holds, prefetch, uses.options)

    async def run(self, pod: Pod, nodes: Sequence[str]) -> FilterResponse:
        """The nodes on which the pod fits, at most `offered_nodes` if devices are held there, and why the others do not fit.

        Raises:
            RetryableError: the searches did not end within the pod's time, the pod may be offered no node at present, or one of its
                claims exists and is not delivered yet.
        """
        self._ledger.pod_asked_about(pod)
        if not pod.needs_devices:
            return FilterResponse(nodes, {}, {})
        pod = self._resolve(pod)
        budget = self._slices.begin(pod, self._options.filter_budget_seconds)
        result = await self._evaluate(pod, nodes, budget)
        if not result.fits:
            return self._reject(pod, result, budget)
        if pod.uid in self._unschedulable.uids:
            self._unschedulable.forget(pod.uid)
        if pod.uid in self._fairness.shares.waiting:
            self._fairness.shares.end_waiting(pod.uid)
        return FilterResponse(self._offers.hold(pod, result), {}, result.texts and result.node_texts())

    def evaluate(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """What `run` finds out, and the reasons with their details; nothing is held but what the plan of a gang takes.

        Raises:
            SearchPaused: the slice is over.
            SpecNotKeptError: claims have to be read first.
        """
        return self._evaluate_once(self._ledger.pods.newest(pod), nodes, budget)

    def evaluate_alone(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """As `evaluate`, as if no other pods had to be placed with this one."""
        return self._evaluate_alone(self._ledger.pods.newest(pod), nodes, budget)

    def gang_account(
        self, pod: Pod, nodes: Sequence[str], budget: CallBudget, *, partly: bool = True
    ) -> AbstractContextManager[GangAccount] | None:
        """See GangAccounts.take_account; None for a pod that is in no gang."""
        gang = gang_of(pod, self._ledger)
        return None if gang is None else self.gangs.accounts.take_account(gang, nodes, budget, partly=partly)

    def forget_plan(self, pod: Pod) -> None:
        """Drop the plan of the pod's gang, which `evaluate` made, and its holds."""
        gang = gang_of(pod, self._ledger)
        if gang is not None:
            self.gangs.revoke(gang.metadata.uid)

    def may_fit(self, pod: Pod, nodes: Sequence[str], budget: CallBudget, lacking: Rejection | None) -> bool:
        """See PlacementTrial; nothing is held for the pod.  True also if only a call that holds devices could find out.

        Raises:
            SearchPaused: the slice is over; results are kept for the next one.
            SpecNotKeptError: specs of claims have to be read first.
        """
        gang = gang_of(pod, self._ledger)
        if gang is not None:
            candidates = _without(nodes, self._device_backoff.nodes.of(pod.uid))
            return self.gangs.may_fit(pod, gang, candidates, budget, lacking)
        result = self._evaluate_once(self._ledger.pods.newest(pod), nodes, budget)
        return bool(result.fits) or result.narrowing or bool(result.revocable)

    async def read(self, missing: SpecNotKeptError, budget: CallBudget) -> None:
        """Read the claims that `may_fit` lacks; raises RetryableError if that is impossible."""
        await self._short.read(missing, budget)

    def _resolve(self, pod: Pod) -> Pod:
        """The newest state of the pod.  It uses no devices if it is neither bound nor being bound."""
        pods = self._ledger.pods
        pod = pods.newest(pod)
        if not (pod.node_name or pods.is_being_bound(pod.uid)):
            self._ledger.release_orphans(pod.uid)
        return pod

    async def _evaluate(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the nodes; wait for claims that are about to be delivered and for holds that are about to narrow to one node.

        Stale holds that stand in the way are revoked.
        """
        start = budget.slice_start
        result = await self._evaluate_in_slices(pod, nodes, budget)
        if not result.fits and Code.CLAIM_MISSING in result.codes and await self._undelivered.come(pod, budget):
            self._slices.reopen(pod, budget)
            result = await self._evaluate_in_slices(pod, nodes, budget)
        while not result.fits and result.narrowing and not result.revocable:
            left = start + self._options.hold_wait_seconds - self._slices.clock.monotonic()
            if left <= 0 or not await self._ledger.holds.changed.wait(left):
                break
            self._slices.reopen(pod, budget)
            result = await self._evaluate_in_slices(pod, nodes, budget)
        if result.revocable and not result.fits:
            result = await self._fairness.revoke_stale(result, lambda: self._evaluate_in_slices(pod, nodes, budget))
        return result

    async def _evaluate_in_slices(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the nodes in as many slices of time as the pod gets.

        Each slice evaluates all nodes against the present state, with the cached results of earlier slices.  After the last slice,
        no search goes on.
        """
        while True:
            try:
                result = self._evaluate_once(pod, nodes, budget)
            except SearchPaused:
                if not await self._slices.next(pod, budget):
                    budget.close()
                continue
            except SpecNotKeptError as missing:
                await self._short.read_for(pod, missing, budget)
                continue
            self._slices.end(pod, budget)
            return result

    def _evaluate_once(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the nodes for the pod; nodes in backoff are rejected without evaluation."""
        backoff = self._device_backoff.nodes
        in_backoff = backoff.of(pod.uid) if pod.uid in backoff.pods else None
        if not in_backoff:
            return self._evaluate_pod(pod, nodes, budget)
        candidates = _without(nodes, in_backoff)
        result = self._evaluate_pod(pod, candidates, budget) if candidates else FilterResult()
        for name in nodes:
            if name in in_backoff:
                result.reject(name, NODE_IN_BACKOFF)
        return result

    def _evaluate_pod(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the nodes for the pod, as a member of its gang if it has one."""
        ledger = self._ledger
        self._holds.expire()
        gang = None if pod.pod_group is None else gang_of(pod, ledger)
        planned = None if gang is None else self.gangs.place_member(pod, gang, nodes, budget)
        if planned is not None and (planned.fits or Code.GANG not in planned.codes):
            return planned
        # A member that would not even fit alone is rejected with more reasons than the gang's.
        alone = self._evaluate_alone(pod, nodes, budget)
        return planned if planned is not None and alone.fits else alone

    def _evaluate_alone(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the nodes as if no other pods had to be placed with this one."""
        self._holds.release_pods(pod.uid)
        result = self._evaluate_needs(pod, nodes, budget)
        if pod.extended_resources or pod.extended_claim:
            result.reword(partial(extended.named, pod))
        return result

    def _evaluate_needs(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        query = self._build_query(pod, budget)
        if isinstance(query, Rejection):
            result = rejected_everywhere(nodes, query)
            result.limited = query.code is Code.SEARCH_LIMIT
            return result
        existing = None if query.need is None else extended.existing_claim(pod, self._ledger)
        if query.need is None or existing is None:
            return self._evaluate_query(pod, query, nodes, budget)
        claims, need = query.claims.with_allocated(existing), query.need.met_by(existing)
        return self._evaluate_adopting(pod, query, _Adoption(existing, claims, need), nodes, budget)

    def _evaluate_adopting(
        self, pod: Pod, query: _Query, adoption: _Adoption, nodes: Sequence[str], budget: CallBudget
    ) -> FilterResult:
        """Evaluate the nodes for a pod whose extended resources have an allocated claim from an earlier bind.

        The pod goes to a node on which that claim can be used.  If none fits, the other nodes are evaluated for a new claim; a node
        that does not fit with the existing claim does not fit with a new one, which needs more devices.
        """
        adopting = query._replace(claims=adoption.claims, need=adoption.need)
        adopted = self._evaluate_query(pod, adopting, nodes, budget)
        if adopted.fits:
            return adopted
        usable = dict.fromkeys(name for name in nodes if self._can_adopt(adoption, name))
        anew = self._evaluate_query(pod, query, [name for name in nodes if name not in usable], budget)
        anew.narrowing |= adopted.narrowing
        if not (anew.fits or anew.narrowing):
            return rejected_everywhere(nodes, Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=adoption.existing.label))
        anew.behind += adopted.behind
        anew.revocable = anew.revocable or adopted.revocable
        for name in usable:
            text = adopted.texts[name]
            anew.reject(name, adopted.reasons[text][1], text)
        return anew

    def _can_adopt(self, adoption: _Adoption, name: str) -> bool:
        """Whether the existing claim can be used on this node."""
        node = self._ledger.nodes.get(name)
        if node is None or isinstance(adoption.need.on(node), Rejection):
            return False
        return useless_on(node, adoption.existing, self._ledger) is None

    def _build_query(self, pod: Pod, budget: CallBudget) -> _Query | Rejection:
        """What the pod needs, or the precondition that fails on every node."""
        ledger, options = self._ledger, self._options
        found = find_claims(pod, ledger)
        if isinstance(found, Rejection):
            return found
        now = self._slices.clock.now()
        rejection = fully_reserved(found, ledger)
        if rejection is None and options.binding_conditions:
            rejection = not_ready(found, pod, ledger, now, options.binding_timeout_seconds)
        if rejection is not None:
            return rejection
        claims, need = sort_claims(found, ledger), None
        if pod.extended_resources or pod.extended_claim:
            need = extended.extended_need(pod, ledger)
        demand = self._allocator.demand(claims.open, budget) if claims.open else None
        return demand if isinstance(demand, Rejection) else _Query(claims, need, demand)

    def _evaluate_query(self, pod: Pod, query: _Query, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the demand of everything that is open; groups of nodes may need different claims for extended resources."""
        claims, need = query.claims, query.need
        result = FilterResult(open=claims.open, held=claims.held)
        groups: Sequence[NodesByNeed] = (NodesByNeed(None, nodes),)
        if need is not None or claims.allocated or claims.held or not claims.open:
            groups = self._allowed(pod, nodes, claims, need, result)
        for special, names in groups:
            wanted = claims.open if special is None else (*claims.open, special.found)
            if not wanted:
                result.fits.update(dict.fromkeys(names))
                continue
            known = query.demand if special is None else None
            demand = self._allocator.demand(wanted, budget) if known is None else known
            if isinstance(demand, Rejection):
                result.limited |= demand.code is Code.SEARCH_LIMIT
                result.reject_all(names, demand)
                continue
            result.open, result.demand = max(result.open, wanted, key=len), demand
            self._evaluate_nodes(demand, names, pod.uid, result, budget)
        return result

    def _allowed(
        self, pod: Pod, nodes: Sequence[str], claims: ClaimsByState, need: ExtendedNeed | None, result: FilterResult
    ) -> Sequence[NodesByNeed]:
        """Reject the nodes that decided claims or extended resources exclude; returns the others by the claim they need."""
        ledger = self._ledger
        allowed: dict[int, tuple[ExtendedClaimNeed | None, list[str]]] = {}
        for name in nodes:
            node = ledger.nodes.get(name)
            if node is None:
                result.reject(name, NODE_UNKNOWN)
                continue
            special = None if need is None else need.on(node)
            if isinstance(special, Rejection):
                result.reject(name, special)
                continue
            rejection = excluded(pod, node, claims, ledger)
            if rejection is None:
                allowed.setdefault(id(special), (special, []))[1].append(name)
            else:
                result.reject(name, rejection)
        return tuple(NodesByNeed(*each) for each in allowed.values())

    def _evaluate_nodes(
        self, demand: Demand, nodes: Sequence[str], uid: str, result: FilterResult, budget: CallBudget
    ) -> None:
        """Evaluate the nodes, beginning at a place that depends on the pod, and add what is found to the result."""
        in_order = rotated(nodes, zlib.crc32(uid.encode()))
        max_feasible = self._options.offered_nodes - len(result.fits)
        backoff = self._device_backoff
        in_backoff = backoff.of(uid) if uid in backoff.pods_with_devices else None
        if in_backoff:
            evaluation = self._evaluator.evaluate_around(in_backoff, demand, in_order, max_feasible, budget)
        else:
            evaluation = self._evaluator.evaluate_nodes(demand, in_order, max_feasible, budget)
        result.fits.update(evaluation.fits)
        result.limited |= evaluation.limited
        result.searched += evaluation.searched
        if evaluation.rejected.nodes:
            result.reject_batch(evaluation.rejected)
        if not (result.fits or in_backoff):
            found = self._behind_holds.search(demand, evaluation.under_holds, nodes, budget)
            self._add_behind_holds(found, result)

    def _add_behind_holds(self, found: PlacementsBehindHolds, result: FilterResult) -> None:
        result.behind += found.behind
        result.revocable = result.revocable or found.revocable
        for name in found.narrowing:
            result.narrowing = True
            result.reject(name, _NARROWING)

    def _reject(self, pod: Pod, result: FilterResult, budget: CallBudget) -> FilterResponse:
        """Record the rejection for requeue and publish it as an Event; the namespace is charged for the time.

        Raises:
            RetryableError: some node was not searched to the end.
        """
        self._fairness.record_rejection(pod, result)
        if result.limited:
            raise RetryableError(f"pod {pod.key}: {result.unfinished}")
        began = self._slices.clock.monotonic()
        self._unschedulable.record(pod, result, budget)
        self._slices.charge(pod, self._slices.clock.monotonic() - began)
        return FilterResponse((), {}, result.node_texts())


def _without(nodes: Sequence[str], in_backoff: frozenset[str]) -> Sequence[str]:
    return [name for name in nodes if name not in in_backoff] if in_backoff else nodes
