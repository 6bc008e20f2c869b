"""The audit of a cluster as a ledger has it, in steps between which other work may run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from msgspec.structs import replace

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.cel.budget import CALL_COST, Budget
from dra_extender.inspection.audit.claims import (
    FindClaim,
    UsedClaim,
    claim_violations,
    extended_claim_violation,
    is_live,
    is_reachable,
    overdue_conditions,
    pod_violations,
    two_allocators,
    unused_claim,
    used_claims,
)
from dra_extender.inspection.audit.findings import (
    AuditFinding,
    Check,
    Invariant,
    InvariantViolation,
    finding,
    finding_of,
)
from dra_extender.inspection.audit.pools import claims_text, neighbour_violations, pool_violations
from dra_extender.inspection.audit.published import (
    PublishedDevices,
    SliceFindings,
    newest_generations,
    taint_rules_without_effect,
    unmatched_classes,
)
from dra_extender.inspection.audit.requests import RequestAudit, UnjudgedClaims
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import NODE, PoolId
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.model.resource_slice import ResourceSlice

Steps = Iterator[AuditFinding | None]
"""Findings, and None after each object; the work between two of them is that for one claim, pod, pool or device."""


@dataclass(frozen=True, slots=True)
class AuditedCluster:
    """What an audit looks at.

    `now`: seconds since the epoch.  `binding_timeout`: seconds after which binding conditions are overdue.  `policy_messages`:
    sentences about rules of the policy in force that have no effect.  `new_budget`: what an audit may spend on
    selectors of claims.  `device_taints`: whether taints of devices have an effect there.  `slice_findings`: what earlier audits
    have found in slices.
    """

    ledger: Ledger
    now: Callable[[], float]
    binding_timeout: float
    policy_messages: Callable[[], Iterable[str]] = tuple
    new_budget: Callable[[], Budget] = lambda: Budget(CALL_COST // 4)
    device_taints: bool = True
    slice_findings: SliceFindings = field(default_factory=SliceFindings)


def audit_steps(cluster: AuditedCluster, unjudged: UnjudgedClaims | None = None) -> Steps:
    """Yield everything that is wrong with the cluster; `unjudged` collects the claims that could not be compared.

    The ledger may change between two steps: each object is looked at as it is then, with what it refers to.
    """
    devices = PublishedDevices(cluster.ledger)
    yield from _pools(cluster.ledger, cluster.slice_findings)
    yield from _claims(cluster)
    yield from _allocated_devices(cluster, devices, unjudged or UnjudgedClaims())
    yield from _pods(cluster, devices)
    yield from two_allocators(_present(cluster.ledger))
    slices = newest_generations(tuple(cluster.ledger.slices.by_name.values()))
    yield from unmatched_classes(tuple(cluster.ledger.classes.values()), slices)
    yield from taint_rules_without_effect(cluster.ledger.overlays.rules, slices)
    yield from (finding(Check.POLICY_WITHOUT_EFFECT, "policy", message) for message in cluster.policy_messages())


def sort_findings(findings: Iterable[AuditFinding]) -> tuple[AuditFinding, ...]:
    places = {check: place for place, check in enumerate(Check)}
    return tuple(
        sorted(findings, key=lambda finding: (finding.severity, places[finding.check], finding.about, finding.detail))
    )


def _pools(ledger: Ledger, slice_findings: SliceFindings) -> Steps:
    unnamed: list[InvariantViolation] = []
    pools = {*ledger.claims.usage.pools, *(resource_slice.pool_id for resource_slice in ledger.slices.by_name.values())}
    slice_findings.forget_all_but(pools)
    for pool_id in pools:
        published = ledger.slices.of_pool(pool_id)
        problem = slice_findings.of_pool(pool_id, published)
        if problem is not None:
            yield problem
        yield None
        usage = ledger.claims.usage.pool(pool_id)
        if not usage:
            continue
        for violation in chain(pool_violations(pool_id, published, usage), _neighbours(pool_id, published, ledger)):
            if violation is not None and not violation.detail:
                unnamed.append(violation)
            else:
                yield None if violation is None else finding_of(violation)
    yield from _name_claims(unnamed, ledger)


def _neighbours(
    pool_id: PoolId, published: Sequence[ResourceSlice], ledger: Ledger
) -> Iterable[InvariantViolation | None]:
    """Find what `compatibleOnlyWith` of devices of this pool refuses: in it, or in pools beside it if a rule is about the node."""
    usage = ledger.claims.usage
    scopes = {
        device.neighbours_on for part in published for device in part.devices if device.compatible_only_with is not None
    }
    if usage.has_compatibility_rules(pool_id):
        in_use = (holding for holdings in usage.pool(pool_id).values() for holding in holdings)
        scopes.update(holding.neighbours_on for holding in in_use if holding.compatible_only_with is not None)
    if not scopes:
        return ()
    pool_ids = {pool_id}
    if NODE in scopes:
        nodes = {part.node_name for part in published if part.node_name is not None}
        pool_ids.update(part.pool_id for node in nodes for part in ledger.slices.local(node))
    neighbours: list[DeviceHolding] = [
        holding
        for neighbour_pool in sorted(pool_ids)
        for holdings in usage.pool(neighbour_pool).values()
        for holding in holdings
        if not holding.admin
    ]
    slices = [part for neighbour_pool in sorted(pool_ids) for part in ledger.slices.of_pool(neighbour_pool)]
    return neighbour_violations(neighbours, slices, (pool_id,))


def _name_claims(unnamed: Sequence[InvariantViolation], ledger: Ledger) -> Steps:
    """Yield violations about claims that have one device, with the names of these claims."""
    claims: dict[str, list[str]] = {violation.about: [] for violation in unnamed}
    for record in tuple(ledger.claims.counted()) if unnamed else ():
        for holding in record.counted:
            device = "/".join(holding.device_id)
            if device in claims and not holding.admin:
                claims[device].append(record.claim.metadata.full_name)
        yield None
    for violation in unnamed:
        yield finding_of(replace(violation, detail=claims_text(claims[violation.about])))


def _claims(cluster: AuditedCluster) -> Steps:
    ledger = cluster.ledger
    for record in _present(ledger):
        claim = record.claim
        if record.unreadable and claim.status.allocation is not None and not record.has_status:
            violation = InvariantViolation(
                rule=Invariant.UNREADABLE, about=claim.metadata.full_name, detail=record.unreadable
            )
            yield finding_of(violation)
        yield from map(finding_of, claim_violations(claim, partial(is_live, ledger, claim.metadata.namespace)))
        yield from map(finding_of, _extended(claim, ledger))
        yield from unused_claim(record, ledger, cluster.now())
        overdue = overdue_conditions(record, ledger, cluster.now(), cluster.binding_timeout)
        if overdue is not None:
            yield overdue
        yield None


def _allocated_devices(cluster: AuditedCluster, devices: PublishedDevices, unjudged: UnjudgedClaims) -> Steps:
    """Find devices that are not published, not where their allocation is, or not what their claim asks for."""
    requests = RequestAudit(cluster.ledger, devices, cluster.new_budget(), unjudged)
    for record in _present(cluster.ledger):
        allocation = record.claim.status.allocation
        if allocation is None:
            continue
        about = f"claim {record.claim.metadata.full_name}"
        for device_id in dict.fromkeys(result.device_id for result in allocation.devices.results):
            device = f"device {'/'.join(device_id)}"
            absence = devices.absence(device_id) if is_reachable(allocation, cluster.ledger) else ""
            if absence:
                yield finding(Check.MISSING_DEVICE, about, f"{device}: {absence}")
            contradiction = devices.contradicting_nodes(allocation, device_id)
            if contradiction:
                yield finding(Check.ALLOCATION_NODES, about, f"{device} {contradiction}")
        yield from requests.findings(record)
        yield None


def _present(ledger: Ledger) -> Iterator[ClaimRecord]:
    """Yield all claims, without those that are deleted while the others are looked at."""
    for record in tuple(ledger.claims.records()):
        if ledger.claims.by_uid(record.claim.metadata.uid) is record:
            yield record


def _extended(claim: ClaimHead, ledger: Ledger) -> Iterable[InvariantViolation]:
    uid, namespace = claim.extended_for, claim.metadata.namespace
    if not uid:
        return ()
    pod = ledger.pods.by_uid(uid)
    of_pod = ledger.claims.for_extended_resources(namespace, uid)
    is_first = not of_pod or of_pod[0].claim.metadata.uid == claim.metadata.uid
    violation = extended_claim_violation(
        claim, pod if pod is not None and pod.namespace == namespace else None, is_first=is_first
    )
    return () if violation is None else (violation,)


def _pods(cluster: AuditedCluster, devices: PublishedDevices) -> Steps:
    ledger = cluster.ledger
    kubelets = ledger.pod_groups.entry_policy
    find_claim = _claims_by_key(ledger)
    for pod in tuple(ledger.pods.all()):
        if pod.needs_devices and ledger.pods.by_uid(pod.uid) is pod:
            node = ledger.nodes.get(pod.node_name)
            yield from map(finding_of, pod_violations(pod, find_claim, node, kubelets))
            if cluster.device_taints:
                for detail in evicting_taints(pod, ledger, devices):
                    yield finding(Check.TAINTED_DEVICE, f"pod {pod.key}", detail)
            yield None


def _claims_by_key(ledger: Ledger) -> FindClaim:
    def find_claim(key: tuple[str, str]) -> ClaimHead | None:
        record = ledger.claims.by_key(*key)
        return None if record is None else record.claim

    return find_claim


def evicting_taints(pod: Pod, ledger: Ledger, devices: PublishedDevices) -> Iterator[str]:
    """Yield a sentence for each NoExecute taint of a device with which the pod runs and that its allocation does not tolerate."""
    if not pod.node_name or pod.ending:
        return
    find_claim = _claims_by_key(ledger)
    for use in (use for use in used_claims(pod) if isinstance(use, UsedClaim)):
        claim = find_claim((pod.namespace, use.name))
        allocation = None if claim is None else claim.status.allocation
        for result in () if allocation is None else allocation.devices.results:
            taint = devices.evicting_taint(result, pod.node_name)
            if taint is not None:
                device = "/".join(result.device_id)
                yield f"{use.subject}: device {device} has taint {taint_text(taint)}, which the allocation does not tolerate"
