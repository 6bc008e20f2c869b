"""ResourceClaims: what is asked for, what is allocated, and for whom."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.model.allocation import AllocationResult, DeviceToleration, OpaqueConfiguration
from dra_extender.model.api_json import ModelError, Value, reader
from dra_extender.model.fields import (
    Described,
    DnsLabel,
    DriverName,
    Format,
    FullyQualifiedName,
    Gate,
    Items,
    Mark,
    Name,
    Natural,
    OneOf,
    PoolName,
    Quantity,
    RequestName,
    Subdomain,
    Word,
)
from dra_extender.model.metadata import Condition, IdentifiedObject, ObjectIdentity, ObjectMeta

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""Is "true" on a claim that a scheduler made for extended resources of the pod that controls it (KEP-5004)."""
MAX_RESERVATIONS: Final = 256
OWN_ENTRIES: Final = 200
"""Most entries of `reservedFor` for pods of a PodGroup; further pods are reserved through their group where kubelets accept that.

One entry is left for the group, and 55 for pods that are bound to nodes whose kubelets turn out not to start such pods.
"""
_DEVICES_OF_ALL: Final = 32
"""What `devices_asked` counts for mode All."""


class CelSelector(Value, frozen=True):
    """A CEL expression over one device."""

    expression: Annotated[str, Format.EXPRESSION, Mark.REQUIRED] = ""


class DeviceSelector(Value, frozen=True):
    """One selector; only CEL exists, anything else reads as None and must be refused."""

    cel: Annotated[CelSelector, Mark.REQUIRED] | None = None


Selectors = Annotated[tuple[DeviceSelector, ...], Items(max_items=32)]


class CapacityRequests(Value, frozen=True):
    """Amounts of capacity a request wants (KEP-5075), as published text."""

    requests: dict[Annotated[str, Format.CAPACITY], Quantity] = {}


class DerivedAttribute(Value, frozen=True):
    """A named CEL expression whose value constraints may compare."""

    name: Annotated[FullyQualifiedName, Mark.REQUIRED] = ""
    expression: Annotated[str, Format.UNCOMPILED_EXPRESSION, Mark.REQUIRED] = ""


class _RequestBody(Value, frozen=True):
    device_class_name: Annotated[Subdomain, Mark.REQUIRED] = ""
    selectors: Selectors = ()
    allocation_mode: Annotated[str, OneOf("ExactCount", "All")] = ""
    count: Natural = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Annotated[CapacityRequests, Gate.CONSUMABLE_CAPACITY] | None = None
    derived_attributes: Annotated[tuple[DerivedAttribute, ...], Items(max_items=32, once="name")] = ()


class ExactRequest(_RequestBody, frozen=True):
    """`exactly` of a request."""

    admin_access: bool | None = None


class SubRequest(_RequestBody, frozen=True):
    """An entry of `firstAvailable`."""

    name: Annotated[DnsLabel, Mark.REQUIRED] = ""


class DeviceRequestBody(_RequestBody, frozen=True):
    """`exactly` of a request, or an entry of `firstAvailable`; the API server has filled in mode and count."""

    name: str = ""
    admin_access: bool | None = None


class DeviceRequest(Value, frozen=True):
    """One named request: either `exactly`, or alternatives in `first_available` (which wins when both are set)."""

    name: Annotated[DnsLabel, Mark.REQUIRED] = ""
    exactly: Annotated[DeviceRequestBody, Described(ExactRequest)] | None = None
    first_available: Annotated[
        tuple[DeviceRequestBody, ...], Described(tuple[SubRequest, ...]), Items(1, 8, once="name")
    ] = ()

    @property
    def options(self) -> tuple[tuple[str, DeviceRequestBody], ...]:
        """The alternatives, or `exactly` alone, each by the name that its results have."""
        if self.first_available:
            return tuple((f"{self.name}/{body.name}", body) for body in self.first_available)
        return () if self.exactly is None else ((self.name, self.exactly),)


RequestNames = Annotated[tuple[RequestName, ...], Items(max_items=32, once="")]


class DeviceConstraint(Value, frozen=True):
    """A condition over devices of the listed requests (all requests if none is listed)."""

    requests: RequestNames = ()
    match_attribute: FullyQualifiedName | None = None
    distinct_attribute: FullyQualifiedName | None = None


class ClaimConfiguration(Value, frozen=True):
    """Configuration of the listed requests (all if none is listed)."""

    requests: RequestNames = ()
    opaque: Annotated[OpaqueConfiguration, Mark.REQUIRED] | None = None


