"""Whether claims, and the pods that use them, are as kube-controller-manager and kubelets need them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from dra_extender.inspection.audit.findings import AuditFinding, Check, Invariant, InvariantViolation, finding
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.guard_index import is_guard_reservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import GROUP_RESERVATIONS_FEATURE, GroupEntryPolicy
from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.allocation_snapshot import allocated_at, is_snapshotted
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.metadata import OwnerReference, seconds_of
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import GROUP, POD_GROUPS, is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, subject_of
from dra_extender.scheduling.claims.readiness import Readiness, evaluate_conditions

_POD_GROUP: Final = "PodGroup"
_UNSUPPORTED: Final = f"which only a kubelet with {GROUP_RESERVATIONS_FEATURE} accepts"


FindClaim = Callable[[tuple[str, str]], ClaimHead | None]
"""Returns the claim of this namespace and name, None if there is none."""


class AdmissionFailure(NamedTuple):
    """What the kubelet finds wrong with one of the pod's claims: `claim NAME` by the pod's name for it, and a sentence.

    `missing`: the claim does not exist.
    """

    subject: str
    why: str
    missing: bool = False


class UsedClaim(NamedTuple):
    """A claim that a pod uses: `claim NAME` by the pod's name for it, its own name, and whether it must be made for the pod."""

    subject: str
    name: str
    generated: bool


def used_claims(pod: Pod) -> Iterator[UsedClaim | AdmissionFailure]:
    """Yield the claims that the kubelet looks for, in its order; the one for extended resources comes last.

    A template for which the status says that no claim is needed has none.
    """
    recorded = {status.name: status.resource_claim_name for status in pod.claim_statuses}
    for entry in pod.claims:
        if entry.resource_claim_name:
            yield UsedClaim(f"claim {entry.name}", entry.resource_claim_name, generated=False)
        elif not (entry.resource_claim_template_name or entry.pod_group_resource_claim):
            yield AdmissionFailure(f"claim {entry.name}", "the entry names neither a claim nor a template")
        elif entry.name not in recorded:
            yield AdmissionFailure(f"claim {entry.name}", "no claim is recorded for it in status.resourceClaimStatuses")
        elif name := recorded[entry.name]:
            yield UsedClaim(f"claim {entry.name}", name, generated=bool(entry.resource_claim_template_name))
    if pod.extended_claim:
        yield UsedClaim(subject_of(pod, EXTENDED_LABEL), pod.extended_claim, generated=False)


def admission_failures(
    pod: Pod, find_claim: FindClaim, kubelets: GroupEntryPolicy, node: Node | None
) -> Iterator[AdmissionFailure]:
    """Yield why the kubelet would not start the bound pod, by claim.

    `kubelets`: whether they accept a claim of the pod's PodGroup, or a reservation for the group, as the pod's own (gate
    DRAWorkloadResourceClaims).  Where that is unknown, a claim that was generated for the group counts as accepted, because it
    could be reserved in no other way; a claim by name could have been reserved for the pod.
    """
    for use in used_claims(pod):
        if isinstance(use, AdmissionFailure):
            yield use
            continue
        claim = find_claim((pod.namespace, use.name))
        why = _refusal(pod, use, claim, kubelets, node)
        if why:
            yield AdmissionFailure(use.subject, f"claim {use.name} {why}", missing=claim is None)


def _refusal(pod: Pod, use: UsedClaim, claim: ClaimHead | None, kubelets: GroupEntryPolicy, node: Node | None) -> str:
    if claim is None:
        return "does not exist"
    owner, group = claim.metadata.controller, pod.pod_group
    is_own = owner is not None and owner.uid == pod.uid
    is_groups = owner is not None and (owner.kind, owner.group, owner.name) == (_POD_GROUP, GROUP, group)
    # Where it is unknown whether the reservation of its PodGroup suffices, a pod that has started proves it.
    by_name = kubelets.applies_on(node) or (kubelets is GroupEntryPolicy.AUTO and pod.has_started)
    accepted = kubelets.may_apply if is_groups else by_name
    if use.generated and not is_groups and not is_own:
        return "was generated for another owner"
    if use.generated and is_groups and not accepted:
        return f"was generated for its PodGroup, {_UNSUPPORTED}"
    if not claim.reserved_by(pod.uid):
        # The name counts, since a pod does not know the UID of its group.
        if group is None or not any(
            is_group(consumer) and consumer.name == group for consumer in claim.status.reserved_for
        ):
            return "is not reserved for it"
        if not accepted:
            return f"is reserved only for its PodGroup, {_UNSUPPORTED}"
    return "is not allocated" if claim.status.allocation is None else ""


_RUNNING: Final = "Running"
_CONSUMERS: Final = {("", "pods"), (GROUP, POD_GROUPS)}
"""API group and resource of what kube-controller-manager takes for a consumer; with anything else it leaves the claim alone."""

IsLive = Callable[[ConsumerReference], bool]
"""Whether a consumer exists and is not over; true of one whose kind is not known."""


