"""Checks a cluster by its API objects alone.

The allocator's rule (`allocator.rules.verdict`) says what may be allocated together; nothing else here depends on decisions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from dra_extender.audit.allocations import claims_text, neighbour_violations, pool_violations
from dra_extender.audit.findings import (
    AWAY,
    FOREIGN_CONSUMER,
    KUBELET,
    NO_CONSUMER,
    NO_FINALIZER,
    NO_SUCH_CONSUMER,
    ORPHANED,
    UNREADABLE,
    UNUSED_EXTENDED_CLAIM,
    InvariantViolation,
)
from dra_extender.audit.kubelet import ClaimsByKey, UsedClaim, refused, uses
from dra_extender.ledger.index.guards import is_guard, is_guard_reservation
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.state.usage import UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import GROUP, POD_GROUPS, PodGroup
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.model.snapshot import holdings_of

_RUNNING: Final = "Running"
_CONSUMERS: Final = {("", "pods"), (GROUP, POD_GROUPS)}
"""API group and resource of what kube-controller-manager takes for a consumer; with anything else it leaves the claim alone."""

IsLive = Callable[[ConsumerReference], bool]
"""Whether a consumer exists and is not over; true of one whose kind is not known."""


def audit(
    claims: Sequence[ClaimHead],
    slices: Sequence[ResourceSlice],
    pods: Sequence[Pod],
    nodes: Sequence[Node],
    pod_groups: Sequence[PodGroup] | None = None,
    kubelets: GroupReservation = GroupReservation.ALWAYS,
    guard_namespace: str = "",
) -> tuple[InvariantViolation, ...]:
    """Everything that is wrong with the allocations of this cluster; empty when all rules hold.

    Without `pod_groups`, reservations of PodGroups are not checked.  `kubelets`: which of them accept claims of PodGroups, or
    reservations for these, as their pods' own (AUTO: those whose nodes declare it).  `guard_namespace`: where guard claims are,
    which take no devices; empty: there are none.
    """
    claims = [claim for claim in claims if not is_guard(claim.metadata.key, guard_namespace)]
    holdings: list[tuple[str, DeviceHolding]] = []
    unreadable: list[InvariantViolation] = []
    for claim in claims:
        try:
            holdings += [(claim_name(claim), holding) for holding in holdings_of(claim) if not holding.admin]
        except ModelError as problem:
            unreadable.append(InvariantViolation(rule=UNREADABLE, about=claim_name(claim), detail=str(problem)))
    return (
        *unreadable,
        *_allocations(holdings, slices),
        *(each for each in neighbour_violations([found for _, found in holdings], slices) if each is not None),
        *_claims(claims, pods, pod_groups),
        *_extended_claims(claims, pods),
        *_bound_pods(claims, pods, nodes, kubelets),
    )


def claim_name(claim: ClaimHead) -> str:
    """namespace/name."""
    return "/".join(claim.metadata.key)


def claim_violations(claim: ClaimHead, is_live: IsLive) -> Iterator[InvariantViolation]:
    """Of an allocated claim: it has the finalizer and a consumer; consumers are pods or PodGroups that are not over."""
    if claim.status.allocation is None:
        return
    name = claim_name(claim)
    if FINALIZER not in claim.metadata.finalizers:
        yield InvariantViolation(rule=NO_FINALIZER, about=name, detail="it would never be cleaned up")
    if not claim.status.reserved_for:
        yield InvariantViolation(rule=NO_CONSUMER, about=name, detail="reservedFor is empty")
    for consumer in claim.status.reserved_for:
        if is_guard_reservation(consumer):
            continue
        if (consumer.api_group, consumer.resource) not in _CONSUMERS:
            detail = f"{consumer.resource}.{consumer.api_group or 'core'} {consumer.name}"
            yield InvariantViolation(rule=FOREIGN_CONSUMER, about=name, detail=detail)
        elif not is_live(consumer):
            detail = f"{consumer.resource.removesuffix('s')} {consumer.name} is gone or over"
            yield InvariantViolation(rule=NO_SUCH_CONSUMER, about=name, detail=detail)


def pod_violations(
    pod: Pod, claims: ClaimsByKey, node: Node | None, kubelets: GroupReservation
) -> Iterator[InvariantViolation]:
    """A bound pod is one that its kubelet starts, with devices that can be used on its node; `node` is None if it is not known."""
    if not pod.node_name or pod.finished:
        return
    for found in refused(pod, claims, kubelets, node):
        rule = ORPHANED if found.missing and pod.phase == _RUNNING else KUBELET
        yield InvariantViolation(rule=rule, about=pod.key, detail=f"{found.subject}: {found.why}")
    for what in _away(pod, claims, node):
        yield InvariantViolation(rule=AWAY, about=pod.key, detail=what)


def extended_claim_violation(claim: ClaimHead, pod: Pod | None, *, is_first: bool) -> InvariantViolation | None:
    """Of a claim for extended resources: the status of its bound pod names it; a pod that is not bound has one at most.

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
    return InvariantViolation(rule=UNUSED_EXTENDED_CLAIM, about=claim_name(claim), detail=why)


