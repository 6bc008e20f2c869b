"""Claims that nobody uses and that stay all the same, finalizers that are left, and devices that never became ready."""

from collections.abc import Iterator
from typing import Final

from dra_extender.audit.findings import AuditFinding, Check, finding
from dra_extender.ledger.index.guards import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.metadata import OwnerReference, seconds_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import GROUP, is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.scheduling.claims.conditions import Readiness, evaluate_conditions

STUCK_SECONDS: Final = 300.0
"""A claim that is deleted and that no pod uses is gone after so many seconds, or something keeps it."""
_OVERDUE: Final = (Readiness.FAILED, Readiness.TIMED_OUT)


def is_live(ledger: Ledger, namespace: str, consumer: ConsumerReference) -> bool:
    """Whether a consumer of a claim of this namespace exists and is not over; true of one whose kind is not known.

    A guard claim uses nothing.
    """
    if is_group(consumer):
        if not ledger.pod_groups.served:
            return True
        group = ledger.pod_groups.get(namespace, consumer.name)
        return group is not None and group.metadata.uid == consumer.uid
    if not consumer.is_pod:
        return not is_guard_reservation(consumer)
    pod = ledger.pods.by_uid(consumer.uid)
    return pod is not None and not pod.finished


def unused_claim(record: ClaimRecord, ledger: Ledger, now: float) -> Iterator[AuditFinding]:
    """The claim outlives its owner, its consumers or its nodes, or has a finalizer that nothing removes."""
    claim = record.claim
    about = f"claim {'/'.join(claim.metadata.key)}"
    allocation, reserved = claim.status.allocation, claim.status.reserved_for
    owner = claim.metadata.controller
    if owner is not None and not claim.extended_for and not _owner_exists(owner, claim, ledger):
        yield finding(Check.ORPHANED_CLAIM, about, f"its owner, {owner.kind} {owner.name}, is gone")
    deleted = seconds_of(claim.metadata.deletion_timestamp)
    used = any(is_live(ledger, claim.metadata.namespace, each) for each in reserved)
    if deleted is not None and now - deleted > STUCK_SECONDS and not used:
        kept = ", ".join(claim.metadata.finalizers) or "none that is known"
        text = f"is being deleted since {claim.metadata.deletion_timestamp}, and no pod uses it; finalizers: {kept}"
        yield finding(Check.STUCK_CLAIM, about, text)
    if allocation is not None and not is_reachable(allocation, ledger):
        names = ", ".join(sorted(named_nodes(allocation) or ())) or "none"
        yield finding(Check.STUCK_CLAIM, about, f"is allocated for nodes that do not exist: {names}")
    if allocation is None and record.pending is None and FINALIZER in claim.metadata.finalizers and not reserved:
        yield finding(Check.FINALIZER, about, f"has finalizer {FINALIZER} and no allocation")


def overdue_conditions(record: ClaimRecord, ledger: Ledger, now: float, timeout: float) -> AuditFinding | None:
    """Devices of an allocated claim report a failure, or are not ready after `timeout` seconds and no pod is bound with them.

    Once a pod is bound no scheduler looks at the conditions, and the driver may report other ones.
    """
    verdict = evaluate_conditions(record.claim, now=now, waiting_since=now, timeout=timeout)
    if verdict.readiness not in _OVERDUE:
        return None
    limit = ""
    if verdict.readiness is Readiness.TIMED_OUT:
        if any(pod is not None and pod.node_name for pod in _pods_of(record, ledger)):
            return None
        limit = f"; the limit of {timeout:g} s has passed"
    about = f"claim {'/'.join(record.claim.metadata.key)}"
    return finding(Check.CONDITIONS_OVERDUE, about, verdict.text + limit)


def _pods_of(record: ClaimRecord, ledger: Ledger) -> Iterator[Pod | None]:
    """The pods for which a claim is reserved, and the members of its PodGroups; None for one that is gone."""
    for consumer in record.claim.status.reserved_for:
        if is_group(consumer):
            yield from ledger.pods.members(record.claim.metadata.namespace, consumer.name)
        else:
            yield ledger.pods.by_uid(consumer.uid)


def _owner_exists(owner: OwnerReference, claim: ClaimHead, ledger: Ledger) -> bool:
    """Whether the controller of a claim exists; true of one whose kind is not known."""
    if owner.kind == "Pod" and not owner.group:
        return ledger.pods.by_uid(owner.uid) is not None
    if owner.kind == "PodGroup" and owner.group == GROUP and ledger.pod_groups.served:
        group = ledger.pod_groups.get(claim.metadata.namespace, owner.name)
        return group is not None and group.metadata.uid == owner.uid
    return True


def is_reachable(allocation: AllocationResult, ledger: Ledger) -> bool:
    """Whether one of the nodes exists that the allocation names; true of one that names none."""
    names = named_nodes(allocation)
    return names is None or any(name in ledger.nodes for name in names)
