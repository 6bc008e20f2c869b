"""Checks a cluster by its API objects alone.

The allocator's rule (`allocator.rules.verdict`) says what may be allocated together; nothing else here depends on decisions.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from dra_extender.allocator.rules.verdict import CAPACITY, COUNTERS, DEVICE, GROUPS, contradictions, published_pool
from dra_extender.audit.compatibility import by_id, incompatible_neighbours
from dra_extender.audit.kubelet import UsedClaim, refused, uses
from dra_extender.ledger.index.guards import is_guard
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.state.usage import UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError, Value
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import GROUP, POD_GROUPS, PodGroup
from dra_extender.model.resource_claim import FINALIZER, ClaimHead
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.model.snapshot import holdings_of

_RUNNING: Final = "Running"
KUBELET: Final = "kubelet would not start the pod"
ORPHANED: Final = "claim of a running pod is gone"
AWAY: Final = "bound pod without its devices"
UNUSED_EXTENDED_CLAIM: Final = "claim for extended resources that nobody uses"
_RULES: Final = {
    DEVICE: "device in two claims",
    CAPACITY: "capacity exceeded",
    COUNTERS: "counter overdrawn",
    GROUPS: "compatibility groups in conflict",
}
_CONSUMERS: Final = {("", "pods"), (GROUP, POD_GROUPS)}
"""API group and resource of what kube-controller-manager takes for a consumer; with anything else it leaves the claim alone."""


class InvariantViolation(Value, frozen=True, rename=None):
    """One broken rule: which, about what object, and what was seen."""

    rule: str
    about: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}: {self.detail}"


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
            holdings += [(_name(claim), holding) for holding in holdings_of(claim) if not holding.admin]
        except ModelError as problem:
            unreadable.append(
                InvariantViolation(rule="allocation that cannot be read", about=_name(claim), detail=str(problem))
            )
    return (
        *unreadable,
        *_allocations(holdings, slices),
        *_neighbours(holdings, slices),
        *_claims(claims, pods, pod_groups),
        *_extended_claims(claims, pods),
        *_bound_pods(claims, pods, nodes, kubelets),
    )


def _allocations(
    holdings: Sequence[tuple[str, DeviceHolding]], slices: Sequence[ResourceSlice]
) -> Iterable[InvariantViolation]:
    """Devices, shares, capacities and counter sets that are allocated to more claims than the rule of the search allows."""
    holders: dict[DeviceId, list[tuple[str, str | None]]] = defaultdict(list)
    usage = UsageTable()
    usage.add(holding for _, holding in holdings)
    for claim, holding in holdings:
        holders[holding.driver, holding.pool, holding.device].append((claim, holding.share_id))
    by_pool: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        by_pool[each.pool_id].append(each)
    for pool_id in usage.pools:
        for breach in contradictions(published_pool(pool_id, by_pool[pool_id]), usage.pool(pool_id)):
            names = ", ".join(claim for claim, _ in holders.get((*pool_id, breach.name), ()))
            about = "/".join((*pool_id, breach.name))
            yield InvariantViolation(rule=_RULES[breach.kind], about=about, detail=breach.detail or names)
    yield from _repeated_shares(holders)


def _repeated_shares(holders: Mapping[DeviceId, Sequence[tuple[str, str | None]]]) -> Iterable[InvariantViolation]:
    """`holders`: claim and share, by device."""
    for device, found in holders.items():
        shares = [share for _, share in found]
        if all(shares) and len(set(shares)) < len(shares):
            names = ", ".join(claim for claim, _ in found)
            yield InvariantViolation(rule="share in two claims", about="/".join(device), detail=names)


def _current(slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """The slices of the newest generation of each pool."""
    newest: dict[PoolId, int] = defaultdict(int)
    for each in slices:
        newest[each.pool_id] = max(newest[each.pool_id], each.generation)
    return [each for each in slices if each.generation == newest[each.pool_id]]


def _neighbours(
    holdings: Sequence[tuple[str, DeviceHolding]], slices: Sequence[ResourceSlice]
) -> Iterable[InvariantViolation]:
    """Per counter set and physical device: every holder is compatible with every other."""
    published = by_id(_current(slices))

    def sets_of(holding: DeviceHolding) -> Iterable[str]:
        live = published.get((holding.driver, holding.pool, holding.device))
        return (entry.counter_set for entry in holding.drawn(None if live is None else live.device))

    for found in incompatible_neighbours([holding for _, holding in holdings], published, sets_of):
        yield InvariantViolation(rule="neighbours not compatible", about="/".join(found.device_id), detail=found.detail)


def _claims(
    claims: Sequence[ClaimHead], pods: Sequence[Pod], pod_groups: Sequence[PodGroup] | None
) -> Iterable[InvariantViolation]:
    """Allocations have the finalizer and a consumer; consumers are pods or PodGroups that exist, and those pods are not over."""
    live = {"pods": {pod.uid for pod in pods if not pod.finished}}
    if pod_groups is not None:
        live[POD_GROUPS] = {group.metadata.uid for group in pod_groups}
    for claim in (each for each in claims if each.status.allocation is not None):
        if FINALIZER not in claim.metadata.finalizers:
            yield InvariantViolation(
                rule="allocation without finalizer", about=_name(claim), detail="it would never be cleaned up"
            )
        if not claim.status.reserved_for:
            yield InvariantViolation(
                rule="allocation without consumer", about=_name(claim), detail="reservedFor is empty"
            )
        yield from _reservations(claim, live)


def _reservations(claim: ClaimHead, live: Mapping[str, Container[str]]) -> Iterable[InvariantViolation]:
    """`live`: UIDs of the consumers that exist, by resource."""
    for consumer in claim.status.reserved_for:
        if (consumer.api_group, consumer.resource) not in _CONSUMERS:
            detail = f"{consumer.resource}.{consumer.api_group or 'core'} {consumer.name}"
            yield InvariantViolation(
                rule="reservation that the controller-manager cannot read", about=_name(claim), detail=detail
            )
        elif consumer.resource in live and consumer.uid not in live[consumer.resource]:
            detail = f"{consumer.resource.removesuffix('s')} {consumer.name} is gone or over"
            yield InvariantViolation(rule="reservation of nobody", about=_name(claim), detail=detail)


def _bound_pods(
    claims: Sequence[ClaimHead], pods: Sequence[Pod], nodes: Sequence[Node], kubelets: GroupReservation
) -> Iterable[InvariantViolation]:
    """A bound pod is one that its kubelet starts, with devices that can be used on its node."""
    by_key = {claim.metadata.key: claim for claim in claims}
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        if not pod.node_name or pod.finished:
            continue
        node = by_name.get(pod.node_name)
        for found in refused(pod, by_key, kubelets, node):
            rule = ORPHANED if found.missing and pod.phase == _RUNNING else KUBELET
            yield InvariantViolation(rule=rule, about=pod.key, detail=f"claim {found.label}: {found.why}")
        for what in _away(pod, by_key, node):
            yield InvariantViolation(rule=AWAY, about=pod.key, detail=what)


def _away(pod: Pod, claims: Mapping[tuple[str, str], ClaimHead], node: Node | None) -> Iterable[str]:
    """What the pod lacks on its node.  The kubelet checks neither where devices can be used nor what serves a resource."""
    labels = {} if node is None else node.labels
    for use in (each for each in uses(pod) if isinstance(each, UsedClaim)):
        claim = claims.get((pod.namespace, use.name))
        problem = "" if claim is None else _unusable(claim, pod.node_name, labels)
        if problem:
            yield f"claim {use.label}: {problem}"
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


def _extended_claims(claims: Sequence[ClaimHead], pods: Sequence[Pod]) -> Iterable[InvariantViolation]:
    """The status of a bound pod names its claim for extended resources; a pod that is not bound has at most one."""
    by_uid = {pod.uid: pod for pod in pods}
    others: set[str] = set()
    for claim in claims:
        uid = claim.extended_for
        pod = by_uid.get(uid)
        if not uid or (pod is not None and pod.finished):
            continue
        if pod is None:
            yield InvariantViolation(rule=UNUSED_EXTENDED_CLAIM, about=_name(claim), detail="its pod is gone")
        elif pod.node_name and pod.extended_claim != claim.metadata.name:
            yield InvariantViolation(
                rule=UNUSED_EXTENDED_CLAIM,
                about=_name(claim),
                detail=f"the status of pod {pod.key} names another claim, or none",
            )
        elif not pod.node_name and uid in others:
            yield InvariantViolation(
                rule=UNUSED_EXTENDED_CLAIM, about=_name(claim), detail=f"pod {pod.key} has another"
            )
        others.add(uid)


def _name(claim: ClaimHead) -> str:
    return "/".join(claim.metadata.key)
