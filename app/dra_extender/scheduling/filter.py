"""The flow of a filter call: on which nodes the pod fits, and what is held there."""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.reasons import Code, Rejection, SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, existing_claim, with_subject
from dra_extender.scheduling.claims.live_reads import SpecReader, UndeliveredClaims, UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim, gang_of
from dra_extender.scheduling.claims.pod_claims import PodClaims, find_pod_claims, why_unusable_on
from dra_extender.scheduling.claims.readiness import why_not_ready
from dra_extender.scheduling.evaluation.backoff import NODE_IN_BACKOFF, DeviceBackoff
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator, Prefetch
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand
from dra_extender.scheduling.evaluation.filter_result import FilterResult, NodeResult, rejected_everywhere
from dra_extender.scheduling.evaluation.node_results import NODE_UNKNOWN
from dra_extender.scheduling.evaluation.scoring import NO_TERMS, ratings
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.holds.fairness import HoldFairness
from dra_extender.scheduling.holds.service import HoldService, with_new_share_ids
from dra_extender.scheduling.holds.stale_holds import RevocationScope, StaleHolds
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.time_slices import TimeSlices


@dataclass(slots=True)
class _FilterCall:
    """A filter call and what it may still wait for.

    `multi_node_until`: until when (monotonic) it waits for pods whose holds keep several nodes.
    `scopes`: the stale holds that it revokes next.
    """

    pod: Pod
    budget: CallBudget
    multi_node_until: float
    asks_about_claims: bool = True
    scopes: Iterator[RevocationScope] = field(default_factory=lambda: iter(RevocationScope))


class _Query(NamedTuple):
    """What a pod asks for, in the order in which it is tried: with the claim that exists for its extended resources, then anew.

    `demand`: that of its open claims; None if there are none.
    """

    demand: Demand | None
    attempts: tuple[PodClaims, ...]
    existing: FoundClaim | None


