"""Extended resources of a pod that device classes back (KEP-5004): which node serves them how.

With the in-tree plugin off nobody else checks them: NodeResourcesFit skips such a resource on nodes that do not list it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.build import too_many_devices
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord, digest_of_spec
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node import Node
from dra_extender.model.pod import NO_COUNT, ContainerRequests, Pod, ResourceRequest
from dra_extender.model.resource_claim import (
    ClaimSpec,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestBody,
    ResourceClaim,
)
from dra_extender.scheduling.claims.lookup import FoundClaim, consumer_of

MOST_PLACES: Final = 1_000
"""How often the containers of one pod may name resources that device classes serve: each init container can use all 32 devices."""
REQUEST_NAME: Final = re.compile(r"container-[0-9]{1,4}-request-[0-9]{1,4}")
"""The name of a request for what one container asks of one resource."""
EXTENDED_LABEL: Final = "<extended-resources>"
"""By this name the claim for extended resources is found among those of its pod; no other claim of a pod can have it."""


class RequestMapping(NamedTuple):
    """A container gets its devices for a resource (or some of them) from this request."""

    container: str
    resource: str
    request: str


class ExtendedClaimNeed(NamedTuple):
    """The claim for what device classes serve of a pod's extended resources, on the nodes that serve the rest by plugin.

    It exists in memory only, under a UID of its own, until a bind creates it.
    """

    claim: FoundClaim
    mappings: tuple[RequestMapping, ...]

    def is_asked_by(self, record: ClaimRecord) -> bool:
        """Return whether a stored claim asks for the same."""
        return record.spec_digest == self.claim.record.spec_digest


class ExtendedNeed:
    """The extended resources that a pod needs; a device class backs at least one of them."""

    def __init__(self, pod: Pod, ledger: Ledger, existing: FoundClaim | None = None) -> None:
        self._pod = pod
        self._ledger = ledger
        self._existing = existing
        self._resources = frozenset(pod.extended_resources)
        self._needs: dict[frozenset[str], ExtendedClaimNeed | Rejection | None] = {}

    @property
    def is_met(self) -> bool:
        return self._existing is not None

    def on(self, node: Node) -> ExtendedClaimNeed | Rejection | None:
        """Return the claim that the pod needs on this node; None if the node's own resources, or the claim that exists, suffice.

        It is the same object for nodes that list the same of the pod's extended resources.
        A resource that the node lists with a positive amount is served by its device plugin, which NodeResourcesFit checks.
        """
        listed = self._resources & node.extended_resources
        try:
            return self._needs[listed]
        except KeyError:
            need, existing = self._find(listed), self._existing
            if existing is not None and not isinstance(need, Rejection):
                if need is not None and need.is_asked_by(existing.record):
                    need = None
                else:
                    need = with_subject(self._pod, Rejection(code=Code.CLAIM_ON_OTHER_NODE, claim=existing.label))
            self._needs[listed] = need
            return need

    def met_by(self, existing: FoundClaim) -> "ExtendedNeed":
        """Return this need, served by an existing claim: None on a node that needs an equal claim, a rejection on any other."""
        return ExtendedNeed(self._pod, self._ledger, existing)

    def _find(self, listed: frozenset[str]) -> ExtendedClaimNeed | Rejection | None:
        backing = self._ledger.backing
        missing = sorted(self._resources - listed)
        for name in missing:
            if name not in backing:
                return Rejection(code=Code.EXTENDED_RESOURCE, resource=name)
            if not self._ledger.serves_extended_resources:
                detail = f"it is backed by device class {backing[name]}, but DRAExtendedResource is off"
                return Rejection(code=Code.EXTENDED_RESOURCE, resource=name, detail=detail)
        if missing:
            return self._planned_claim({name: backing[name] for name in missing})
        if self._pod.extended_claim:
            # The API server lets nobody take this back, and the kubelet would wait for the claim.
            detail = f"the pod is told to use claim {self._pod.extended_claim}, which is not needed there"
            return Rejection(code=Code.EXTENDED_CLAIM, detail=detail)
        return None

    def _planned_claim(self, classes: Mapping[str, str]) -> ExtendedClaimNeed | Rejection:
        for container in self._pod.extended_requests:
            for request in container.requests:
                if request.amount == NO_COUNT and request.resource in classes:
                    detail = f"container {container.name} asks for no whole number"
                    return Rejection(code=Code.EXTENDED_RESOURCE, resource=request.resource, detail=detail)
        too_much = why_too_much(self._pod.extended_requests, classes)
        if too_much:
            return with_subject(self._pod, Rejection(code=Code.TOO_MANY_DEVICES, claim=EXTENDED_LABEL, detail=too_much))
        requests, mappings = extended_requests(self._pod.extended_requests, classes)
        metadata = ObjectMeta(name=EXTENDED_LABEL, namespace=self._pod.namespace, uid=planned_uid(self._pod))
        claim = ResourceClaim(metadata=metadata, spec=ClaimSpec(devices=DeviceClaim(requests=requests)))
        record = ClaimRecord(claim, b"", digest_of_spec(claim), claim.spec.devices_asked)
        return ExtendedClaimNeed(FoundClaim(EXTENDED_LABEL, record, consumer_of(self._pod)), mappings)


def extended_need(pod: Pod, ledger: Ledger) -> ExtendedNeed | None:
    """Return what the pod needs of extended resources; None if no class backs any of them, which leaves them to NodeResourcesFit.

    NodeResourcesFit does not look at what a class backs as far as kube-scheduler knows, which may be behind us: so what a class has
    backed, and names that only a class can back, are ours in any case.
    """
    if pod.extended_claim or any(
        name in ledger.once_backed or name.startswith(IMPLICIT_RESOURCE_PREFIX) for name in pod.extended_resources
    ):
        return ExtendedNeed(pod, ledger)
    return None


def existing_claim(pod: Pod, ledger: Ledger) -> FoundClaim | None:
    """Return the claim that an earlier attempt of the pod wrote and that has devices; a bind decides what becomes of any other."""
    for record in ledger.claims.for_extended_resources(pod.namespace, pod.uid):
        decided = record.claim.status.allocation is not None or record.pending is not None
        if decided and record.has_status and record.claim.metadata.deletion_timestamp is None:
            return FoundClaim(EXTENDED_LABEL, record, consumer_of(pod))
    return None


def subject_of(pod: Pod, claim: str, request: str = "") -> str:
    """Return resource and container for which the pod's claim for extended resources asks; empty for any other claim."""
    return requested_text(pod.extended_requests, request) if claim == EXTENDED_LABEL else ""


