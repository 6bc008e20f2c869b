"""Whether kubelets would start bound pods, by API objects alone: the checks of a pod's claims before a kubelet prepares them.

Two facts that only the node knows are not checked: whether the driver is registered there, and whether an older claim of the
same name is still prepared.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from dra_extender.ledger.index.pod_groups import GROUP_RESERVATIONS_FEATURE, GroupReservation
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.pod_group import GROUP, is_group
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.extended_resources.need import EXTENDED_LABEL, subject_of

_POD_GROUP: Final = "PodGroup"
_UNSUPPORTED: Final = f"which only a kubelet with {GROUP_RESERVATIONS_FEATURE} accepts"


class ClaimsByKey(Protocol):
    """Claims by namespace and name."""

    def get(self, key: tuple[str, str], /) -> ClaimHead | None:
        """The claim with this key, None if there is none."""
        ...


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


def uses(pod: Pod) -> Iterator[UsedClaim | AdmissionFailure]:
    """The claims that the kubelet looks for, in its order; the one for extended resources comes last.

    A template for which the status says that no claim is needed has none.
    """
    recorded = {each.name: each.resource_claim_name for each in pod.claim_statuses}
    for entry in pod.claims:
        if entry.resource_claim_name:
            yield UsedClaim(f"claim {entry.name}", entry.resource_claim_name, generated=False)
        elif not _is_recorded_by_name(entry):
            yield AdmissionFailure(f"claim {entry.name}", "the entry names neither a claim nor a template")
        elif entry.name not in recorded:
            yield AdmissionFailure(f"claim {entry.name}", "no claim is recorded for it in status.resourceClaimStatuses")
        elif name := recorded[entry.name]:
            yield UsedClaim(f"claim {entry.name}", name, generated=bool(entry.resource_claim_template_name))
    if pod.extended_claim:
        yield UsedClaim(subject_of(pod, EXTENDED_LABEL), pod.extended_claim, generated=False)


def refused(pod: Pod, claims: ClaimsByKey, kubelets: GroupReservation, node: Node | None) -> Iterator[AdmissionFailure]:
    """Why the kubelet would not start the bound pod, by claim.

    `kubelets`: whether they accept a claim of the pod's PodGroup, or a reservation for the group, as the pod's own (gate
    DRAWorkloadResourceClaims).  Where that is unknown, a claim that was generated for the group counts as accepted, because it
    could be reserved in no other way; a claim by name could have been reserved for the pod.
    """
    for use in uses(pod):
        if isinstance(use, AdmissionFailure):
            yield use
            continue
        claim = claims.get((pod.namespace, use.name))
        why = _why(pod, use, claim, kubelets, node)
        if why:
            yield AdmissionFailure(use.subject, f"claim {use.name} {why}", missing=claim is None)


def _is_recorded_by_name(entry: PodResourceClaim) -> bool:
    """Whether the claim's name stands in the pod's status; drafts of KEP-5729 have it there for the group's claims, too."""
    return bool(entry.resource_claim_template_name or entry.pod_group_resource_claim)


def _why(pod: Pod, use: UsedClaim, claim: ClaimHead | None, kubelets: GroupReservation, node: Node | None) -> str:
    """Empty if nothing is wrong."""
    if claim is None:
        return "does not exist"
    of_group = _is_groups(pod, claim)
    accepted = kubelets.may_apply if of_group else _is_accepted(pod, kubelets, node)
    if use.generated and not of_group and not _is_own(pod, claim):
        return "was generated for another owner"
    if use.generated and of_group and not accepted:
        return f"was generated for its PodGroup, {_UNSUPPORTED}"
    if not claim.reserved_by(pod.uid):
        if not _is_reserved_for_group(claim, pod):
            return "is not reserved for it"
        if not accepted:
            return f"is reserved for its PodGroup alone, {_UNSUPPORTED}"
    return "is not allocated" if claim.status.allocation is None else ""


def _is_accepted(pod: Pod, kubelets: GroupReservation, node: Node | None) -> bool:
    """Whether the reservation of its PodGroup suffices for the pod; where that is unknown, a pod that has started proves it."""
    return kubelets.applies_on(node) or (kubelets is GroupReservation.AUTO and pod.has_started)


def _is_own(pod: Pod, claim: ClaimHead) -> bool:
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.uid


def _is_groups(pod: Pod, claim: ClaimHead) -> bool:
    owner = claim.metadata.controller
    return owner is not None and (owner.kind, owner.group, owner.name) == (_POD_GROUP, GROUP, pod.pod_group)


def _is_reserved_for_group(claim: ClaimHead, pod: Pod) -> bool:
    """A pod does not know the UID of its group, so the name counts."""
    return pod.pod_group is not None and any(
        is_group(each) and each.name == pod.pod_group for each in claim.status.reserved_for
    )