class DeviceClaim(Value, frozen=True):
    """`spec.devices` of a claim.  The API server spells no requests as null."""

    requests: Annotated[tuple[DeviceRequest, ...], Items(max_items=32, once="name"), Mark.WHOLE] | None = ()
    constraints: Annotated[tuple[DeviceConstraint, ...], Items(max_items=32), Mark.WHOLE] = ()
    config: Annotated[tuple[ClaimConfiguration, ...], Items(max_items=32)] = ()


class ClaimSpec(Value, frozen=True):
    """`spec` of a claim."""

    devices: DeviceClaim = DeviceClaim()

    @property
    def options(self) -> Iterator[tuple[str, DeviceRequestBody]]:
        """The options of all requests."""
        return chain.from_iterable(request.options for request in self.devices.requests or ())

    @property
    def devices_asked(self) -> int:
        """About how many devices the claim asks for; mode All counts as 32."""
        total = 0
        for request in self.devices.requests or ():
            counts = (
                _DEVICES_OF_ALL if option.allocation_mode == "All" else option.count or 1
                for _, option in request.options
            )
            total += max(counts, default=0)
        return total


class ConsumerReference(Value, frozen=True):
    """A consumer that may use an allocated claim: a pod (core group) or a PodGroup."""

    api_group: Word = ""
    resource: Word = ""
    name: Name = ""
    uid: Name = ""

    @property
    def is_pod(self) -> bool:
        return self.resource == "pods" and not self.api_group


class AllocatedDeviceStatus(Value, frozen=True, rename={"share_id": "shareID"}):
    """The driver's report on one allocated device.  The API server spells no conditions as null."""

    driver: DriverName = ""
    pool: PoolName = ""
    device: DnsLabel = ""
    share_id: Name | None = None
    conditions: tuple[Condition, ...] | None = ()


class ClaimStatus(Value, frozen=True):
    """`status` of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: Annotated[tuple[ConsumerReference, ...], Mark.WHOLE] = ()
    devices: Annotated[tuple[AllocatedDeviceStatus, ...], Gate.DEVICE_STATUS] = ()


class ClaimHead(Value, frozen=True):
    """A ResourceClaim without its spec: its identity, its allocation and its consumers."""

    metadata: Annotated[ObjectMeta, Mark.REQUIRED] = ObjectMeta()
    status: Annotated[ClaimStatus, Mark.UNCHECKED] = ClaimStatus()

    @property
    def extended_for(self) -> str:
        """UID of the pod for whose extended resources the claim was made, empty for any other claim."""
        owner = self.metadata.controller
        if owner is None or self.metadata.annotations.get(EXTENDED_ANNOTATION) != "true":
            return ""
        return owner.uid

    def reserved_by(self, uid: str) -> bool:
        return any(consumer.uid == uid for consumer in self.status.reserved_for)


class ResourceClaim(ClaimHead, frozen=True):
    """A ResourceClaim as far as decisions read it."""

    spec: ClaimSpec = ClaimSpec()


class _Asked(Value, frozen=True):
    spec: ClaimSpec = ClaimSpec()


read_claim = reader("ResourceClaim", ResourceClaim)
read_head = reader("ResourceClaim", ClaimHead)
"""Of a claim whose spec need not be readable."""
_read_asked = reader("ResourceClaim", _Asked)
_read_identified = reader("ResourceClaim", IdentifiedObject)


def read_identity(data: bytes) -> ObjectIdentity:
    """Return the identity of the claim in `data` (API JSON); nothing else in it need be readable."""
    return _read_identified(data).metadata


def read_spec(data: bytes) -> ClaimSpec:
    """Return the spec of the claim in `data` (API JSON), which it does not keep alive."""
    return detached(_read_asked(data).spec)


def detached(spec: ClaimSpec) -> ClaimSpec:
    """Return the spec with copies of parameters, which would keep alive the whole claim that they were read from."""
    config = tuple(
        entry
        if entry.opaque is None
        else replace(entry, opaque=replace(entry.opaque, parameters=entry.opaque.parameters.copy()))
        for entry in spec.devices.config
    )
    return replace(spec, devices=replace(spec.devices, config=config)) if config else spec


def asks_admin_access(data: bytes) -> bool:
    """Return whether the claim in `data` (API JSON) asks for administrative access; False where its spec cannot be read."""
    try:
        requests = read_spec(data).devices.requests or ()
    except ModelError:
        return False
    return any(request.exactly is not None and bool(request.exactly.admin_access) for request in requests)


def claim_from(raw: Mapping[str, Any]) -> ResourceClaim:
    """Return a claim from decoded JSON, as `read_claim` does."""
    return read_claim(msgspec.json.encode(raw))
