import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import NoFit, SearchPaused
from dra_extender.cel.runtime.budget import Budget
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.ledger.state.usage import Reduced
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.preconditions import excluded, sort_claims
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.extended_resources.need import ExtendedNeed, extended_need
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.search_time.time_slices import SHARE_USED_UP, CallBudget

_LOOK_AGAIN_SECONDS: Final = 0.02
_SOON: Final = frozenset({Code.CLAIM_NOT_CREATED, Code.CLAIM_MISSING})


class Preempt:
    """Drops the nodes on which a pod would not get its devices even after the eviction.

    kube-scheduler proposes victims for other reasons than devices and never asks us again before it evicts, so a node that we know
    to be useless would cost its victims for nothing.
    """

    def __init__(
        self, ledger: Ledger, allocator: NodeAllocator, short: ShortClaims, clock: Clock, options: Options
    ) -> None:
        self._ledger = ledger
        self._short = short
        self._allocator = allocator
        self._slices = short.slices
        self._clock = clock
        self._options = options

    async def run(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """The entries of `victims` (node -> pod UIDs) that make sense, unchanged.

        A claim that is just being made from its template is waited for: kube-scheduler asks once, and a pod that lacks only CPU
        is not woken by anything of ours.
        """
        if not pod.needs_devices:
            return victims
        found = await self._claims(pod)
        if isinstance(found, Rejection):
            return {}
        budget = self._slices.begin(pod, self._options.filter_budget_seconds)
        while True:
            try:
                kept = self._sensible(pod, found, victims, budget)
            except SearchPaused:
                if not await self._slices.next(pod, budget):
                    raise RetryableError(f"pod {pod.key}: {SHARE_USED_UP}") from None
                continue
            except SpecNotKeptError as missing:
                await self._short.read_for(pod, missing, budget)
                continue
            self._slices.end(pod, budget)
            return kept

    def _sensible(
        self, pod: Pod, found: tuple[FoundClaim, ...], victims: Mapping[str, Sequence[str]], budget: CallBudget
    ) -> Mapping[str, Sequence[str]]:
        """The entries of `victims` that make sense for these claims; another pass after a pause does not search twice."""
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
        """What has to be allocated on the node, or why nothing can be; None for nothing."""
        special = None if need is None else need.on(node)
        if isinstance(special, Rejection):
            return special
        wanted = undecided if special is None else (*undecided, special.found)
        return self._allocator.demand(wanted, budget) if wanted else None

    async def _claims(self, pod: Pod) -> tuple[FoundClaim, ...] | Rejection:
        ledger = self._ledger
        end = self._clock.monotonic() + self._options.new_claim_wait_seconds
        while True:
            found = find_claims(ledger.pods.newest(pod), ledger)
            if not isinstance(found, Rejection) or found.code not in _SOON or self._clock.monotonic() >= end:
                return found
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _fits_without(self, demand: Demand, node: Node, uids: Sequence[str], budget: CallBudget) -> bool:
        gone = [holding for record in self._freed(uids) for holding in record.counted]
        usage = Reduced(self._ledger.claims.usage, gone)
        answer = self._allocator.search_in_call(demand, node, usage, budget, ("without", *uids))
        return not isinstance(answer, NoFit)

    def _freed(self, uids: Sequence[str]) -> list[ClaimRecord]:
        """Claims, deleted ones included, that would lose their last consumer with these pods."""
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
