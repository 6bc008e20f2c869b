"""What has to be allocated for extended resources that device classes back (KEP-5004), as requests of one claim."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.model.pod import ContainerRequests, ResourceRequest
from app.model.resource_claim import DeviceRequest, DeviceRequestBody


class RequestMapping(NamedTuple):
    """A container gets its devices for a resource (or some of them) from this request."""

    container: str
    resource: str
    request: str


class ExtendedRequests(NamedTuple):
    """The requests of the claim, by name, and which container uses which of them for what."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[RequestMapping, ...]


def extended_requests(containers: Sequence[ContainerRequests], classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests for the resources in `classes` (resource -> device class); other resources of the containers are left out.

    As upstream: one request per container and resource, `container-<index>-request-<place>`.  Containers that run on side by side
    have devices of their own.  An init container that ends before they start uses theirs, if they come later, and what it needs
    beyond that is one more request, which all such init containers share: the largest.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    each_container = tuple(containers)
    for resource in sorted(classes):
        found = _of_resource(each_container, resource)
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


def _of_resource(containers: Sequence[ContainerRequests], resource: str) -> _Found:
    lasting: list[_Share] = []
    mappings: list[RequestMapping] = []
    for container, request in _asking(containers, resource, long_lived=True):
        share = _Share(_name(container, request), request.amount, container.index)
        lasting.append(share)
        mappings.append(RequestMapping(container.name, resource, share.name))
    passing: list[_Share] = []
    used: list[tuple[str, str]] = []
    for container, request in _asking(containers, resource, long_lived=False):
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


def _asking(
    containers: Sequence[ContainerRequests], resource: str, *, long_lived: bool
) -> Iterator[tuple[ContainerRequests, ResourceRequest]]:
    for container in containers:
        if container.long_lived is long_lived:
            yield from ((container, each) for each in container.requests if each.resource == resource)


def _name(container: ContainerRequests, request: ResourceRequest) -> str:
    return f"container-{container.index}-request-{request.place}"


def _device_request(share: _Share, class_name: str) -> DeviceRequest:
    body = DeviceRequestBody(device_class_name=class_name, allocation_mode="ExactCount", count=share.count)
    return DeviceRequest(name=share.name, exactly=body)
