"""The decision of a bind: which devices each claim of the pod gets on the node."""

from collections.abc import Sequence

from msgspec.structs import replace

from dra_extender.allocator.rules.held_devices import with_current_snapshot
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.scheduling.binding.conflicts import AllocationConflict, find_violation, pool_reader
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, with_subject
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.pod_claims import PodClaims, sort_claims, why_fully_reserved
from dra_extender.scheduling.evaluation.backoff import BackoffUsage, DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.holds.service import HoldService, with_new_share_ids
from dra_extender.scheduling.ports.errors import RetryableError

Decided = Sequence[tuple[FoundClaim, ClaimPlacement]]


class BindDecision:
    """Decides the placements of a pod's claims on the node of a bind: the held ones if they are still valid, else new ones.

    A placement that the check after the write would undo is not written at all.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, backoff: DeviceBackoff, holds: HoldService) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._backoff = backoff
        self._holds = holds

    def decide(
        self, pod: Pod, node_name: str, pod_claims: tuple[FoundClaim, ...], budget: CallBudget
    ) -> Decided | UnreadSpecs:
        """Return placements for the claims that have no allocation yet; end holds that are not valid any more."""
        ledger = self._ledger
        node = ledger.nodes.get(node_name)
        if node is None:
            raise RetryableError(f"node {node_name} is not known yet")
        asked = sort_claims(pod, pod_claims, ledger)
        rejection = (
            _unserved(asked, node, pod_claims)
            or why_fully_reserved(pod_claims, ledger)
            or asked.why_excluded(node, ledger)
        )
        if rejection is not None:
            raise RetryableError(with_subject(pod, rejection).text)
        undecided = (*asked.held, *asked.open)
        if not undecided:
            return ()
        placements = self._held_placements(undecided, node_name)
        if placements is not None:
            placements = self._with_current_snapshot(placements, node)
            if self._conflict(placements, node) is None:
                return placements
        demand = self._allocator.demand(undecided, budget)
        if isinstance(demand, UnreadSpecs):
            return demand
        for claim in asked.held:
            self._holds.release_claim(claim.uid)
        if isinstance(demand, Rejection):
            raise RetryableError(with_subject(pod, demand).text)
        in_backoff = self._backoff.devices_of(pod.uid)
        usage = BackoffUsage(ledger.usage(), in_backoff)
        answer = self._allocator.search_in_call(demand, node, usage, budget, in_backoff)
        if isinstance(answer, NoFit):
            text = with_subject(pod, answer.rejections[0]).text
            raise RetryableError(f"pod does not fit on node {node_name} any more: {text}")
        new_placements = zip(undecided, map(with_new_share_ids, answer.claims), strict=True)
        placed = self._with_current_snapshot(list(new_placements), node)
        conflict = self._conflict(placed, node)
        if conflict is not None:
            self._backoff.bind_undone(pod.uid, node_name)
            raise RetryableError(f"pod does not fit on node {node_name} any more: {conflict.kind} {conflict.what}")
        return placed

    def _held_placements(self, undecided: tuple[FoundClaim, ...], node: str) -> Decided | None:
        """Return the held placements, if each claim has one here and nothing that was read to decide it has changed since."""
        state = self._ledger.state_versions.version(node)
        placements = []
        for claim in undecided:
            hold = self._ledger.holds.get(claim.uid)
            if hold is None or node not in hold.placements or hold.versions.get(node) != state:
                return None
            placements.append((claim, hold.placements[node]))
        return placements

    def _with_current_snapshot(self, decided: Decided, node: Node) -> Decided:
        """Return the placements with snapshots of the present allocations, without holds of other pods."""
        if not any(holding.share_id for _, placement in decided for holding in placement.holdings):
            return decided
        usage, pool_of = self._ledger.claims.usage, pool_reader(self._ledger.slices, self._allocator.pools_of(node))

        def current(placement: ClaimPlacement) -> ClaimPlacement:
            holdings = (
                with_current_snapshot(holding, pool_of(holding.pool_id), usage.pool(holding.pool_id))
                for holding in placement.holdings
            )
            return replace(placement, holdings=tuple(holdings))

        return [(claim, current(placement)) for claim, placement in decided]

    def _conflict(self, decided: Decided, node: Node) -> AllocationConflict | None:
        """Return the conflict of these placements with allocations that would undo them after the write; None if there is none."""
        holdings = [holding for _, placement in decided for holding in placement.holdings]
        pool_of = pool_reader(self._ledger.slices, self._allocator.pools_of(node))
        return find_violation(holdings, self._ledger.claims.usage, pool_of, self._allocator.compatibility_check)


def _unserved(asked: PodClaims, node: Node, pod_claims: tuple[FoundClaim, ...]) -> Rejection | None:
    """Return why these claims do not serve the pod's extended resources on the node as it is now."""
    claim_need = None if asked.need is None else asked.need.on(node)
    if isinstance(claim_need, Rejection):
        return claim_need
    spec_digests = [claim.record.spec_digest for claim in pod_claims if claim.label == EXTENDED_LABEL]
    if spec_digests != ([] if claim_need is None else [claim_need.claim.record.spec_digest]):
        return Rejection(code=Code.EXTENDED_RESOURCE, detail=f"node {node.name} serves it differently now")
    return None
