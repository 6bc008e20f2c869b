from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from dra_extender.model.api_json import Value

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class OwnerReference(Value, frozen=True):
    """The part of an ownerReference that identifies the owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        """API group without version; empty for the core group."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Value, frozen=True):
    """The metadata that decisions read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return (self.namespace, self.name)

    def bare(
        self, *finalizers: str, annotations: Mapping[str, str] = _NOTHING, owner: OwnerReference | None = None
    ) -> "ObjectMeta":
        """Without labels, and with these finalizers, annotations and owner alone; authors may fill the rest with megabytes."""
        kept = tuple(each for each in finalizers if each in self.finalizers)
        owners = () if owner is None else (owner,)
        return msgspec.structs.replace(
            self, labels={}, annotations=dict(annotations), owner_references=owners, finalizers=kept
        )

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


def seconds_of(time: str | None) -> float | None:
    """An RFC 3339 time in seconds since the epoch; None if there is none, or if it cannot be read."""
    try:
        return None if time is None else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def time_text(seconds: float) -> str:
    """Seconds since the epoch as the API writes a time (RFC 3339, UTC, whole seconds); what no calendar has is `at N s`."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"at {seconds:.0f} s"


def split_key(key: str, namespace: str = "") -> tuple[str, str]:
    """(namespace, name) of `namespace/name`; of a name alone with this namespace."""
    before, slash, after = key.partition("/")
    return (before, after) if slash else (namespace, key)


_MOST_DIGITS: Final = 20
"""The API server's versions are at most 64 bits long."""


def version_number(resource_version: str) -> int:
    """A resourceVersion as a number, comparable within one kind (promised by the API server since 1.35); 0 if it is none."""
    if len(resource_version) > _MOST_DIGITS or not (resource_version.isascii() and resource_version.isdigit()):
        return 0
    return int(resource_version)