def claim_violations(claim: ClaimHead, is_live: IsLive) -> Iterator[InvariantViolation]:
    """Find that an allocated claim lacks the finalizer or a consumer, or that a consumer is no pod or PodGroup that lives."""
    if claim.status.allocation is None:
        return
    name = claim.metadata.full_name
    if FINALIZER not in claim.metadata.finalizers:
        yield InvariantViolation(rule=Invariant.NO_FINALIZER, about=name, detail="it would never be cleaned up")
    if not claim.status.reserved_for:
        yield InvariantViolation(rule=Invariant.NO_CONSUMER, about=name, detail="reservedFor is empty")
    for consumer in claim.status.reserved_for:
        if is_guard_reservation(consumer):
            continue
        if (consumer.api_group, consumer.resource) not in _CONSUMERS:
            detail = f"{consumer.resource}.{consumer.api_group or 'core'} {consumer.name}"
            yield InvariantViolation(rule=Invariant.FOREIGN_CONSUMER, about=name, detail=detail)
        elif not is_live(consumer):
            detail = f"{consumer.resource.removesuffix('s')} {consumer.name} is gone or over"
            yield InvariantViolation(rule=Invariant.NO_SUCH_CONSUMER, about=name, detail=detail)


def pod_violations(
    pod: Pod, find_claim: FindClaim, node: Node | None, kubelets: GroupEntryPolicy
) -> Iterator[InvariantViolation]:
    """Find why the kubelet of a bound pod would not start it, and what it lacks on its node (None if that is not known)."""
    if not pod.node_name or pod.finished:
        return
    for failure in admission_failures(pod, find_claim, kubelets, node):
        rule = Invariant.ORPHANED if failure.missing and pod.phase == _RUNNING else Invariant.KUBELET
        yield InvariantViolation(rule=rule, about=pod.key, detail=f"{failure.subject}: {failure.why}")
    for what in _lacking_on_node(pod, find_claim, node):
        yield InvariantViolation(rule=Invariant.AWAY, about=pod.key, detail=what)


def extended_claim_violation(claim: ClaimHead, pod: Pod | None, *, is_first: bool) -> InvariantViolation | None:
    """Find that nobody uses a claim for extended resources: its pod is gone, is bound with another one, or has an earlier one.

    `pod` is the pod for which it was made, None if that is gone; `is_first`: no other claim for it comes before this one.
    """
    if pod is not None and pod.finished:
        return None
    if pod is None:
        why = "its pod is gone"
    elif pod.node_name and pod.extended_claim != claim.metadata.name:
        why = f"the status of pod {pod.key} names another claim, or none"
    elif not pod.node_name and not is_first:
        why = f"pod {pod.key} has another"
    else:
        return None
    return InvariantViolation(rule=Invariant.UNUSED_EXTENDED_CLAIM, about=claim.metadata.full_name, detail=why)


def _lacking_on_node(pod: Pod, find_claim: FindClaim, node: Node | None) -> Iterable[str]:
    """Yield what the pod lacks on its node.  The kubelet checks neither where devices can be used nor what serves a resource."""
    labels = {} if node is None else node.labels
    for use in (use for use in used_claims(pod) if isinstance(use, UsedClaim)):
        claim = find_claim((pod.namespace, use.name))
        allocation = None if claim is None else claim.status.allocation
        try:
            if allocation is not None and not allocation.usable_on(pod.node_name, labels):
                yield f"{use.subject}: is not usable on node {pod.node_name}"
        except ModelError as problem:
            yield f"{use.subject}: {problem}"
    if node is not None and not pod.extended_claim:
        for name in pod.extended_resources:
            if name not in node.extended_resources:
                yield f"{name}: node {node.name} does not list it, and the pod's status names no claim"


STUCK_SECONDS: Final = 300.0
"""A claim that is deleted and that no pod uses is gone after so many seconds, or something keeps it."""
_OVERDUE: Final = (Readiness.FAILED, Readiness.TIMED_OUT)


def is_live(ledger: Ledger, namespace: str, consumer: ConsumerReference) -> bool:
    """Return whether a consumer of a claim of this namespace exists and is not over; true of one whose kind is not known.

    A guard claim uses nothing.
    """
    if is_group(consumer):
        return _group_exists(ledger, namespace, consumer.name, consumer.uid)
    if not consumer.is_pod:
        return not is_guard_reservation(consumer)
    pod = ledger.pods.by_uid(consumer.uid)
    return pod is not None and not pod.finished