def _allocations(
    holdings: Sequence[tuple[str, DeviceHolding]], slices: Sequence[ResourceSlice]
) -> Iterable[InvariantViolation]:
    """`holdings`: claim and what it holds."""
    holders: dict[str, list[str]] = defaultdict(list)
    usage = UsageTable()
    usage.add(holding for _, holding in holdings)
    for claim, holding in holdings:
        holders[f"{holding.driver}/{holding.pool}/{holding.device}"].append(claim)
    by_pool: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        by_pool[each.pool_id].append(each)
    for pool_id in usage.pools:
        for found in pool_violations(pool_id, by_pool[pool_id], usage.pool(pool_id)):
            if found is not None:
                yield found if found.detail else replace(found, detail=claims_text(holders.get(found.about, ())))


def _claims(
    claims: Sequence[ClaimHead], pods: Sequence[Pod], pod_groups: Sequence[PodGroup] | None
) -> Iterable[InvariantViolation]:
    live = {"pods": {pod.uid for pod in pods if not pod.finished}}
    if pod_groups is not None:
        live[POD_GROUPS] = {group.metadata.uid for group in pod_groups}

    def is_live(consumer: ConsumerReference) -> bool:
        return consumer.resource not in live or consumer.uid in live[consumer.resource]

    for claim in claims:
        yield from claim_violations(claim, is_live)


def _bound_pods(
    claims: Sequence[ClaimHead], pods: Sequence[Pod], nodes: Sequence[Node], kubelets: GroupReservation
) -> Iterable[InvariantViolation]:
    by_key: Mapping[tuple[str, str], ClaimHead] = {claim.metadata.key: claim for claim in claims}
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        yield from pod_violations(pod, by_key, by_name.get(pod.node_name), kubelets)


def _extended_claims(claims: Sequence[ClaimHead], pods: Sequence[Pod]) -> Iterable[InvariantViolation]:
    by_uid = {pod.uid: pod for pod in pods}
    others: set[str] = set()
    for claim in claims:
        uid = claim.extended_for
        if uid:
            found = extended_claim_violation(claim, by_uid.get(uid), is_first=uid not in others)
            others.add(uid)
            if found is not None:
                yield found


def _away(pod: Pod, claims: ClaimsByKey, node: Node | None) -> Iterable[str]:
    """What the pod lacks on its node.  The kubelet checks neither where devices can be used nor what serves a resource."""
    labels = {} if node is None else node.labels
    for use in (each for each in uses(pod) if isinstance(each, UsedClaim)):
        claim = claims.get((pod.namespace, use.name))
        problem = "" if claim is None else _unusable(claim, pod.node_name, labels)
        if problem:
            yield f"{use.subject}: {problem}"
    if node is not None and not pod.extended_claim:
        for name in pod.extended_resources:
            if name not in node.extended_resources:
                yield f"{name}: node {node.name} does not list it, and the pod's status names no claim"


def _unusable(claim: ClaimHead, node: str, labels: dict[str, str]) -> str:
    """Why the allocation of the claim cannot be used on the node; empty if it can, or there is none."""
    allocation = claim.status.allocation
    try:
        usable = allocation is None or allocation.usable_on(node, labels)
    except ModelError as problem:
        return str(problem)
    return "" if usable else f"is not usable on node {node}"
