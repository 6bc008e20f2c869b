"""What a pod asks for: its claims by their state and its extended resources, and what these exclude before any search."""

from typing import NamedTuple

from dra_extender.allocator.explain.device_messages import node_allocatable_message
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import NODE_OPERATIONS_FEATURE, Node
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import ExtendedNeed, extended_need
from dra_extender.scheduling.claims.group_entries import why_crowded_out, why_full
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims, is_crowded


class PodClaims(NamedTuple):
    """What a pod asks for: its claims, and its extended resources as far as device classes may have to serve them (`need`).

    The claims are allocated (or being written), held for another pod too, or open.
    """

    pod: Pod
    allocated: tuple[FoundClaim, ...]
    held: tuple[FoundClaim, ...]
    open: tuple[FoundClaim, ...]
    need: ExtendedNeed | None

    def adopting(self, existing: FoundClaim) -> "PodClaims":
        """Return the same for the pod if it uses this claim, which exists, for its extended resources."""
        need = None if self.need is None else self.need.met_by(existing)
        return self._replace(allocated=(*self.allocated, existing), need=need)

    def extended_claim_on(self, node: Node, ledger: Ledger) -> FoundClaim | Rejection | None:
        """Return the claim for extended resources that the pod needs on this node; or why its claims exclude the node."""
        claim_need = None if self.need is None else self.need.on(node)
        if isinstance(claim_need, Rejection):
            return claim_need
        return self.why_excluded(node, ledger) or (None if claim_need is None else claim_need.claim)

    def why_excluded(self, node: Node, ledger: Ledger) -> Rejection | None:
        """Return why the allocated and held claims exclude this node for the pod; None if they allow it."""
        for claim in self.allocated:
            refusal = why_unusable_on(node, claim, ledger) or why_crowded_out(claim, self.pod, node, ledger)
            if refusal is not None:
                return refusal
        for claim in self.held:
            hold = ledger.holds.get(claim.uid)
            if hold is not None and node.name not in hold.placements:
                return Rejection(code=Code.CLAIM_HELD_ELSEWHERE, claim=claim.label)
        return None


def find_pod_claims(pod: Pod, ledger: Ledger) -> PodClaims | Rejection:
    """Return what a pod without a node asks for, or why no node can be had with it: a claim is missing, or has no room."""
    claims = find_claims(pod, ledger)
    if isinstance(claims, Rejection):
        return claims
    return why_fully_reserved(claims, ledger) or sort_claims(pod, claims, ledger)


def sort_claims(pod: Pod, claims: tuple[FoundClaim, ...], ledger: Ledger) -> PodClaims:
    """Return these claims of the pod by their state, with what it needs of extended resources."""
    allocated, held, still_open = [], [], []
    for claim in claims:
        if claim.record.claim.status.allocation is not None or claim.record.pending is not None:
            allocated.append(claim)
        elif ledger.holds.get(claim.uid) is not None:
            held.append(claim)
        else:
            still_open.append(claim)
    return PodClaims(pod, tuple(allocated), tuple(held), tuple(still_open), extended_need(pod, ledger))


def why_fully_reserved(claims: tuple[FoundClaim, ...], ledger: Ledger) -> Rejection | None:
    """Return why a claim cannot take one more consumer, whatever the node."""
    for claim in claims:
        head = claim.record.claim
        if not head.status.reserved_for or claim.reserved:
            continue
        if ledger.group_entry_trials.free_entries(head, claim.consumer.uid) > 0:
            continue
        has_group_entry = claim.group is not None and head.reserved_by(claim.group.uid)
        if not (has_group_entry and is_crowded(claim, ledger)):
            return Rejection(code=Code.CLAIM_FULLY_RESERVED, claim=claim.label, detail=why_full(claim, ledger))
    return None


def why_unusable_on(node: Node, claim: FoundClaim, ledger: Ledger) -> Rejection | None:
    """Return why the allocation of a claim, stored or pending, cannot be used on this node; None if it can."""
    record = claim.record
    allocation = record.claim.status.allocation
    if allocation is None and record.pending is not None:
        allocation = record.pending.allocation
    if allocation is None:
        return None
    try:
        if not allocation.usable_on(node.name, node.labels):
            return Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=claim.label)
    except ModelError as problem:
        return Rejection(code=Code.CLAIM_UNREADABLE, claim=claim.label, detail=str(problem))
    skipping = None if node.skips_node_operations else allocation.skipping_device
    if skipping is not None:
        detail = f"{skipping.device} has skipNodeOperations, and the node does not declare {NODE_OPERATIONS_FEATURE}"
        return Rejection(code=Code.CLAIM_NODE_OPERATIONS, claim=claim.label, detail=detail)
    for result in allocation.devices.results:
        device = ledger.slices.node_allocatable((result.driver, result.pool), result.device)
        if device is not None:
            detail = node_allocatable_message(device)
            return Rejection(code=Code.NODE_ALLOCATABLE, claim=claim.label, request=result.request, detail=detail)
    return None
