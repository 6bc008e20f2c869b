"""Writers of the parts of a claim, as the API server keeps them in `metadata.managedFields`.

They distinguish our allocations from those of other schedulers, which set the same finalizer and the same fields.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import Value, reader
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION, FINALIZER

Path = tuple[str, ...]
"""Names of fields that lead to a part of a claim."""

ALLOCATION: Final[Path] = ("f:status", "f:allocation")
RESERVATIONS: Final[Path] = ("f:status", "f:reservedFor")
FINALIZER_ENTRY: Final[Path] = ("f:metadata", "f:finalizers", f'v:"{FINALIZER}"')
SNAPSHOT: Final[Path] = ("f:metadata", "f:annotations", f"f:{SNAPSHOT_ANNOTATION}")
EXTENDED: Final[Path] = ("f:metadata", "f:annotations", f"f:{EXTENDED_ANNOTATION}")
_ENTRY: Final = "k:"


class Writers(Value, frozen=True, rename=None):
    """The field managers of the parts of a claim; `reservations` by the consumer's UID.  Unknown writers are left out.

    `extended`: the managers that marked it as a claim for extended resources.
    """

    allocation: frozenset[str] = frozenset()
    finalizer: frozenset[str] = frozenset()
    snapshot: frozenset[str] = frozenset()
    extended: frozenset[str] = frozenset()
    reservations: dict[str, frozenset[str]] = {}

    def reserved(self, uid: str) -> frozenset[str]:
        """Return who wrote the reservation of this consumer."""
        return self.reservations.get(uid, frozenset())


class _Entry(Value, frozen=True, rename={"fields": "fieldsV1"}):
    manager: str = ""
    fields: dict[str, Any] = {}


class _Metadata(Value, frozen=True):
    managed_fields: tuple[_Entry, ...] = ()


class _Claim(Value, frozen=True):
    metadata: _Metadata = _Metadata()


_read_managers = reader("ResourceClaim", _Claim)


def writers_of(raw: bytes) -> Writers:
    """Return who wrote the claim in `raw` (API JSON).

    Raises:
        ModelError: not a claim with managed fields as the API server keeps them.
    """
    entries = _read_managers(raw).metadata.managed_fields

    def managers(path: Path) -> frozenset[str]:
        return frozenset(entry.manager for entry in entries if path[-1] in _part(entry.fields, path[:-1]))

    reservations: dict[str, frozenset[str]] = {}
    for entry in entries:
        for uid in _entries(_part(entry.fields, RESERVATIONS)):
            reservations[uid] = reservations.get(uid, frozenset()) | {entry.manager}
    return Writers(
        allocation=managers(ALLOCATION),
        finalizer=managers(FINALIZER_ENTRY),
        snapshot=managers(SNAPSHOT),
        extended=managers(EXTENDED),
        reservations=reservations,
    )


def _part(fields: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    for name in path:
        below = fields.get(name)
        fields = below if isinstance(below, dict) else {}
    return fields


def _entries(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the UIDs of the list entries, whose keys are spelled `k:{"uid":"..."}`."""
    for name in fields:
        if name.startswith(_ENTRY):
            try:
                key = msgspec.json.decode(name[len(_ENTRY) :])
            except msgspec.DecodeError:
                continue
            if isinstance(key, dict) and isinstance(key.get("uid"), str):
                yield key["uid"]