@dataclass(eq=False, slots=True)
class Filter:
    """Finds the nodes on which a pod fits, and holds devices there until the bind names one of them.

    The holds of a call replace those of an earlier call for the same pod.  A call also releases what no bind will use any more
    (`Ledger.release_orphans`), and records a rejection, with an Event on the pod.

    A node is rejected for the first of these reasons: the pod is in backoff there, a precondition of the pod fails (on every node),
    the node is unknown, it lacks extended resources, a claim is allocated or held for other nodes, the search finds no devices.  A
    pod that the plan of its gang does not place is rejected for the gang only if it fits without the gang.
    """

    ledger: Ledger
    clock: Clock
    options: Options
    evaluator: NodeEvaluator
    expected: ExpectedDemand | None
    gangs: GangCoordinator
    backoff: DeviceBackoff
    fairness: HoldFairness
    stale: StaleHolds
    holds: HoldService
    prefetch: Prefetch
    time_slices: TimeSlices
    spec_reader: SpecReader
    undelivered: UndeliveredClaims
    unschedulable: UnschedulablePods

    async def filter(self, pod: Pod, nodes: Sequence[str]) -> FilterResponse:
        """Return the feasible nodes, at most `offered_nodes` if devices are held there, and why other nodes are not feasible."""
        ledger = self.ledger
        ledger.pod_asked_about(pod)
        if not pod.needs_devices:
            return FilterResponse(fitting=nodes)
        pod = ledger.pods.newest(pod)
        if not (pod.node_name or ledger.pods.is_being_bound(pod.uid)):
            # A pod that is neither bound nor being bound uses no devices.
            ledger.release_orphans(pod.uid)
        budget = self.time_slices.begin(pod, self.options.filter_budget_seconds)
        call = _FilterCall(pod, budget, budget.slice_start + self.options.hold_wait_seconds)
        result = self.evaluate(pod, nodes, budget, gang_of(pod, ledger))
        while await self._wait(result, call):
            result = self.evaluate(pod, nodes, budget, gang_of(pod, ledger))
        if result.fits:
            self.unschedulable.forget(pod.uid)
            if result.demand is not None and self.expected is not None:
                # Once the response is sent.
                asyncio.get_running_loop().call_soon(self.expected.note, pod, result.demand)
            offered = self._offer(pod, result)
            return FilterResponse(fitting=offered, unresolvable=result.texts and result.node_statuses())
        self.fairness.record_rejection(pod, result.without_holds.loose)
        if result.limited:
            raise RetryableError(f"pod {pod.key}: {result.limit_text}")
        began = self.clock.monotonic()
        self.unschedulable.record(pod, result, budget)
        self.time_slices.charge(pod, self.clock.monotonic() - began)
        return FilterResponse(fitting=(), unresolvable=result.node_statuses())

    def _offer(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Select the best nodes, and hold there what the pod would get; the holds of a gang member are placed already.

        The holds and the prefetch wait until the response is sent.
        """
        self.fairness.end_waiting(pod.uid)
        if result.assigned_node is not None:
            return (result.assigned_node,)
        for claim in result.held:
            self.holds.extend(claim.uid, pod.uid)
        if not result.open:
            return tuple(result.fits)
        # Mostly every node has a result, and there may be thousands.
        fits = cast("dict[str, NodeResult]", result.fits)
        nodes_without_holds: tuple[str, ...] = ()
        if None in result.fits.values():
            fits = {name: node_result for name, node_result in result.fits.items() if node_result is not None}
            nodes_without_holds = tuple(name for name in result.fits if name not in fits)
        offered: Mapping[str, NodeResult] = {}
        try:
            selected = self.fairness.select(pod, self._best_first(result, fits), fits, self.options.offered_nodes)
            offered = {name: fits[name] for name in selected}
        except RetryableError:
            if not nodes_without_holds:
                raise
        self.holds.defer(partial(self._hold, pod, self.clock.monotonic(), result.open, offered, result.losses))
        if result.demand is not None:
            asyncio.get_running_loop().call_soon(self.prefetch.start, result.demand)
        return (*nodes_without_holds, *offered)

    def _best_first(self, result: FilterResult, fits: Mapping[str, NodeResult]) -> Sequence[str]:
        """Return the nodes by rating; equal nodes, and nodes that are all offered, in the order of their evaluation."""
        if len(fits) <= self.options.offered_nodes:
            return list(fits)
        uids = (claim.uid for claim in result.held)
        hold_terms = [hold.score_terms for uid in uids if (hold := self.ledger.holds.get(uid))]
        score_terms = result.score_terms
        if hold_terms:
            score_terms = {
                name: sum((by_node[name] for by_node in hold_terms if name in by_node), terms)
                for name, terms in score_terms.items()
            }
        rated = ratings(score_terms, self.options)
        return sorted(fits, key=rated.__getitem__, reverse=True)

    def _hold(
        self,
        pod: Pod,
        since: float,
        claims: Sequence[FoundClaim],
        offered: Mapping[str, NodeResult],
        losses: Mapping[str, float],
    ) -> None:
        """Hold the placements of each claim on the offered nodes; some nodes need no claim for extended resources."""
        if offered:
            self.fairness.offered(pod.uid)
        claims_by_node = {
            name: () if (placement := result.placement) is None else placement.claims
            for name, result in offered.items()
        }
        for index, claim in enumerate(claims):
            placements = {
                name: with_new_share_ids(placed[index])
                for name, placed in claims_by_node.items()
                if index < len(placed)
            }
            score_terms = {name: offered[name].score_terms[index] for name in placements if offered[name].score_terms}
            # The loss is that of all claims: the first one has it.
            for name in placements if index == 0 else ():
                if name in losses:
                    score_terms[name] = score_terms.get(name, NO_TERMS) + ScoreTerms(loss=losses[name])
            if placements:
                versions = {name: offered[name].state for name in placements}
                self.holds.place(
                    pod.namespace, pod.uid, claim.uid, (pod.uid,), placements, versions, score_terms, since
                )

    async def _wait(self, result: FilterResult, call: _FilterCall) -> bool:
        """Wait for what the evaluation lacks; return whether the pod is to be evaluated again.

        Each slice evaluates all nodes against the present state, with the cached results of earlier slices.  After the last slice,
        no search goes on.
        """
        pod, budget, awaited = call.pod, call.budget, result.awaited
        if awaited is Awaited.TIME_SLICE:
            if not await self.time_slices.next(pod, budget):
                budget.close()
            return True
        if isinstance(awaited, UnreadSpecs):
            await self.spec_reader.wait_for(pod, awaited, budget)
            return True
        self.time_slices.end(pod, budget)
        if awaited is Awaited.CLAIM_DELIVERY and call.asks_about_claims:
            call.asks_about_claims = False
            if not await self.undelivered.wait_for_delivery(pod, budget):
                return False
            self.time_slices.reopen(pod, budget)
            return True
        if awaited is Awaited.MULTI_NODE_HOLDS:
            seconds = call.multi_node_until - self.clock.monotonic()
            if seconds <= 0 or not await self.ledger.holds.changed.wait(seconds):
                return False
            self.time_slices.reopen(pod, budget)
            return True
        if awaited is not Awaited.STALE_HOLDS:
            return False
        # No more than necessary: the stale holds on the very devices first, then those in their pools, then all.
        scope = next(call.scopes, None)
        if scope is None:
            return False
        call.multi_node_until = -math.inf
        self.stale.revoke(result.without_holds.stale, scope)
        return True

    def evaluate(self, pod: Pod, nodes: Sequence[str], budget: CallBudget, gang: PodGroup | None) -> FilterResult:
        """Return the feasible nodes and why the other nodes are not feasible, or what the call has to wait for (`awaited`).

        `gang`: the group with which the pod is placed; None: it is placed by itself, and its own holds end.  Expired holds end in
        any case.  New holds are placed only for the plan of a gang.
        """
        excluded = dict.fromkeys(self.backoff.nodes_of(pod.uid), NODE_IN_BACKOFF)
        candidates = [name for name in nodes if name not in excluded] if excluded else nodes
        # Whether names that were sent are empty is not asked: that would decode thousands of them.
        result = FilterResult() if excluded and not candidates else None
        if result is None:
            self.holds.expire()
            try:
                if gang is not None:
                    result = self.gangs.place_member(pod, gang, candidates, budget)
                if result is None or (not result.fits and Code.GANG in result.codes):
                    self.holds.release_pods(pod.uid)
                    alone = self._evaluate_alone(pod, candidates, budget)
                    alone.reword(partial(with_subject, pod))
                    # A member that would not even fit alone is rejected with more reasons than the gang's.
                    if result is None or not alone.fits:
                        result = alone
            except SearchPaused:
                return FilterResult(unfinished=Awaited.TIME_SLICE)
        if excluded and result.unfinished is None:
            for name in filter(excluded.__contains__, nodes):
                result.reject(name, excluded[name])
        return result

    def _evaluate_alone(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> FilterResult:
        """Evaluate the pod by itself.

        A claim that an earlier bind left for the pod's extended resources is used if some node fits with it.  If none does, the
        nodes on which it is of no use are evaluated for a new claim; a node on which it is of use does not fit with a new one,
        which needs more devices.
        """
        query = self._find_query(pod, nodes, budget)
        if isinstance(query, FilterResult):
            return query
        evaluator, in_backoff = self.evaluator, self.backoff.devices_of(pod.uid)
        result: FilterResult | None = None
        for asked in query.attempts:
            adopted, result = result, FilterResult(open=asked.open, held=asked.held)
            names = nodes if adopted is None else [name for name in nodes if not self._can_adopt(query, name)]
            for demand, group in self._group_by_demand(asked, query.demand, names, budget, result):
                max_feasible = self.options.offered_nodes - len(result.fits)
                if in_backoff:
                    evaluator.evaluate_without_devices(in_backoff, pod.uid, demand, group, max_feasible, budget, result)
                    continue
                under_holds = evaluator.evaluate_nodes(pod.uid, demand, group, max_feasible, budget, result)
                if not result.fits:
                    self.stale.search_without_holds(demand, under_holds, group, budget, result)
            if result.unfinished is not None:
                return FilterResult(unfinished=result.unfinished)
            if adopted is not None:
                _add_adopted(result, adopted, nodes, names)
            if result.fits or query.existing is None or (adopted is not None and result.without_holds.multi_node):
                return result
        return rejected_everywhere(nodes, Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=EXTENDED_LABEL))

    def _find_query(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> _Query | FilterResult:
        """Return what the pod asks for; the result if no node can serve that, or if specs have to be read first."""
        ledger, options = self.ledger, self.options
        asked = find_pod_claims(pod, ledger)
        if isinstance(asked, Rejection):
            return rejected_everywhere(nodes, asked)
        now, timeout = self.clock.now(), options.binding_timeout_seconds
        if options.binding_conditions and (rejection := why_not_ready(asked.allocated, pod, ledger, now, timeout)):
            return rejected_everywhere(nodes, rejection)
        demand = self.evaluator.allocator.demand(asked.open, budget) if asked.open else None
        if isinstance(demand, UnreadSpecs):
            return FilterResult(unfinished=demand)
        if isinstance(demand, Rejection):
            result = rejected_everywhere(nodes, demand)
            result.limited = demand.code is Code.SEARCH_LIMIT
            return result
        existing = None if asked.need is None else existing_claim(pod, ledger)
        return _Query(demand, (asked,) if existing is None else (asked.adopting(existing), asked), existing)

    def _can_adopt(self, query: _Query, name: str) -> bool:
        """Return whether the existing claim is of use on the node."""
        node, need, existing = self.ledger.nodes.get(name), query.attempts[0].need, query.existing
        if node is None or existing is None or (need is not None and isinstance(need.on(node), Rejection)):
            return False
        return why_unusable_on(node, existing, self.ledger) is None

    def _group_by_demand(
        self,
        asked: PodClaims,
        open_demand: Demand | None,
        nodes: Sequence[str],
        budget: CallBudget,
        result: FilterResult,
    ) -> Iterator[tuple[Demand, Sequence[str]]]:
        """Yield the nodes in groups that need different claims for extended resources, with the demand there.

        `open_demand`: the demand of the open claims only; None if there are none.
        """
        open_claims = asked.open
        for extended_claim, names in self._group_remaining_nodes(asked, nodes, result):
            claims = open_claims if extended_claim is None else (*open_claims, extended_claim)
            if not claims:
                result.fits.update(dict.fromkeys(names))
                continue
            known = open_demand if extended_claim is None else None
            demand = known or self.evaluator.allocator.demand(claims, budget)
            if isinstance(demand, UnreadSpecs):
                result.unfinished = demand
                return
            if isinstance(demand, Rejection):
                result.limited |= demand.code is Code.SEARCH_LIMIT
                result.reject_all(names, demand)
                continue
            result.open, result.demand = max(result.open, claims, key=len), demand
            yield demand, names

    def _group_remaining_nodes(
        self, asked: PodClaims, nodes: Sequence[str], result: FilterResult
    ) -> Sequence[tuple[FoundClaim | None, Sequence[str]]]:
        """Return the nodes in groups, each with the claim that the pod needs there for its extended resources.

        Nodes that are unknown, or that extended resources or decided claims exclude, are rejected instead.
        """
        if asked.need is None and asked.open and not (asked.allocated or asked.held):
            return ((None, nodes),)
        groups: dict[int, tuple[FoundClaim | None, list[str]]] = {}
        for name in nodes:
            node = self.ledger.nodes.get(name)
            if node is None:
                result.reject(name, NODE_UNKNOWN)
                continue
            extended = asked.extended_claim_on(node, self.ledger)
            if isinstance(extended, Rejection):
                result.reject(name, extended)
            else:
                groups.setdefault(id(extended), (extended, []))[1].append(name)
        return list(groups.values())

    def may_fit(
        self, pod: Pod, nodes: Sequence[str], budget: CallBudget, lacking: Rejection | None
    ) -> bool | Awaited | UnreadSpecs:
        """Return whether the rejected pod might fit on one of these nodes now, or what has to be waited for before that is known.

        Nothing is held for the pod.  True also if only a call that holds devices could find out, and if the pod's gang no longer
        lacks the members named in `lacking`.
        """
        gang = gang_of(pod, self.ledger)
        if gang is None:
            result = self.evaluate(self.ledger.pods.newest(pod), nodes, budget, None)
            return result.unfinished or bool(result.fits) or result.without_holds.may_end_in_call
        return within_slice(partial(self.gangs.may_fit, pod, gang, nodes, budget, lacking))


def _add_adopted(result: FilterResult, adopted: FilterResult, nodes: Iterable[str], evaluated: Iterable[str]) -> None:
    """Add the result with the existing claim (`adopted`), which fits nowhere, to that of the nodes `evaluated` for a new one."""
    result.without_holds = result.without_holds.merged(adopted.without_holds)
    evaluated = frozenset(evaluated)
    for name in nodes:
        if name not in evaluated:
            text = adopted.texts[name]
            result.reject(name, adopted.reasons[text][1], text)
