"""The decision of a bind: the held placements if they are still valid, else new ones."""

from collections.abc import Mapping, Sequence

import msgspec

from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.rules.held_consumption import with_current_snapshot
from dra_extender.allocator.rules.neighbours import IsTrue
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import NoFit
from dra_extender.ledger.state.claim_record import SpecNotKeptError
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.scheduling.binding.conflicts import AllocationConflict, first_violation, pools_of
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.preconditions import ClaimsByState, excluded, fully_reserved, sort_claims
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.evaluation.backoff import BackoffUsage, DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.extended_resources.need import EXTENDED_LABEL, extended_need, named
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import SHARE_USED_UP, RetryableError
from dra_extender.scheduling.search_time.time_slices import CallBudget

_Decided = Sequence[tuple[FoundClaim, ClaimPlacement]]


class BindDecision:
    """Decides the placements of a pod's claims on the node of a bind: the held ones if they are still valid, else new ones.

    A placement that the check after the write would undo is not written at all.
    """

    def __init__(
        self,
        context: SchedulingContext,
        allocator: NodeAllocator,
        backoff: DeviceBackoff,
        short_claims: ShortClaims,
        holds: HoldService,
    ) -> None:
        self._ledger = context.ledger
        self._short_claims = short_claims
        self._backoff = backoff
        self._allocator = allocator
        self._slices = short_claims.slices
        self._holds = holds
        self._budget_seconds = context.options.filter_budget_seconds

    def decide(
        self, pod: Pod, node_name: str, found: tuple[FoundClaim, ...], budget: CallBudget
    ) -> Sequence[tuple[FoundClaim, ClaimPlacement]]:
        """Placements for the claims that have no allocation yet.  Holds that are not valid any more end.

        Raises:
            RetryableError: the pod cannot have its devices on this node (any more).
            SearchPaused: the slice of the budget is over; another call with equal arguments goes on.
            SpecNotKeptError: claims have to be read before, see `read`.
        """
        ledger = self._ledger
        node = ledger.nodes.get(node_name)
        if node is None:
            raise RetryableError(f"node {node_name} is not known yet")
        claims = sort_claims(found, ledger)
        rejection = (
            self._unserved(pod, node, found) or fully_reserved(found, ledger) or excluded(pod, node, claims, ledger)
        )
        if rejection is not None:
            raise RetryableError(named(pod, rejection).text)
        undecided = (*claims.held, *claims.open)
        if not undecided:
            return ()
        held = self._held_placements(undecided, node_name)
        if held is not None:
            held = self._with_current_snapshot(held, node_name)
            if self._conflict(held, node_name) is None:
                return held
        found_anew = self._with_current_snapshot(self._search(pod, undecided, claims, node, budget), node_name)
        conflict = self._conflict(found_anew, node_name)
        if conflict is not None:
            self._backoff.nodes.undone(pod.uid, node_name)
            raise RetryableError(f"pod does not fit on node {node_name} any more: {conflict.kind} {conflict.what}")
        return found_anew

    @property
    def is_compatible(self) -> IsTrue | None:
        """See `NodeAllocator`."""
        return self._allocator.compatibility_check

    def pools_of(self, node_name: str) -> NodePools | None:
        """The pools of this node as searches see them; None if that is not known."""
        node = self._ledger.nodes.get(node_name)
        return None if node is None else self._allocator.pools_of(node)

    def begin(self, pod: Pod) -> CallBudget:
        """The budget of a decision about this pod."""
        return self._slices.begin(pod, self._budget_seconds)

    def end(self, pod: Pod, budget: CallBudget) -> None:
        """The decision is made."""
        self._slices.end(pod, budget)

    async def pause(self, pod: Pod, budget: CallBudget) -> None:
        """Let everything else go on before the decision does.

        Raises:
            RetryableError: the pod's namespace has used up its share of time.
        """
        if not await self._slices.next(pod, budget):
            raise RetryableError(f"pod {pod.key}: {SHARE_USED_UP}")

    async def read(self, pod: Pod, missing: SpecNotKeptError, budget: CallBudget) -> Mapping[str, bytes]:
        """Read claims without which no decision about the pod can be made; returns the live objects by UID.

        Raises:
            RetryableError: one of them could not be read.
        """
        return await self._short_claims.read_for(pod, missing, budget)

    def _unserved(self, pod: Pod, node: Node, found: tuple[FoundClaim, ...]) -> Rejection | None:
        """Why these claims do not serve the pod's extended resources on the node as it is now."""
        need = extended_need(pod, self._ledger)
        special = None if need is None else need.on(node)
        if isinstance(special, Rejection):
            return special
        asked = [each.record.spec_digest for each in found if each.label == EXTENDED_LABEL]
        if asked != ([] if special is None else [special.found.record.spec_digest]):
            return Rejection(code=Code.EXTENDED_RESOURCE, detail=f"node {node.name} serves it differently now")
        return None

    def _with_current_snapshot(self, decided: _Decided, node_name: str) -> _Decided:
        """The same with snapshots of what is allocated now, without what is only held for other pods."""
        if not any(each.share_id for _, placement in decided for each in placement.holdings):
            return decided
        usage, pool_of = self._ledger.claims.usage, pools_of(self._ledger.slices, self.pools_of(node_name))
        return [
            (
                claim,
                msgspec.structs.replace(
                    placement,
                    holdings=tuple(
                        with_current_snapshot(each, pool_of(each.pool_id), usage.pool(each.pool_id))
                        for each in placement.holdings
                    ),
                ),
            )
            for claim, placement in decided
        ]

    def _conflict(self, decided: _Decided, node_name: str) -> AllocationConflict | None:
        """The conflict of these placements with what is allocated, for which they would be undone after the write."""
        holdings = [holding for _, placement in decided for holding in placement.holdings]
        pool_of = pools_of(self._ledger.slices, self.pools_of(node_name))
        return first_violation(holdings, self._ledger.claims.usage, pool_of, self._allocator.compatibility_check)

    def _held_placements(
        self, undecided: tuple[FoundClaim, ...], node: str
    ) -> Sequence[tuple[FoundClaim, ClaimPlacement]] | None:
        """The held placements, if each claim has one here and nothing that was read to decide it has changed since."""
        state = self._ledger.state.of(node)
        placements = []
        for claim in undecided:
            hold = self._ledger.holds.get(claim.record.claim.metadata.uid)
            if hold is None or node not in hold.placements or hold.versions.get(node) != state:
                return None
            placements.append((claim, hold.placements[node]))
        return placements

    def _search(
        self, pod: Pod, undecided: tuple[FoundClaim, ...], claims: ClaimsByState, node: Node, budget: CallBudget
    ) -> Sequence[tuple[FoundClaim, ClaimPlacement]]:
        demand = self._allocator.demand(undecided, budget)
        for claim in claims.held:
            self._holds.release_claim(claim.record.claim.metadata.uid)
        if isinstance(demand, Rejection):
            raise RetryableError(named(pod, demand).text)
        usage = BackoffUsage(self._ledger.usage(), self._backoff.of(pod.uid))
        answer = self._allocator.search_in_call(demand, node, usage, budget, self._backoff.of(pod.uid))
        if isinstance(answer, NoFit):
            raise RetryableError(
                f"pod does not fit on node {node.name} any more: {named(pod, answer.rejections[0]).text}"
            )
        return list(zip(undecided, map(self._holds.with_own_shares, answer.claims), strict=True))
