"""The preempt verb: on which of the nodes that kube-scheduler proposes the eviction frees the devices that a pod needs."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.usage import Reduced
from dra_extender.model.pod import Pod
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.claims.live_reads import SpecReader, UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.pod_claims import sort_claims
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options

_LOOK_AGAIN_SECONDS: Final = 0.02
_CREATED_SOON: Final = frozenset({Code.CLAIM_NOT_CREATED, Code.CLAIM_MISSING})


@dataclass(eq=False)
class Preempt:
    """Drops the nodes on which a pod would not get its devices even after the eviction.

    kube-scheduler proposes victims for other reasons than devices, and evicts them without a further filter call.  On a node that
    we know to be infeasible they would be evicted without result.
    """

    ledger: Ledger
    allocator: NodeAllocator
    spec_reader: SpecReader
    clock: Clock
    options: Options

    async def keep_feasible(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Return the entries of `victims` (node -> pod UIDs) on whose nodes the pod fits without the victims, unchanged.

        Waits for a claim that is just being created from its template: kube-scheduler calls once, and the requeue does not wake a
        pod that lacks CPU only.
        """
        if not pod.needs_devices:
            return victims
        end = self.clock.monotonic() + self.options.new_claim_wait_seconds
        pod_claims = find_claims(self.ledger.pods.newest(pod), self.ledger)
        while isinstance(pod_claims, Rejection):
            if pod_claims.code not in _CREATED_SOON or self.clock.monotonic() >= end:
                return {}
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            pod_claims = find_claims(self.ledger.pods.newest(pod), self.ledger)
        time_slices = self.spec_reader.time_slices
        budget = time_slices.begin(pod, self.options.filter_budget_seconds)
        while True:
            result = within_slice(partial(self._evaluate, pod, pod_claims, victims, budget))
            if not isinstance(result, (Awaited, UnreadSpecs)):
                time_slices.end(pod, budget)
                return result
            await self.spec_reader.wait_for(pod, result, budget)

    def _evaluate(
        self, pod: Pod, pod_claims: tuple[FoundClaim, ...], victims: Mapping[str, Sequence[str]], budget: CallBudget
    ) -> Mapping[str, Sequence[str]] | UnreadSpecs:
        """Return the entries of `victims` whose nodes are feasible for these claims; a pass after a pause repeats no search."""
        ledger = self.ledger
        asked = sort_claims(pod, pod_claims, ledger)
        undecided = (*asked.held, *asked.open)
        feasible_nodes: dict[str, Sequence[str]] = {}
        for name, uids in victims.items():
            node = ledger.nodes.get(name)
            extended = None if node is None else asked.extended_claim_on(node, ledger)
            if node is None or isinstance(extended, Rejection):
                continue
            open_claims = undecided if extended is None else (*undecided, extended)
            demand = self.allocator.demand(open_claims, budget) if open_claims else None
            if isinstance(demand, UnreadSpecs):
                return demand
            if isinstance(demand, Rejection):
                continue
            if demand is not None:
                freed = [holding for record in self._claims_freed_by(uids) for holding in record.counted]
                usage = Reduced(ledger.claims.usage, freed)
                answer = self.allocator.search_in_call(demand, node, usage, budget, ("without", *uids))
                if isinstance(answer, NoFit):
                    continue
            feasible_nodes[name] = uids
        return feasible_nodes

    def _claims_freed_by(self, uids: Sequence[str]) -> Sequence[ClaimRecord]:
        """Return the claims, deleted ones included, whose consumers are all among these pods."""
        claims, victims = self.ledger.claims, frozenset(uids)
        orphans = {orphan.record.claim.metadata.uid: orphan for uid in uids for orphan in claims.orphans.of_pod(uid)}
        return [
            *claims.used_only_by(uids),
            *(orphan.record for orphan in orphans.values() if orphan.pods <= victims),
        ]
