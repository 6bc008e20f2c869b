"""Who wrote which part of a claim, as the API server keeps it in `metadata.managedFields`.

It distinguishes our allocations from those of other schedulers, which set the same finalizer and the same fields.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import Value, reader
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION, FINALIZER

_ENTRY: Final = "k:"
READ: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "manager": None,
        "fieldsV1": {
            "f:metadata": {
                "f:finalizers": {f'v:"{FINALIZER}"': None},
                "f:annotations": {f"f:{SNAPSHOT_ANNOTATION}": None, f"f:{EXTENDED_ANNOTATION}": None},
            },
            "f:status": {"f:allocation": {}, "f:reservedFor": None},
        },
    }
)
"""What `writers_of` reads of an entry, by the names of fields; None stands for a whole value."""


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
        """Who wrote the reservation of this consumer."""
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
    """Who wrote the claim in `raw` (API JSON).

    Raises:
        ModelError: not a claim with managed fields as the API server keeps them.
    """
    allocation: set[str] = set()
    finalizer: set[str] = set()
    snapshot: set[str] = set()
    extended: set[str] = set()
    reservations: dict[str, set[str]] = {}
    for entry in _read_managers(raw).metadata.managed_fields:
        status, metadata = _part(entry.fields, "f:status"), _part(entry.fields, "f:metadata")
        if "f:allocation" in status:
            allocation.add(entry.manager)
        if f'v:"{FINALIZER}"' in _part(metadata, "f:finalizers"):
            finalizer.add(entry.manager)
        if f"f:{SNAPSHOT_ANNOTATION}" in _part(metadata, "f:annotations"):
            snapshot.add(entry.manager)
        if f"f:{EXTENDED_ANNOTATION}" in _part(metadata, "f:annotations"):
            extended.add(entry.manager)
        for uid in _entries(_part(status, "f:reservedFor")):
            reservations.setdefault(uid, set()).add(entry.manager)
    return Writers(
        allocation=frozenset(allocation),
        finalizer=frozenset(finalizer),
        snapshot=frozenset(snapshot),
        extended=frozenset(extended),
        reservations={uid: frozenset(managers) for uid, managers in reservations.items()},
    )


def _part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = fields.get(name)
    return part if isinstance(part, dict) else {}


def _entries(fields: Mapping[str, Any]) -> Iterator[str]:
    """UIDs of the list entries, whose keys are spelled `k:{"uid":"..."}`."""
    for name in fields:
        if name.startswith(_ENTRY):
            try:
                key = msgspec.json.decode(name[len(_ENTRY) :])
            except msgspec.DecodeError:
                continue
            if isinstance(key, dict) and isinstance(key.get("uid"), str):
                yield key["uid"]
