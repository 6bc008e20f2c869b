"""Extended resources of a pod that device classes back (KEP-5004): which node serves them how.

With the in-tree plugin off nobody else checks them: NodeResourcesFit skips such a resource on nodes that do not list it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord, digest_of_spec
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node import Node
from dra_extender.model.pod import NO_COUNT, Pod
from dra_extender.model.resource_claim import ClaimSpec, DeviceClaim, ResourceClaim
from dra_extender.scheduling.claims.lookup import FoundClaim, consumer_of
from dra_extender.scheduling.extended_resources.requests import (
    RequestMapping,
    extended_requests,
    requested_text,
    why_too_much,
)

EXTENDED_LABEL: Final = "<extended-resources>"
"""By this name the claim for extended resources is found among those of its pod; no other claim of a pod can have it."""


class ExtendedClaimNeed(NamedTuple):
    """The claim for what device classes serve of a pod's extended resources, on the nodes that serve the rest by plugin.

    It exists in memory only, under a UID of its own, until a bind creates it.
    """

    found: FoundClaim
    mappings: tuple[RequestMapping, ...]

    def is_asked_by(self, record: ClaimRecord) -> bool:
        """Whether a stored claim asks for the same."""
        return record.spec_digest == self.found.record.spec_digest


class ExtendedNeed:
    """What a pod needs of extended resources; a device class backs at least one of them."""

    def __init__(self, pod: Pod, ledger: Ledger, existing: FoundClaim | None = None) -> None:
        """`existing`: the claim that meets the need, if there is one."""
        self._pod = pod
        self._ledger = ledger
        self._existing = existing
        self._wanted = frozenset(pod.extended_resources)
        self._known: dict[frozenset[str], ExtendedClaimNeed | Rejection | None] = {}

    @property
    def is_met(self) -> bool:
        """Whether a claim exists that serves it."""
        return self._existing is not None

    def on(self, node: Node) -> ExtendedClaimNeed | Rejection | None:
        """The claim that the pod needs on this node; None if the node's own resources suffice.

        It is the same object for nodes that list the same of the pod's extended resources.

        A resource that the node lists with a positive amount is served by its device plugin, which NodeResourcesFit checks.
        """
        own = self._wanted & node.extended_resources
        try:
            return self._known[own]
        except KeyError:
            found = self._known[own] = self._unless_met(self._find(own))
            return found

    def met_by(self, existing: FoundClaim) -> "ExtendedNeed":
        """The need with a claim that exists: it is met on nodes where it would be the same claim, and rejected on others."""
        return ExtendedNeed(self._pod, self._ledger, existing)

    def _unless_met(self, found: ExtendedClaimNeed | Rejection | None) -> ExtendedClaimNeed | Rejection | None:
        existing = self._existing
        if existing is None or isinstance(found, Rejection):
            return found
        if found is not None and found.is_asked_by(existing.record):
            return None
        return named(self._pod, Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=existing.label))

    def _find(self, own: frozenset[str]) -> ExtendedClaimNeed | Rejection | None:
        backing = self._ledger.backing
        missing = sorted(self._wanted - own)
        for name in missing:
            if name not in backing:
                return Rejection(code=Code.EXTENDED_RESOURCE, resource=name)
            if not self._ledger.serves_extended_resources:
                detail = f"it is backed by device class {backing[name]}, but DRAExtendedResource is off"
                return Rejection(code=Code.EXTENDED_RESOURCE, resource=name, detail=detail)
        if missing:
            return self._special({name: backing[name] for name in missing})
        if self._pod.extended_claim:
            # The API server lets nobody take this back, and the kubelet would wait for the claim.
            detail = f"the pod is told to use claim {self._pod.extended_claim}, which is not needed there"
            return Rejection(code=Code.EXTENDED_CLAIM, detail=detail)
        return None

    def _special(self, classes: Mapping[str, str]) -> ExtendedClaimNeed | Rejection:
        for container in self._pod.extended_requests:
            for each in container.requests:
                if each.amount == NO_COUNT and each.resource in classes:
                    detail = f"container {container.name} asks for no whole number"
                    return Rejection(code=Code.EXTENDED_RESOURCE, resource=each.resource, detail=detail)
        too_much = why_too_much(self._pod.extended_requests, classes)
        if too_much:
            return named(self._pod, Rejection(code=Code.TOO_MANY_DEVICES, claim=EXTENDED_LABEL, detail=too_much))
        asked = extended_requests(self._pod.extended_requests, classes)
        metadata = ObjectMeta(name=EXTENDED_LABEL, namespace=self._pod.namespace, uid=special_uid(self._pod))
        claim = ResourceClaim(metadata=metadata, spec=ClaimSpec(devices=DeviceClaim(requests=asked.requests)))
        record = ClaimRecord(claim, b"", digest_of_spec(claim), claim.spec.devices_asked)
        return ExtendedClaimNeed(FoundClaim(EXTENDED_LABEL, record, consumer_of(self._pod)), asked.mappings)


class NodesByNeed(NamedTuple):
    """Nodes on which a pod needs the same claim for its extended resources (None: none)."""

    special: ExtendedClaimNeed | None
    nodes: Sequence[str]


def extended_need(pod: Pod, ledger: Ledger) -> ExtendedNeed | None:
    """What the pod needs of extended resources; None if no class backs any of them, which leaves them to NodeResourcesFit.

    NodeResourcesFit does not look at what a class backs as far as kube-scheduler knows, which may be behind us: so what a class has
    backed, and names that only a class can back, are ours in any case.
    """
    if pod.extended_claim or any(
        name in ledger.once_backed or name.startswith(IMPLICIT_RESOURCE_PREFIX) for name in pod.extended_resources
    ):
        return ExtendedNeed(pod, ledger)
    return None


def existing_claim(pod: Pod, ledger: Ledger) -> FoundClaim | None:
    """The claim that an earlier attempt of the pod wrote and that has devices; a bind decides what becomes of any other."""
    for record in ledger.claims.for_extended_resources(pod.namespace, pod.uid):
        decided = record.claim.status.allocation is not None or record.pending is not None
        if decided and record.has_status and record.claim.metadata.deletion_timestamp is None:
            return FoundClaim(EXTENDED_LABEL, record, consumer_of(pod))
    return None


def subject_of(pod: Pod, claim: str, request: str = "") -> str:
    """How people read what the pod's claim for extended resources asks for: resource and container; empty for any other claim."""
    return requested_text(pod.extended_requests, request) if claim == EXTENDED_LABEL else ""


def named(pod: Pod, rejection: Rejection) -> Rejection:
    """The rejection with `subject_of` what it is about.

    The names of containers are the pod's own: rejections are kept for all pods that ask for the same.
    """
    subject = subject_of(pod, rejection.claim, rejection.request)
    return msgspec.structs.replace(rejection, subject=subject) if subject else rejection


def special_uid(pod: Pod) -> str:
    """The UID under which devices are held for a claim that does not exist yet."""
    return f"{pod.uid}/extended-resources"
