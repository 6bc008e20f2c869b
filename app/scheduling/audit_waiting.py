"""What must not be left when everything has come to rest: pods that wait for free devices, and devices kept for pods that wait."""

from collections.abc import Iterator

from app.ledger.ledger import Ledger
from app.model.allocation import Placement
from app.model.base import ModelError
from app.model.pod import Pod
from app.model.rejection import Rejection
from app.scheduling.audit import Finding
from app.scheduling.claim_lookup import FoundClaim, find_claims
from app.scheduling.searching import Searching

FITS = "pod waits although it fits"
KEPT = "reservation of a pod that waits"


def waiting_pods(ledger: Ledger, searching: Searching) -> Iterator[Finding]:
    """Pods that wait although their claims could be served now, and reservations of pods that wait.

    Only devices are looked at: whether kube-scheduler's own filters (resources, taints, gates, ...) let a pod onto a node is the
    caller's to know.  Members of a PodGroup are left out, as they wait for each other.
    """
    for pod in ledger.pods.all():
        if pod.claims and not (pod.node_name or pod.finished or pod.deleting):
            yield from _reservations(pod, ledger)
            node = None if pod.pod_group else _fitting_node(pod, ledger, searching)
            if node is not None:
                yield Finding(rule=FITS, about=pod.key, detail=f"on node {node}")


def _reservations(pod: Pod, ledger: Ledger) -> Iterator[Finding]:
    for record in ledger.claims.of_consumer(pod.uid):
        yield Finding(rule=KEPT, about="/".join(record.claim.metadata.key), detail=f"for pod {pod.key}")


def _fitting_node(pod: Pod, ledger: Ledger, searching: Searching) -> str | None:
    """The first node on which all claims of the pod could be used."""
    found = find_claims(pod, ledger)
    if isinstance(found, Rejection):
        return None
    still_open = [each for each in found if each.record.claim.status.allocation is None]
    demand = searching.demand(still_open) if still_open else None
    if isinstance(demand, Rejection):
        return None
    for node in ledger.nodes.values():
        if not all(_usable(each, node.name, node.labels) for each in found):
            continue
        if demand is None:
            return node.name
        if isinstance(searching.on_node(demand, node, ledger.claims.usage, lambda: False), Placement):
            return node.name
    return None


def _usable(found: FoundClaim, node: str, labels: dict[str, str]) -> bool:
    allocation = found.record.claim.status.allocation
    try:
        return allocation is None or allocation.usable_on(node, labels)
    except ModelError:
        return False
