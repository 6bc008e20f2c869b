from collections.abc import Mapping
from typing import Final, NamedTuple

from app.ledger.claims import ClaimIndex, ClaimRecord
from app.model.pod import Pod, PodResourceClaim
from app.model.rejection import Code, Rejection
from app.model.resource_claim import ConsumerReference, ResourceClaim

PODS: Final = "pods"


class FoundClaim(NamedTuple):
    """A claim of a pod: the pod's name for it, and what the ledger knows."""

    label: str
    record: ClaimRecord


def consumer_of(pod: Pod) -> ConsumerReference:
    """How the pod appears in `reservedFor`."""
    return ConsumerReference(resource=PODS, name=pod.name, uid=pod.uid)


def find_claims(pod: Pod, claims: ClaimIndex) -> tuple[FoundClaim, ...] | Rejection:
    """The claims a pod needs, in the order of its spec, or why they cannot be had yet.

    Same steps as upstream: the named claim, or the generated one that `status.resourceClaimStatuses` records (which may say that
    none is needed); the claim must exist, must not be going away, and a generated one must belong to this pod.
    """
    generated = {each.name: each.resource_claim_name for each in pod.claim_statuses}
    found: list[FoundClaim] = []
    for entry in pod.claims:
        name = _name(entry, generated)
        if isinstance(name, Rejection):
            return name
        if name is None:
            continue
        record = claims.by_key(pod.namespace, name)
        refusal = _refusal(entry, name, record, pod)
        if refusal is not None:
            return refusal
        if record is not None and all(record is not other.record for other in found):
            found.append(FoundClaim(entry.name, record))
    return tuple(found)


def names_missing(pod: Pod) -> bool:
    """Whether this state of the pod does not tell yet which claim was made for one of its templates."""
    named = {each.name for each in pod.claim_statuses}
    return any(not each.resource_claim_name and each.name not in named for each in pod.claims)


def _name(entry: PodResourceClaim, generated: Mapping[str, str | None]) -> str | Rejection | None:
    if entry.resource_claim_name:
        return entry.resource_claim_name
    if not entry.resource_claim_template_name:
        return Rejection(code=Code.CLAIM_UNSUPPORTED, claim=entry.name)
    if entry.name not in generated:
        return Rejection(
            code=Code.CLAIM_NOT_CREATED,
            claim=entry.name,
            detail=f"from template {entry.resource_claim_template_name}",
        )
    return generated[entry.name] or None


def _refusal(entry: PodResourceClaim, name: str, record: ClaimRecord | None, pod: Pod) -> Rejection | None:
    if record is None:
        return Rejection(code=Code.CLAIM_MISSING, claim=entry.name, detail=f"{pod.namespace}/{name}")
    meta = record.claim.metadata
    if meta.deletion_timestamp is not None:
        return Rejection(code=Code.CLAIM_DELETING, claim=entry.name, detail=f"{pod.namespace}/{name}")
    if entry.resource_claim_template_name and not entry.resource_claim_name and not _owned(record.claim, pod):
        return Rejection(
            code=Code.CLAIM_FOREIGN,
            claim=entry.name,
            detail=f"{pod.namespace}/{name} is not controlled by this pod",
        )
    return None


def _owned(claim: ResourceClaim, pod: Pod) -> bool:
    controller = claim.metadata.controller
    return controller is not None and controller.uid == pod.uid