def with_subject(pod: Pod, rejection: Rejection) -> Rejection:
    """Return the rejection with `subject_of` what it is about.

    The names of containers are the pod's own: rejections are kept for all pods that ask for the same.
    """
    subject = subject_of(pod, rejection.claim, rejection.request)
    return msgspec.structs.replace(rejection, subject=subject) if subject else rejection


def planned_uid(pod: Pod) -> str:
    """Return the UID under which a claim for extended resources is planned and held before it exists."""
    return f"{pod.uid}/extended-resources"


def requested_text(containers: Sequence[ContainerRequests], request: str) -> str:
    """Return e.g. `extended resource example.com/gpu of container "main"`; for any other request, the claim that they share."""
    for container, resource_request in requests_named(containers, request):
        return f'extended resource {resource_request.resource} of container "{container.name}"'
    return "claim for extended resources"


def requests_named(
    containers: Sequence[ContainerRequests], request: str
) -> Iterator[tuple[ContainerRequests, ResourceRequest]]:
    """Yield the container and what it asks for under the name of a request of the claim, if the claim has such a request."""
    for container in containers:
        for resource_request in container.requests:
            if _name(container, resource_request) == request:
                yield container, resource_request


def why_too_much(containers: Sequence[ContainerRequests], classes: Mapping[str, str]) -> str:
    """Return why no claim can serve the resources in `classes`, in time linear in what the containers ask; empty if one may.

    Call it before `extended_requests`, whose time grows with the product of the requests of init containers and containers.
    """
    places = 0
    lasting: dict[str, int] = {}
    beyond: dict[str, int] = {}
    # From the last container to the first: an init container has what is asked after it.
    for container in reversed(tuple(containers)):
        for request in container.requests:
            if request.resource not in classes:
                continue
            places += 1
            later = lasting.get(request.resource, 0)
            if container.long_lived:
                lasting[request.resource] = later + request.amount
            else:
                beyond[request.resource] = max(request.amount - later, beyond.get(request.resource, 0))
    if excess := too_many_devices([[sum(lasting.values()) + sum(beyond.values())]]):
        return excess
    if places > MOST_PLACES:
        return f"asks for devices in {places} places of its containers, {MOST_PLACES} are served"
    return ""


def extended_requests(
    containers: Sequence[ContainerRequests], classes: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[RequestMapping, ...]]:
    """Return the requests for the resources in `classes` (resource -> device class), and which container uses which of them.

    As upstream: one request per container and resource, `container-<index>-request-<place>`.  Containers that run on side by side
    have devices of their own.  An init container that ends before they start uses theirs, if they come later, and what it needs
    beyond that is one more request, which all such init containers share: the largest.
    """
    by_resource: dict[str, list[tuple[ContainerRequests, ResourceRequest]]] = {}
    for container in containers:
        for request in container.requests:
            if request.resource in classes:
                by_resource.setdefault(request.resource, []).append((container, request))
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource, asked in sorted(by_resource.items()):
        counts, uses = _counts_and_uses(asked)
        for name, count in counts.items():
            body = DeviceRequestBody(device_class_name=classes[resource], allocation_mode="ExactCount", count=count)
            requests.append(DeviceRequest(name=name, exactly=body))
        mappings.extend(RequestMapping(container, resource, request) for container, request in uses)
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _counts_and_uses(
    asked: Sequence[tuple[ContainerRequests, ResourceRequest]],
) -> tuple[Mapping[str, int], Sequence[tuple[str, str]]]:
    """Return the devices that each request for one resource asks for, and which (container, request) belong together."""
    lasting = [(container, request) for container, request in asked if container.long_lived]
    counts = {_name(container, request): request.amount for container, request in lasting}
    uses = [(container.name, _name(container, request)) for container, request in lasting]
    beyond: dict[str, int] = {}
    for container, request in asked:
        missing = 0 if container.long_lived else request.amount
        for later, later_request in lasting:
            if missing > 0 and later.index > container.index:
                uses.append((container.name, _name(later, later_request)))
                missing -= later_request.amount
        if missing > 0:
            beyond[_name(container, request)] = missing
            uses.append((container.name, _name(container, request)))
    if not beyond:
        return counts, uses
    largest = max(beyond, key=beyond.__getitem__)
    counts[largest] = beyond[largest]
    return counts, [(container, largest if request in beyond else request) for container, request in uses]


def _name(container: ContainerRequests, request: ResourceRequest) -> str:
    return f"container-{container.index}-request-{request.place}"
