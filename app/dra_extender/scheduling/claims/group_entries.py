"""The entry of `reservedFor` that a pod gets in a crowded claim of its PodGroup: its own, its group's, or none for now.

Up to OWN_ENTRIES pods have entries of their own.  Further pods have their group's entry, on nodes that are known to start them with
it; on another node one pod of each namespace at a time tries.  That pod gets its own entry if it does not start in time
(`group_trials`).  There is always room for it: no other pod gets the entries that may be needed so.
"""

from collections.abc import Iterable
from typing import Final

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.index.group_starts import GroupEntrySupport
from dra_extender.ledger.index.pod_groups import START_LABEL, GroupReservation, known_on
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import MAX_RESERVATIONS, OWN_ENTRIES
from dra_extender.scheduling.claims.lookup import FoundClaim, is_crowded

_ADVICE: Final = (
    f"where kubelets have the gate DRAWorkloadResourceClaims, label the node {START_LABEL}=true "
    "or set scheduling.reserve_for_pod_groups: always"
)


def crowded_out(found: FoundClaim, pod: Pod, node: Node, ledger: Ledger) -> Rejection | None:
    """Return why a crowded claim keeps the pod off this node; None if there is an entry with which it may start there."""
    group, claim = found.group, found.record.claim
    if group is None or not is_crowded(found, ledger):
        return None
    starts = ledger.group_starts
    ability = starts.support_on(pod.namespace, node, pod.uid)
    if ability is GroupEntrySupport.ON_TRIAL:
        return Rejection(code=Code.CLAIM_ON_TRIAL, claim=found.label)
    detail = ""
    if ability is GroupEntrySupport.UNABLE and starts.free_entries(claim, pod.uid) <= 0:
        detail = (
            f"its label {START_LABEL} says so" if known_on(node) is False else f"a pod did not start there; {_ADVICE}"
        )
    elif ability is GroupEntrySupport.UNKNOWN and _needs_its_gang(pod, ledger):
        detail = f"nothing is found out by members of a gang of which none is bound; {_ADVICE}"
    elif ability is GroupEntrySupport.UNKNOWN and starts.free_entries(claim, pod.uid) < (
        1 if claim.reserved_by(group.uid) else 2
    ):
        detail = f"there is no entry left for a pod that would find out; {_ADVICE}"
    return Rejection(code=Code.CLAIM_CROWDED, claim=found.label, detail=detail) if detail else None


def most_entries(found: FoundClaim, pod: Pod, node: Node | None, ledger: Ledger) -> int:
    """Return how many entries the claim may have with this consumer, without those that are kept for pods on trial."""
    if is_group(found.consumer) or found.group is None or not _is_automatic(ledger):
        return MAX_RESERVATIONS
    unable = (
        node is not None and ledger.group_starts.support_on(pod.namespace, node, pod.uid) is GroupEntrySupport.UNABLE
    )
    return MAX_RESERVATIONS if unable else OWN_ENTRIES


def relying(found: Iterable[FoundClaim], node: Node, ledger: Ledger) -> frozenset[str]:
    """Return UIDs of the claims in which a pod on this node has its group's entry alone; none if the node's label says so."""
    if not _is_automatic(ledger) or known_on(node) is not None:
        return frozenset()
    return frozenset(claim.uid for claim in found if claim.group == claim.consumer)


def _is_automatic(ledger: Ledger) -> bool:
    return ledger.pod_groups.reservation is GroupReservation.AUTO and ledger.pod_groups.ends_entries


def _needs_its_gang(pod: Pod, ledger: Ledger) -> bool:
    """Return whether the pod would be bound together with others only, and not start before them."""
    group = None if pod.pod_group is None else ledger.pod_groups.get(pod.namespace, pod.pod_group)
    return group is not None and group.min_count is not None and not ledger.pods.has_running_member(*group.metadata.key)


def why_full(found: FoundClaim, ledger: Ledger) -> str:
    """Return which setting stands in the way of more pods, if one does."""
    groups = ledger.pod_groups
    if not groups.have_claims:
        return "features.pod_group_claims is off"
    if found.group is None:
        return "pods of a PodGroup with this claim in its spec.resourceClaims may be more"
    if groups.reservation is GroupReservation.NEVER:
        return "scheduling.reserve_for_pod_groups is never"
    if groups.reservation is GroupReservation.AUTO and not groups.ends_entries:
        return f"scheduling.reclaim_enabled is off, so that nobody would end a reservation for the PodGroup; {_ADVICE}"
    return "there is no room for the entry of the PodGroup"
