"""The objects of a snapshot with other names: order, equality and amounts are as they were, names and sentences are gone."""

from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.inspection.objects import WITH_EVENTS, ClusterObjects, MissingKind, kept
from dra_extender.inspection.redaction.names import REDACTED, ClusterNames
from dra_extender.inspection.redaction.rules import RULES
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.api_json import decode_object
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION, allocation_digest

_SOURCE: Final = "a redacted snapshot"


class Redacted(NamedTuple):
    """The objects with other names, and the names that had to stay; `names` has both, and is not to be kept."""

    objects: ClusterObjects
    kept: tuple[str, ...]
    names: ClusterNames


def redacted(objects: ClusterObjects, random: Random) -> Redacted:
    """The objects with other names, which `random` draws.

    Decisions about them are those about the objects, with other names.

    Raises:
        ModelError: an object is no JSON object.
        UnorderableNameError: names that have to stay leave no room for another one between them.
    """
    decoded = {
        kind: [kept(kind, decode_object(kind, data)) for data in objects.of_kind(kind)]
        for kind in WITH_EVENTS
        if kind in objects.by_kind
    }
    names = ClusterNames()
    for kind, items in decoded.items():
        for item in items:
            RULES[kind](item, names)
    _missing(objects, names)
    names.resolve(random)
    by_kind = {
        kind: [msgspec.json.encode(_item(kind, item, names)) for item in items] for kind, items in decoded.items()
    }
    origin = msgspec.structs.replace(objects.origin, source=_SOURCE, missing=_missing(objects, names))
    return Redacted(ClusterObjects(origin, by_kind), names.kept, names)


def _missing(objects: ClusterObjects, names: ClusterNames) -> tuple[MissingKind, ...]:
    """Return what could not be read, without sentences; the namespace that could be read has another name."""
    return tuple(
        msgspec.structs.replace(missing, reason=REDACTED, namespace=missing.namespace and names.text(missing.namespace))
        for missing in objects.origin.missing
    )


def _item(kind: str, item: Mapping[str, Any], names: ClusterNames) -> Any:
    found = RULES[kind](item, names)
    if kind == "resourceclaims":
        _put_digest_right(item, found)
    return found


def _put_digest_right(item: Mapping[str, Any], found: Any) -> None:
    """The annotation of an allocation has a digest of it: if it belongs to this one, it belongs to the redacted one."""
    before, after = _frozen(item), _frozen(found)
    if before is not None and after is not None and before["digest"] == _digest(item):
        after["digest"] = _digest(found)
        found["metadata"]["annotations"][SNAPSHOT_ANNOTATION] = msgspec.json.encode(after).decode()


def _frozen(item: Mapping[str, Any]) -> Any:
    metadata = item.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(SNAPSHOT_ANNOTATION) if isinstance(annotations, dict) else None
    try:
        found = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and "digest" in found else None


def _digest(item: Mapping[str, Any]) -> str | None:
    try:
        allocation = item["status"]["allocation"]
        results = msgspec.convert(allocation["devices"]["results"], tuple[DeviceResult, ...])
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    return allocation_digest(results, allocation.get("allocationTimestamp"))
