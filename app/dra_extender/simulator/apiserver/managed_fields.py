"""Who wrote which part of a claim, kept in `metadata.managedFields` as far as the service reads it."""

from typing import Any

import msgspec

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.managed_fields import ALLOCATION, EXTENDED, FINALIZER_ENTRY, RESERVATIONS, SNAPSHOT, Path
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION, FINALIZER
from dra_extender.simulator.apiserver.objects import Json, part


def note_writer(old: Json, new: Json, manager: str) -> None:
    """Record in `new` the writer of each part: `manager` wrote what differs from `old`.  An empty name is not recorded."""
    before, after = _parts(old), _parts(new)
    changed = {path for path, value in after.items() if before.get(path) != value}
    owned = {name: (paths & after.keys()) - changed for name, paths in _owned(old).items()}
    if manager:
        owned.setdefault(manager, set()).update(changed)
    entries = [
        {"manager": name, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": _tree(paths)}
        for name, paths in sorted(owned.items())
        if paths
    ]
    new["metadata"].pop("managedFields", None)
    if entries:
        new["metadata"]["managedFields"] = entries


def _parts(claim: Json) -> dict[Path, Any]:
    metadata, status = part(claim, "metadata"), part(claim, "status")
    parts: dict[Path, Any] = {}
    if status.get("allocation") is not None:
        parts[ALLOCATION] = status["allocation"]
    if FINALIZER in (metadata.get("finalizers") or ()):
        parts[FINALIZER_ENTRY] = True
    if SNAPSHOT_ANNOTATION in part(metadata, "annotations"):
        parts[SNAPSHOT] = metadata["annotations"][SNAPSHOT_ANNOTATION]
    if EXTENDED_ANNOTATION in part(metadata, "annotations"):
        parts[EXTENDED] = metadata["annotations"][EXTENDED_ANNOTATION]
    for consumer in status.get("reservedFor") or ():
        key = msgspec.json.encode({"uid": consumer.get("uid")}).decode()
        parts[*RESERVATIONS, f"k:{key}"] = consumer
    return parts


def _owned(claim: Json) -> dict[str, set[Path]]:
    """Return the parts that each manager wrote; the ends of the paths are the empty objects here."""
    parts_by_manager: dict[str, set[Path]] = {}
    for entry in part(claim, "metadata").get("managedFields") or ():
        if isinstance(entry, dict) and isinstance(entry.get("fieldsV1"), dict):
            parts_by_manager.setdefault(str(entry.get("manager", "")), set()).update(_ends(entry["fieldsV1"], ()))
    return parts_by_manager


def _ends(tree: Json, above: Path) -> set[Path]:
    if not tree:
        return {above} if above else set()
    return {end for name, below in tree.items() for end in _ends(below, (*above, name))}


def _tree(paths: set[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        node = root
        for name in path:
            node = node.setdefault(name, {})
    return root
