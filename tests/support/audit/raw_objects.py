"""Checks the allocations of a cluster by its API objects, without a ledger."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dra_extender.inspection.audit.claims import claim_violations, extended_claim_violation, pod_violations
from dra_extender.inspection.audit.findings import Invariant, InvariantViolation
from dra_extender.inspection.audit.pools import claims_text, neighbour_violations, pool_violations
from dra_extender.ledger.guard_index import is_guard
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.allocation_snapshot import holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import POD_GROUPS, PodGroup
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference
from dra_extender.model.resource_slice import ResourceSlice
from msgspec.structs import replace


def audit(
    claims: Sequence[ClaimHead],
    slices: Sequence[ResourceSlice],
    pods: Sequence[Pod],
    nodes: Sequence[Node],
    pod_groups: Sequence[PodGroup] | None = None,
    kubelets: GroupEntryPolicy = GroupEntryPolicy.ALWAYS,
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
            holdings += [(claim.metadata.full_name, holding) for holding in holdings_of(claim) if not holding.admin]
        except ModelError as problem:
            unreadable.append(
                InvariantViolation(rule=Invariant.UNREADABLE, about=claim.metadata.full_name, detail=str(problem))
            )
    return (
        *unreadable,
        *_allocations(holdings, slices),
        *(each for each in neighbour_violations([found for _, found in holdings], slices) if each is not None),
        *_claims(claims, pods, pod_groups),
        *_extended_claims(claims, pods),
        *_bound_pods(claims, pods, nodes, kubelets),
    )


def _allocations(
    holdings: Sequence[tuple[str, DeviceHolding]], slices: Sequence[ResourceSlice]
) -> Iterable[InvariantViolation]:
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
    claims: Sequence[ClaimHead], pods: Sequence[Pod], nodes: Sequence[Node], kubelets: GroupEntryPolicy
) -> Iterable[InvariantViolation]:
    by_key: Mapping[tuple[str, str], ClaimHead] = {claim.metadata.key: claim for claim in claims}
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        yield from pod_violations(pod, by_key.get, by_name.get(pod.node_name), kubelets)


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
