"""The devices of a claim whose status cannot be read.

Schedulers and drivers write statuses.  One unreadable value in a status must not make the devices look free.
"""

from typing import Final, TypeVar

import msgspec

from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.allocation import AllocationResult, DeviceAllocation, DeviceResult
from dra_extender.model.api_json import ModelError, Value, decode, reader
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.resource_claim import ClaimHead, ClaimStatus, ConsumerReference

_T = TypeVar("_T")
_ABSENT: Final = msgspec.Raw(b"null")


class _Devices(Value, frozen=True):
    results: tuple[msgspec.Raw, ...] | None = ()


class _Allocation(Value, frozen=True):
    devices: _Devices | None = None
    allocation_timestamp: msgspec.Raw = _ABSENT


class _Status(Value, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: msgspec.Raw = _ABSENT


class _Claim(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status | None = None


class _Named(Value, frozen=True):
    """The part of a result without which it is none."""

    driver: str
    pool: str
    device: str


class _Admin(Value, frozen=True):
    admin_access: bool | None = None


_read_claim = reader("ResourceClaim", _Claim)
_read_result = reader("ResourceClaim", DeviceResult)
_read_named = reader("ResourceClaim: a device of the allocation cannot be told", _Named)
_read_admin = reader("ResourceClaim", _Admin)
_TEXT: Final = msgspec.json.Decoder(str | None)
_CONSUMERS: Final = msgspec.json.Decoder(tuple[ConsumerReference, ...] | None)


def read_broken(data: bytes) -> ClaimHead:
    """Return the claim in `data` (API JSON) with as much of its status as can be read.

    A result of the allocation that cannot be read keeps driver, pool and device, and no share: the whole device counts as taken.
    Nothing says on which nodes the allocation is usable.

    Raises:
        ModelError: the metadata, or the name of an allocated device, cannot be read either.
    """
    claim = _read_claim(data)
    status = claim.status or _Status()
    stored = status.allocation
    allocation = None
    if stored is not None:
        results = (stored.devices or _Devices()).results or ()
        allocation = AllocationResult(
            devices=DeviceAllocation(results=tuple(_result(bytes(result)) for result in results)),
            allocation_timestamp=_readable(_TEXT, stored.allocation_timestamp),
        )
    reserved = _readable(_CONSUMERS, status.reserved_for) or ()
    return ClaimHead(metadata=claim.metadata, status=ClaimStatus(allocation=allocation, reserved_for=reserved))


def _result(data: bytes) -> DeviceResult:
    try:
        result = _read_result(data)
        for text in (result.consumed_capacity or {}).values():
            parse_quantity(text)
    except (ModelError, QuantityError):
        named = _read_named(data)
        return DeviceResult(
            request="", driver=named.driver, pool=named.pool, device=named.device, admin_access=_is_admin(data)
        )
    return result


def _is_admin(data: bytes) -> bool | None:
    try:
        return _read_admin(data).admin_access
    except ModelError:
        return None


def _readable(decoder: "msgspec.json.Decoder[_T]", data: msgspec.Raw) -> _T | None:
    try:
        return decode("ResourceClaim", decoder, bytes(data))
    except ModelError:
        return None
