"""Conditions on the claims of a pod before any search: room for one more consumer, ready devices, and nodes that they allow."""

from enum import StrEnum
from typing import NamedTuple

from dra_extender.allocator.explain.device_messages import node_allocatable_message
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.allocation_snapshot import allocated_at, results_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.metadata import seconds_of
from dra_extender.model.node import NODE_OPERATIONS_FEATURE, Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.claims.extended_need import ExtendedNeed, extended_need
from dra_extender.scheduling.claims.group_entries import why_crowded_out, why_full
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims, is_crowded


class Readiness(StrEnum):
    """The states of a claim whose devices have binding conditions."""

    READY = "ready"
    PENDING = "pending"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class DeviceProblem(NamedTuple):
    """A device that is not ready, and the conditions that it waits for; or the one that reports its failure, with its `message`."""

    device: DeviceId
    conditions: tuple[str, ...]
    message: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.device)


class ClaimReadiness(NamedTuple):
    """The readiness of a claim, the devices it is about (none when ready), and when its clock runs out (as `now`)."""

    readiness: Readiness
    problems: tuple[DeviceProblem, ...] = ()
    deadline: float = 0.0

    @property
    def text(self) -> str:
        if self.readiness is Readiness.FAILED:
            return "; ".join(
                f"device {problem.name} reports {problem.conditions[0]}{problem.message and f': {problem.message}'}"
                for problem in self.problems
            )
        return "; ".join(
            f"device {problem.name} waits for {', '.join(problem.conditions)}" for problem in self.problems
        )


def conditional_devices(claim: ClaimHead) -> tuple[DeviceResult, ...]:
    """Return the allocated devices for which a bind has to wait."""
    return tuple(result for result in results_of(claim) if result.binding_conditions)


def evaluate_conditions(claim: ClaimHead, *, now: float, waiting_since: float, timeout: float) -> ClaimReadiness:
    """Return the readiness of an allocated claim at `now` (seconds since the epoch).

    Ready: each device with binding conditions has a status entry in which all of them are "True"; of a share it is the entry of
    that share.  A failure condition that is "True" wins over everything.  The clock starts at the allocation timestamp, so that
    sharers and restarts do not start it anew; it starts at `waiting_since` if there is no timestamp, or one from the future,
    which is that of a machine whose clock is ahead.
    """
    devices = conditional_devices(claim)
    if not devices:
        return ClaimReadiness(Readiness.READY)
    failed, pending = [], []
    for result in devices:
        true = {
            condition.type: condition
            for status in claim.status.devices
            if (status.driver, status.pool, status.device, status.share_id) == (*result.device_id, result.share_id)
            for condition in status.conditions or ()
            if condition.status == "True"
        }
        failure = next((name for name in result.binding_failure_conditions or () if name in true), None)
        if failure is not None:
            failed.append(DeviceProblem(result.device_id, (failure,), true[failure].message or true[failure].reason))
        missing = tuple(name for name in result.binding_conditions or () if name not in true)
        if missing:
            pending.append(DeviceProblem(result.device_id, missing))
    allocated = seconds_of(allocated_at(claim))
    deadline = (waiting_since if allocated is None else min(waiting_since, allocated)) + timeout
    if failed:
        return ClaimReadiness(Readiness.FAILED, tuple(failed), deadline)
    if not pending:
        return ClaimReadiness(Readiness.READY, (), deadline)
    return ClaimReadiness(Readiness.TIMED_OUT if now > deadline else Readiness.PENDING, tuple(pending), deadline)


class ClaimsByState(NamedTuple):
    """A pod's claims: allocated (or being written), held for another pod too, and open."""

    allocated: tuple[FoundClaim, ...]
    held: tuple[FoundClaim, ...]
    open: tuple[FoundClaim, ...]


class PodClaims(NamedTuple):
    """What a pod asks for: its claims, and its extended resources as far as device classes may have to serve them (`need`)."""

    pod: Pod
    claims: ClaimsByState
    need: ExtendedNeed | None

    def adopting(self, existing: FoundClaim) -> "PodClaims":
        """Return the same for the pod if it uses this claim, which exists, for its extended resources."""
        claims = self.claims._replace(allocated=(*self.claims.allocated, existing))
        return PodClaims(self.pod, claims, None if self.need is None else self.need.met_by(existing))

    def extended_claim_on(self, node: Node, ledger: Ledger) -> FoundClaim | Rejection | None:
        """Return the claim for extended resources that the pod needs on this node; or why its claims exclude the node."""
        claim_need = None if self.need is None else self.need.on(node)
        if isinstance(claim_need, Rejection):
            return claim_need
        excluded = why_excluded(self.pod, node, self.claims, ledger)
        return excluded or (None if claim_need is None else claim_need.claim)


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


def find_pod_claims(pod: Pod, ledger: Ledger) -> PodClaims | Rejection:
    """Return what a pod without a node asks for, or why no node can be had with it: a claim is missing, or has no room."""
    claims = find_claims(pod, ledger)
    if isinstance(claims, Rejection):
        return claims
    rejection = why_fully_reserved(claims, ledger)
    return rejection or PodClaims(pod, sort_claims(claims, ledger), extended_need(pod, ledger))


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


def why_not_ready(
    claims: tuple[FoundClaim, ...], pod: Pod, ledger: Ledger, now: float, timeout: float
) -> Rejection | None:
    """Return why an allocated claim is of no use: its devices failed or timed out, and other consumers keep it.

    A claim that is reserved only for the pod, or for its PodGroup without a bound member, is no reason: the bind releases it.
    """
    for claim in claims:
        head, consumer = claim.record.claim, claim.consumer
        if head.status.allocation is None:
            continue
        is_kept = any(
            reservation.uid != consumer.uid and not is_guard_reservation(reservation)
            for reservation in head.status.reserved_for
        )
        if is_group(consumer) and not is_kept:
            is_kept = ledger.pods.has_running_member(pod.namespace, consumer.name, excluding=pod.uid)
        state = evaluate_conditions(head, now=now, waiting_since=now, timeout=timeout) if is_kept else None
        if state is not None and state.readiness in (Readiness.FAILED, Readiness.TIMED_OUT):
            return Rejection(code=Code.CLAIM_NOT_READY, claim=claim.label, detail=state.text)
    return None


def why_excluded(pod: Pod, node: Node, claims: ClaimsByState, ledger: Ledger) -> Rejection | None:
    """Return why the allocated and held claims exclude this node for the pod; None if they allow it."""
    for claim in claims.allocated:
        refusal = why_unusable_on(node, claim, ledger) or why_crowded_out(claim, pod, node, ledger)
        if refusal is not None:
            return refusal
    for claim in claims.held:
        hold = ledger.holds.get(claim.uid)
        if hold is not None and node.name not in hold.placements:
            return Rejection(code=Code.CLAIM_HELD_ELSEWHERE, claim=claim.label)
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
