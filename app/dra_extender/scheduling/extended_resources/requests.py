"""What has to be allocated for extended resources that device classes back (KEP-5004), as requests of one claim."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.model.pod import ContainerRequests, ResourceRequest
from dra_extender.model.resource_claim import DeviceRequest, DeviceRequestBody

MOST_PLACES: Final = 1_000
"""How often the containers of one pod may name resources that device classes serve: each init container can use all 32 devices."""


class RequestMapping(NamedTuple):
    """A container gets its devices for a resource (or some of them) from this request."""

    container: str
    resource: str
    request: str


class ExtendedRequests(NamedTuple):
    """The requests of the claim, by name, and which container uses which of them for what."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[RequestMapping, ...]


def requested_text(containers: Sequence[ContainerRequests], request: str) -> str:
    """E.g. `extended resource example.com/gpu of container "main"`; for what is no request of them, what they share: the claim."""
    for container in containers:
        for each in container.requests:
            if _name(container, each) == request:
                return f'extended resource {each.resource} of container "{container.name}"'
    return "claim for extended resources"


def why_too_much(containers: Sequence[ContainerRequests], classes: Mapping[str, str]) -> str:
    """Why no claim can serve the resources in `classes`, in time that is linear in what the containers ask; empty if one may.

    Call it before `extended_requests`, whose time grows with the product of the requests of init containers and containers.
    """
    places = 0
    lasting: dict[str, int] = {}
    beyond: dict[str, int] = {}
    # From the last container to the first: an init container has what is asked after it.
    for container in reversed(tuple(containers)):
        for each in container.requests:
            if each.resource not in classes:
                continue
            places += 1
            later = lasting.get(each.resource, 0)
            if container.long_lived:
                lasting[each.resource] = later + each.amount
            else:
                beyond[each.resource] = max(each.amount - later, beyond.get(each.resource, 0))
    devices = sum(lasting.values()) + sum(beyond.values())
    if devices > MAX_RESULTS:
        return f"asks for {devices} devices, a claim may have {MAX_RESULTS}"
    if places > MOST_PLACES:
        return f"asks for devices in {places} places of its containers, {MOST_PLACES} are served"
    return ""


def extended_requests(containers: Sequence[ContainerRequests], classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests for the resources in `classes` (resource -> device class); other resources of the containers are left out.

    As upstream: one request per container and resource, `container-<index>-request-<place>`.  Containers that run on side by side
    have devices of their own.  An init container that ends before they start uses theirs, if they come later, and what it needs
    beyond that is one more request, which all such init containers share: the largest.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    by_resource = _by_resource(containers, classes)
    for resource in sorted(by_resource):
        found = _of_resource(by_resource[resource], resource)
        requests.extend(_device_request(each, classes[resource]) for each in found.shares)
        mappings.extend(found.mappings)
    return ExtendedRequests(tuple(sorted(requests, key=lambda each: each.name)), tuple(mappings))


@dataclass(frozen=True, slots=True)
class _Share:
    """Devices that a container asks for itself, and where it stands among the containers."""

    name: str
    count: int
    index: int


class _Found(NamedTuple):
    shares: Sequence[_Share]
    mappings: Sequence[RequestMapping]


_Request = tuple[ContainerRequests, ResourceRequest]


def _by_resource(containers: Sequence[ContainerRequests], classes: Mapping[str, str]) -> Mapping[str, list[_Request]]:
    """The requests for each of the resources, in the order of the containers."""
    found: dict[str, list[_Request]] = {}
    for container in containers:
        for each in container.requests:
            if each.resource in classes:
                found.setdefault(each.resource, []).append((container, each))
    return found


def _of_resource(requests: Sequence[_Request], resource: str) -> _Found:
    lasting: list[_Share] = []
    mappings: list[RequestMapping] = []
    for container, request in _of_lifetime(requests, long_lived=True):
        share = _Share(_name(container, request), request.amount, container.index)
        lasting.append(share)
        mappings.append(RequestMapping(container.name, resource, share.name))
    passing: list[_Share] = []
    used: list[tuple[str, str]] = []
    for container, request in _of_lifetime(requests, long_lived=False):
        missing = request.amount
        for share in lasting:
            if missing > 0 and share.index > container.index:
                used.append((container.name, share.name))
                missing -= share.count
        if missing > 0:
            passing.append(_Share(_name(container, request), missing, container.index))
            used.append((container.name, passing[-1].name))
    if not passing:
        return _Found(lasting, [*mappings, *(RequestMapping(name, resource, request) for name, request in used)])
    largest = max(passing, key=lambda each: each.count)
    replaced = {each.name: largest.name for each in passing}
    shared = [RequestMapping(name, resource, replaced.get(request, request)) for name, request in used]
    return _Found([largest, *lasting], [*mappings, *shared])


def _of_lifetime(requests: Sequence[_Request], *, long_lived: bool) -> Iterator[_Request]:
    return (each for each in requests if each[0].long_lived is long_lived)


def _name(container: ContainerRequests, request: ResourceRequest) -> str:
    return f"container-{container.index}-request-{request.place}"


def _device_request(share: _Share, class_name: str) -> DeviceRequest:
    body = DeviceRequestBody(device_class_name=class_name, allocation_mode="ExactCount", count=share.count)
    return DeviceRequest(name=share.name, exactly=body)
