"""Conditions on the claims of a pod before any search: room for one more consumer, ready devices, and nodes that they allow."""

from typing import NamedTuple

from dra_extender.allocator.explain.device_messages import node_allocatable_message
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import NODE_OPERATIONS_FEATURE, Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.scheduling.claims.conditions import Readiness, evaluate_conditions
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims, is_crowded
from dra_extender.scheduling.claims.pod_group_reservations import crowded_out, why_full


class ClaimsByState(NamedTuple):
    """A pod's claims: allocated (or being written), held for another pod too, and open."""

    allocated: tuple[FoundClaim, ...]
    held: tuple[FoundClaim, ...]
    open: tuple[FoundClaim, ...]

    def with_allocated(self, claim: FoundClaim) -> "ClaimsByState":
        return self._replace(allocated=(*self.allocated, claim))


def sort_claims(claims: tuple[FoundClaim, ...], ledger: Ledger) -> ClaimsByState:
    allocated, held, still_open = [], [], []
    for claim in claims:
        if claim.record.claim.status.allocation is not None or claim.record.pending is not None:
            allocated.append(claim)
        elif ledger.holds.get(claim.uid) is not None:
            held.append(claim)
        else:
            still_open.append(claim)
    return ClaimsByState(tuple(allocated), tuple(held), tuple(still_open))


def usable_claims(pod: Pod, ledger: Ledger) -> ClaimsByState | Rejection:
    """Return the claims of a pod that has no node yet, or why no node can be had with them: one is missing, or has no room."""
    claims = find_claims(pod, ledger)
    if isinstance(claims, Rejection):
        return claims
    return fully_reserved(claims, ledger) or sort_claims(claims, ledger)


def fully_reserved(claims: tuple[FoundClaim, ...], ledger: Ledger) -> Rejection | None:
    """Return why a claim cannot take one more consumer, whatever the node."""
    for claim in claims:
        head = claim.record.claim
        if not head.status.reserved_for or claim.reserved:
            continue
        if ledger.reservation_trials.free_entries(head, claim.consumer.uid) > 0:
            continue
        if not (claim.group is not None and is_crowded(claim, ledger) and head.reserved_by(claim.group.uid)):
            return Rejection(code=Code.CLAIM_FULLY_RESERVED, claim=claim.label, detail=why_full(claim, ledger))
    return None


def not_ready(claims: tuple[FoundClaim, ...], pod: Pod, ledger: Ledger, now: float, timeout: float) -> Rejection | None:
    """Return why an allocated claim is of no use: its devices failed or timed out, and other consumers keep it.

    A claim that is reserved for the pod alone, or for its PodGroup without a bound member, is no reason: the bind releases it.
    """
    for claim in claims:
        head, consumer = claim.record.claim, claim.consumer
        if head.status.allocation is None:
            continue
        others = (other for other in head.status.reserved_for if not is_guard_reservation(other))
        if all(other.uid == consumer.uid for other in others) and not (
            is_group(consumer) and ledger.pods.has_running_member(pod.namespace, consumer.name, besides=pod.uid)
        ):
            continue
        verdict = evaluate_conditions(head, now=now, waiting_since=now, timeout=timeout)
        if verdict.readiness in (Readiness.FAILED, Readiness.TIMED_OUT):
            return Rejection(code=Code.CLAIM_NOT_READY, claim=claim.label, detail=verdict.text)
    return None


def excluded(pod: Pod, node: Node, claims: ClaimsByState, ledger: Ledger) -> Rejection | None:
    """Return why the allocated and held claims exclude this node for the pod; None if they allow it."""
    for claim in claims.allocated:
        refusal = useless_on(node, claim, ledger) or crowded_out(claim, pod, node, ledger)
        if refusal is not None:
            return refusal
    for claim in claims.held:
        hold = ledger.holds.get(claim.uid)
        if hold is not None and node.name not in hold.placements:
            return Rejection(code=Code.CLAIM_HELD_ELSEWHERE, claim=claim.label)
    return None


def useless_on(node: Node, claim: FoundClaim, ledger: Ledger) -> Rejection | None:
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
