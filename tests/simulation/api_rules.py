"""Validation of the kinds that the parts of a control plane write for themselves: Leases, Events, EndpointSlices, Secrets."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from dra_extender.scheduling.ports.cluster import NOTE_BYTES
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part

CONDITIONAL: Final = frozenset({StoredKind.LEASE})
"""Kinds that cannot be updated without a resourceVersion."""
_EVENT_TEXTS: Final = ("reportingController", "reportingInstance", "action", "reason")
_IMMUTABLE: Final[dict[StoredKind, tuple[str, ...]]] = {
    StoredKind.ENDPOINT_SLICE: ("addressType",),
    StoredKind.SECRET: ("type",),
    StoredKind.EVENT: ("regarding", "reason", "note", "type", "eventTime", "action", "reportingController"),
}
_INTERNAL: Final = {"note": "message", "regarding": "involvedObject"}
"""Fields that refusals of Events name otherwise than the API."""


def problems(kind: StoredKind, before: Json | None, thing: Json) -> list[str]:
    """What is wrong with an object: the path of a field, the kind of the error, and why."""
    found = list(_CHECKS[kind](thing)) if kind in _CHECKS else []
    for field in _IMMUTABLE.get(kind, ()):
        if before is not None and before.get(field) != thing.get(field):
            found.append(f"{_INTERNAL.get(field, field)}: Invalid value: field is immutable")
    return found


def _lease(thing: Json) -> Iterator[str]:
    spec = part(thing, "spec")
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        yield "spec.leaseDurationSeconds: Invalid value: must be greater than 0"
    if (spec.get("leaseTransitions") or 0) < 0:
        yield "spec.leaseTransitions: Invalid value: must be greater than or equal to 0"


def _event(thing: Json) -> Iterator[str]:
    if not thing.get("eventTime"):
        yield "eventTime: Required value"
    for field in _EVENT_TEXTS:
        if not thing.get(field):
            yield f"{field}: Required value"
    if thing.get("type") not in ("Normal", "Warning"):
        yield "type: Invalid value: has invalid value"
    if len((thing.get("note") or "").encode()) > NOTE_BYTES:
        yield f"message: Invalid value: can have at most {NOTE_BYTES} characters"
    if part(thing, "regarding").get("namespace", "default") != thing["metadata"].get("namespace"):
        yield "involvedObject.namespace: Invalid value: does not match event.namespace"


def _endpoint_slice(thing: Json) -> Iterator[str]:
    if thing.get("addressType") not in ("IPv4", "IPv6", "FQDN"):
        yield "addressType: Unsupported value: supported values: IPv4, IPv6, FQDN"
    for index, endpoint in enumerate(thing.get("endpoints") or []):
        for place, address in enumerate(endpoint.get("addresses") or []):
            try:
                ipaddress.ip_address(address)
            except ValueError:
                yield f"endpoints[{index}].addresses[{place}]: Invalid value: must be a valid IP address"


_CHECKS: Final = {
    StoredKind.LEASE: _lease,
    StoredKind.EVENT: _event,
    StoredKind.ENDPOINT_SLICE: _endpoint_slice,
}
