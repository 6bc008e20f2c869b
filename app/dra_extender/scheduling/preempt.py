"""The preempt verb: on which of the nodes that kube-scheduler proposes the eviction frees the devices that a pod needs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import NoFit, SearchPaused
from dra_extender.cel.budget import Budget
from dra_extender.ledger.state.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.ledger.state.usage import Reduced
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import excluded, sort_claims
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.extended_resources.need import ExtendedNeed, extended_need
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import SHARE_USED_UP, RetryableError
from dra_extender.scheduling.search_time.time_slices import CallBudget

_LOOK_AGAIN_SECONDS: Final = 0.02
_CREATED_SOON: Final = frozenset({Code.CLAIM_NOT_CREATED, Code.CLAIM_MISSING})


class Preempt:
    """Drops the nodes on which a pod would not get its devices even after the eviction.

    kube-scheduler proposes victims for other reasons than devices, and evicts them without a further filter call.  On a node that
    we know to be infeasible they would be evicted without result.
    """

    def __init__(self, context: SchedulingContext, allocator: NodeAllocator, short_claims: ShortClaims) -> None:
        self._ledger = context.ledger
        self._clock = context.clock
        self._options = context.options
        self._allocator = allocator
        self._short_claims = short_claims
        self._slices = short_claims.slices

    async def run(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """The entries of `victims` (node -> pod UIDs) on whose nodes the pod fits without the victims, unchanged.

        Waits for a claim that is just being created from its template: kube-scheduler calls once, and the requeue does not wake a
        pod that lacks CPU only.

        Raises:
            RetryableError: the pod's namespace has used up its share of time, or a claim could not be read.
        """
        if not pod.needs_devices:
            return victims
        found = await self._wait_for_claims(pod)
        if isinstance(found, Rejection):
            return {}
        budget = self._slices.begin(pod, self._options.filter_budget_seconds)
        while True:
            try:
                kept = self._feasible(pod, found, victims, budget)
            except SearchPaused:
                if not await self._slices.next(pod, budget):
                    raise RetryableError(f"pod {pod.key}: {SHARE_USED_UP}") from None
                continue
            except SpecNotKeptError as missing:
                await self._short_claims.read_for(pod, missing, budget)
                continue
            self._slices.end(pod, budget)
            return kept

    def _feasible(
        self, pod: Pod, found: tuple[FoundClaim, ...], victims: Mapping[str, Sequence[str]], budget: CallBudget
    ) -> Mapping[str, Sequence[str]]:
        """The entries of `victims` whose nodes are feasible for these claims; a pass after a pause repeats no search."""
        ledger = self._ledger
        claims = sort_claims(found, ledger)
        undecided = (*claims.held, *claims.open)
        need = extended_need(pod, ledger)
        kept: dict[str, Sequence[str]] = {}
        for name, uids in victims.items():
            node = ledger.nodes.get(name)
            if node is None or excluded(pod, node, claims, ledger):
                continue
            demand = self._demand(undecided, need, node, budget)
            if isinstance(demand, Rejection):
                continue
            if demand is None or self._fits_without(demand, node, uids, budget):
                kept[name] = uids
        return kept

    def _demand(
        self, undecided: tuple[FoundClaim, ...], need: ExtendedNeed | None, node: Node, budget: Budget
    ) -> Demand | Rejection | None:
        """The demand on the node, or why nothing can be allocated there; None if nothing has to be."""
        special = None if need is None else need.on(node)
        if isinstance(special, Rejection):
            return special
        wanted = undecided if special is None else (*undecided, special.found)
        return self._allocator.demand(wanted, budget) if wanted else None

    async def _wait_for_claims(self, pod: Pod) -> tuple[FoundClaim, ...] | Rejection:
        """The claims of the pod, after a wait for those that may be created soon."""
        ledger = self._ledger
        end = self._clock.monotonic() + self._options.new_claim_wait_seconds
        while True:
            found = find_claims(ledger.pods.newest(pod), ledger)
            if not isinstance(found, Rejection) or found.code not in _CREATED_SOON or self._clock.monotonic() >= end:
                return found
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _fits_without(self, demand: Demand, node: Node, uids: Sequence[str], budget: CallBudget) -> bool:
        gone = [holding for record in self._freed(uids) for holding in record.counted]
        usage = Reduced(self._ledger.claims.usage, gone)
        answer = self._allocator.search_in_call(demand, node, usage, budget, ("without", *uids))
        return not isinstance(answer, NoFit)

    def _freed(self, uids: Sequence[str]) -> list[ClaimRecord]:
        """The claims, deleted ones included, whose consumers are all among these pods."""
        victims = set(uids)
        freed: dict[str, ClaimRecord] = {}
        for uid in dict.fromkeys(uids):
            for record in self._ledger.claims.of_consumer(uid):
                if record.claim.metadata.uid not in freed and all(
                    consumer.uid in victims for consumer in record.claim.status.reserved_for
                ):
                    freed[record.claim.metadata.uid] = record
            for orphan in self._ledger.claims.orphans.of_pod(uid):
                if orphan.pods <= victims:
                    freed[orphan.record.claim.metadata.uid] = orphan.record
        return list(freed.values())