def unused_claim(record: ClaimRecord, ledger: Ledger, now: float) -> Iterator[AuditFinding]:
    """Find that the claim outlives its owner, consumers or nodes, or has a finalizer that nothing removes."""
    claim = record.claim
    about = f"claim {claim.metadata.full_name}"
    allocation, reserved = claim.status.allocation, claim.status.reserved_for
    owner = claim.metadata.controller
    if owner is not None and not claim.extended_for and not _owner_exists(owner, claim, ledger):
        yield finding(Check.ORPHANED_CLAIM, about, f"its owner, {owner.kind} {owner.name}, is gone")
    deleted = seconds_of(claim.metadata.deletion_timestamp)
    used = any(is_live(ledger, claim.metadata.namespace, consumer) for consumer in reserved)
    if deleted is not None and now - deleted > STUCK_SECONDS and not used:
        finalizers = ", ".join(claim.metadata.finalizers) or "none that is known"
        text = (
            f"is being deleted since {claim.metadata.deletion_timestamp}, and no pod uses it; finalizers: {finalizers}"
        )
        yield finding(Check.STUCK_CLAIM, about, text)
    if allocation is not None and not is_reachable(allocation, ledger):
        names = ", ".join(sorted(named_nodes(allocation) or ())) or "none"
        yield finding(Check.STUCK_CLAIM, about, f"is allocated for nodes that do not exist: {names}")
    if allocation is None and record.pending is None and FINALIZER in claim.metadata.finalizers and not reserved:
        yield finding(Check.FINALIZER, about, f"has finalizer {FINALIZER} and no allocation")


def overdue_conditions(record: ClaimRecord, ledger: Ledger, now: float, timeout: float) -> AuditFinding | None:
    """Find devices that report a failure, or that are not ready after `timeout` seconds although no pod is bound with them.

    Once a pod is bound no scheduler looks at the conditions, and the driver may report other ones.
    """
    verdict = evaluate_conditions(record.claim, now=now, waiting_since=now, timeout=timeout)
    if verdict.readiness not in _OVERDUE:
        return None
    limit = ""
    if verdict.readiness is Readiness.TIMED_OUT:
        for consumer in record.claim.status.reserved_for:
            group = ledger.pods.members(record.claim.metadata.namespace, consumer.name) if is_group(consumer) else None
            pods = (ledger.pods.by_uid(consumer.uid),) if group is None else group
            if any(pod is not None and pod.node_name for pod in pods):
                return None
        limit = f"; the limit of {timeout:g} s has passed"
    about = f"claim {record.claim.metadata.full_name}"
    return finding(Check.CONDITIONS_OVERDUE, about, verdict.text + limit)


def _owner_exists(owner: OwnerReference, claim: ClaimHead, ledger: Ledger) -> bool:
    """Return whether the controller of a claim exists; true of one whose kind is not known."""
    if owner.kind == "Pod" and not owner.group:
        return ledger.pods.by_uid(owner.uid) is not None
    if owner.kind == _POD_GROUP and owner.group == GROUP:
        return _group_exists(ledger, claim.metadata.namespace, owner.name, owner.uid)
    return True


def _group_exists(ledger: Ledger, namespace: str, name: str, uid: str) -> bool:
    """Return whether this PodGroup exists; true if PodGroups are not served."""
    group = ledger.pod_groups.get(namespace, name)
    return not ledger.pod_groups.served or (group is not None and group.metadata.uid == uid)


def is_reachable(allocation: AllocationResult, ledger: Ledger) -> bool:
    """Return whether one of the nodes exists that the allocation names; true of one that names none."""
    names = named_nodes(allocation)
    return names is None or any(name in ledger.nodes for name in names)


class _Allocation(NamedTuple):
    """The allocation of a claim, and the bounds of its time in seconds since the epoch; None: there is no such bound."""

    claim: str
    earliest: float | None
    latest: float | None


def two_allocators(records: Iterable[ClaimRecord]) -> Iterator[AuditFinding | None]:
    """Yield a finding for each pool in which this program and another scheduler each allocated after the other had begun.

    Allocations that one of them left when the other took over are no finding: they are all older.  What this program allocates has
    its snapshot.  An allocation without a time is younger than its claim, and its end is not known.  None after each step.
    """
    pools: dict[PoolId, tuple[list[_Allocation], list[_Allocation]]] = {}
    for record in records:
        if record.claim.status.allocation is not None:
            metadata, allocated = record.claim.metadata, seconds_of(allocated_at(record.claim))
            created = seconds_of(metadata.creation_timestamp)
            allocation = _Allocation(
                record.claim.metadata.full_name, created if allocated is None else allocated, allocated
            )
            for pool_id in {holding.pool_id for holding in record.holdings if not holding.admin}:
                pools.setdefault(pool_id, ([], []))[is_snapshotted(record.claim)].append(allocation)
        yield None
    for pool_id, (foreign, own) in pools.items():
        if _went_on_after(foreign, own) and _went_on_after(own, foreign):
            own_claims = [allocation.claim for allocation in own]
            foreign_claims = [allocation.claim for allocation in foreign]
            detail = (
                f"dra-extender allocated {len(own)} claims and another scheduler {len(foreign)}, in turns; "
                f"the first by name are {min(own_claims)} and {min(foreign_claims)}"
            )
            yield finding(Check.TWO_ALLOCATORS, f"pool {'/'.join(pool_id)}", detail)
        yield None


def _went_on_after(allocations: Sequence[_Allocation], earlier: Sequence[_Allocation]) -> bool:
    """Return whether one of the allocations was certainly made after one of the earlier ones."""
    began = max((allocation.earliest for allocation in allocations if allocation.earliest is not None), default=-inf)
    ended = min((allocation.latest for allocation in earlier if allocation.latest is not None), default=inf)
    return began > ended
