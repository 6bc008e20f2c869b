"""Edits of raw claim JSON.

A write starts from the object as the server sent it, so fields this program does not know travel along.  Each function
takes and returns the bytes of a whole object and leaves its input alone.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from app.model.allocation import AllocationResult
from app.model.base import plain
from app.model.resource_claim import FINALIZER, ConsumerReference
from app.model.snapshot import SNAPSHOT_ANNOTATION


def with_finalizer_and_snapshot(raw: bytes, snapshot: str) -> bytes:
    """The claim with the delete-protection finalizer and this snapshot annotation; must be stored before the status."""
    claim = msgspec.json.decode(raw)
    metadata = claim.setdefault("metadata", {})
    finalizers = metadata.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    metadata.setdefault("annotations", {})[SNAPSHOT_ANNOTATION] = snapshot
    return msgspec.json.encode(claim)


def with_allocation(raw: bytes, allocation: AllocationResult, consumer: ConsumerReference) -> bytes:
    """The claim with this allocation, reserved for this consumer: one status write."""
    claim = msgspec.json.decode(raw)
    claim.setdefault("status", {})["allocation"] = msgspec.Raw(msgspec.json.encode(allocation))
    _reserve(claim["status"], consumer)
    return msgspec.json.encode(claim)


def with_reservations(raw: bytes, consumers: Iterable[ConsumerReference]) -> bytes:
    """The allocated claim, additionally reserved for these consumers."""
    claim = msgspec.json.decode(raw)
    for consumer in consumers:
        _reserve(claim.setdefault("status", {}), consumer)
    return msgspec.json.encode(claim)


def without_reservations(raw: bytes, uids: Collection[str]) -> bytes:
    """The claim without the reservations of the consumers with these UIDs."""
    claim = msgspec.json.decode(raw)
    status = claim.setdefault("status", {})
    status["reservedFor"] = [each for each in status.get("reservedFor", []) if each.get("uid") not in uids]
    return msgspec.json.encode(claim)


def without_allocation(raw: bytes) -> bytes:
    """The claim with neither allocation nor reservations."""
    claim = msgspec.json.decode(raw)
    status = claim.setdefault("status", {})
    status.pop("allocation", None)
    status.pop("reservedFor", None)
    return msgspec.json.encode(claim)


def without_snapshot(raw: bytes) -> bytes:
    """The claim without the snapshot annotation."""
    claim = msgspec.json.decode(raw)
    claim.get("metadata", {}).get("annotations", {}).pop(SNAPSHOT_ANNOTATION, None)
    return msgspec.json.encode(claim)


def without_finalizer(raw: bytes) -> bytes:
    """The claim without the delete-protection finalizer."""
    claim = msgspec.json.decode(raw)
    metadata = claim.get("metadata", {})
    metadata["finalizers"] = [each for each in metadata.get("finalizers", []) if each != FINALIZER]
    return msgspec.json.encode(claim)


def _reserve(status: dict[str, Any], consumer: ConsumerReference) -> None:
    reserved = status.setdefault("reservedFor", [])
    if all(each.get("uid") != consumer.uid for each in reserved):
        reserved.append(plain(consumer))
