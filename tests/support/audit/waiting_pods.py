"""What must not remain when all pods are bound or rejected: pods that wait for free devices, and devices kept for them."""

from collections.abc import Iterator, Sequence

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.reasons import Rejection
from dra_extender.inspection.audit.findings import InvariantViolation
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.claims.extended_need import ExtendedNeed, extended_need
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.readiness import Readiness, evaluate_conditions
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator

FITS = "pod waits although it fits"
KEPT = "reservation of a pod that waits"
MADE = "claim for extended resources of a pod that waits"


def waiting_pods(ledger: Ledger, allocator: NodeAllocator) -> Iterator[InvariantViolation]:
    """Pods that wait although free devices exist for them, and what is kept for pods that wait.

    Only devices are checked; the caller knows whether kube-scheduler's own filters (resources, taints, gates, ...) admit a pod to a
    node.  Nodes whose device plugin serves an extended resource of the pod are skipped, because only kube-scheduler counts what is
    free there.  Members of a PodGroup are skipped, because they wait for each other.
    """
    for pod in ledger.pods.all():
        if pod.needs_devices and not (pod.node_name or pod.finished or pod.deleting):
            yield from _kept(pod, ledger)
            node = None if pod.pod_group else _fitting_node(pod, ledger, allocator)
            if node is not None:
                yield InvariantViolation(rule=FITS, about=pod.key, detail=f"on node {node}")


def _kept(pod: Pod, ledger: Ledger) -> Iterator[InvariantViolation]:
    kept = {record.claim.metadata.key: KEPT for record in ledger.claims.of_consumer(pod.uid)}
    for record in ledger.claims.for_extended_resources(pod.namespace, pod.uid):
        kept.setdefault(record.claim.metadata.key, MADE)
    for key, rule in kept.items():
        yield InvariantViolation(rule=rule, about="/".join(key), detail=f"for pod {pod.key}")


def _fitting_node(pod: Pod, ledger: Ledger, allocator: NodeAllocator) -> str | None:
    """The first node on which all claims of the pod could be used, and device classes serve its extended resources."""
    found, need = find_claims(pod, ledger), extended_need(pod, ledger)
    if isinstance(found, Rejection) or (need is None and pod.extended_resources):
        return None
    if any(_is_lost(claim.record.claim, ledger) for claim in found):
        return None
    for node in ledger.nodes.values():
        if node.extended_resources.isdisjoint(pod.extended_resources):
            claims = _claims_to_allocate(found, need, node)
            if claims is not None and (not claims or _fits(claims, node, ledger, allocator)):
                return node.name
    return None


def _is_lost(claim: ClaimHead, ledger: Ledger) -> bool:
    """Return whether a bound pod uses the devices of the claim, which cannot be released, and they are not ready.

    At rest, a device that is not ready has failed, or has not become ready in time.
    """
    readiness = evaluate_conditions(claim, now=0.0, waiting_since=0.0, timeout=0.0).readiness
    if readiness is Readiness.READY:
        return False
    consumers = {consumer.uid for consumer in claim.status.reserved_for}
    return any(pod.uid in consumers and pod.node_name and not pod.finished for pod in ledger.pods.all())


def _claims_to_allocate(
    found: Sequence[FoundClaim], need: ExtendedNeed | None, node: Node
) -> Sequence[FoundClaim] | None:
    """The claims of the pod that have no allocation yet; None if the others, or its extended resources, rule out the node."""
    special = None if need is None else need.on(node)
    if isinstance(special, Rejection) or not all(_usable(each, node.name, node.labels) for each in found):
        return None
    unallocated = [each for each in found if each.record.claim.status.allocation is None]
    return unallocated if special is None else [*unallocated, special.claim]


def _fits(claims: Sequence[FoundClaim], node: Node, ledger: Ledger, allocator: NodeAllocator) -> bool:
    """Whether these claims could be allocated on the node; what an earlier attempt of the pod got counts as in use."""
    demand = allocator.demand(claims)
    if not isinstance(demand, Demand):
        return False
    return isinstance(allocator.search(demand, node, ledger.claims.usage, lambda: False), Placement)


def _usable(found: FoundClaim, node: str, labels: dict[str, str]) -> bool:
    allocation = found.record.claim.status.allocation
    try:
        return allocation is None or allocation.usable_on(node, labels)
    except ModelError:
        return False
