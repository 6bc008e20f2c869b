"""Metadata, conditions and times, which objects of all kinds have."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dra_extender.model.api_json import Value
from dra_extender.model.fields import (
    Annotation,
    DnsLabel,
    Format,
    LabelKey,
    Labels,
    LabelValue,
    Mark,
    Name,
    Sentence,
    Subdomain,
    Time,
    Word,
)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class OwnerReference(Value, frozen=True):
    """The part of an ownerReference that identifies the owner."""

    in_part: ClassVar[bool] = True
    api_version: Annotated[Word, Mark.REQUIRED] = ""
    kind: Annotated[Word, Mark.REQUIRED] = ""
    name: Annotated[Name, Mark.REQUIRED] = ""
    uid: Annotated[Name, Mark.REQUIRED] = ""
    controller: Annotated[bool, Mark.UNCHECKED] = False

    @property
    def group(self) -> str:
        """API group without version; empty for the core group."""
        return self.api_version.rpartition("/")[0]


class TemplateMeta(Value, frozen=True):
    """The metadata that a template hands on."""

    in_part: ClassVar[bool] = True
    labels: Annotated[dict[LabelKey, LabelValue], Labels.LABELS] = {}
    annotations: dict[Word, Annotation] = {}
    finalizers: tuple[Word, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class ObjectMeta(TemplateMeta, frozen=True):
    """The metadata that decisions read."""

    unread: ClassVar[Mapping[str, Any]] = {"generateName": Annotated[str, Format.PLAIN, Mark.LEFT_OUT]}
    name: Annotated[Subdomain, Mark.REQUIRED] = ""
    namespace: DnsLabel = ""
    uid: Name = ""
    resource_version: Annotated[str, Format.RESOURCE_VERSION, Mark.UNCHECKED] = ""
    generation: Annotated[int, Mark.UNCHECKED] = 0
    creation_timestamp: Annotated[Time, Mark.UNCHECKED] | None = None
    deletion_timestamp: Annotated[Time, Mark.UNCHECKED] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return (self.namespace, self.name)

    @property
    def full_name(self) -> str:
        """namespace/name, for messages."""
        return f"{self.namespace}/{self.name}"

    def bare(
        self, *finalizers: str, annotations: Mapping[str, str] = _NOTHING, owner: OwnerReference | None = None
    ) -> "ObjectMeta":
        """Keep these finalizers, annotations and owner, and no labels: authors may fill the rest with megabytes."""
        kept_finalizers = tuple(finalizer for finalizer in finalizers if finalizer in self.finalizers)
        owners = () if owner is None else (owner,)
        return msgspec.structs.replace(
            self, labels={}, annotations=dict(annotations), owner_references=owners, finalizers=kept_finalizers
        )

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class ObjectIdentity(Value, frozen=True):
    """The identity of an object among all of its kind, and its version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class IdentifiedObject(Value, frozen=True):
    """An object of which nothing but the identity is read."""

    metadata: ObjectIdentity


class Condition(Value, frozen=True):
    """A condition of an object, or that a driver reports for an allocated device; only status "True" means true."""

    type: Word = ""
    status: Word = ""
    reason: Word = ""
    message: Sentence = ""
    last_transition_time: Time | None = None


def seconds_of(time: str | None) -> float | None:
    """Return an RFC 3339 time in seconds since the epoch; None if there is none, or if it cannot be read."""
    try:
        return None if time is None else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def time_text(seconds: float) -> str:
    """Return seconds since the epoch as the API writes a time (RFC 3339, UTC, whole seconds); what no calendar has is `at N s`."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"at {seconds:.0f} s"


def split_key(key: str) -> tuple[str, str]:
    """Return (namespace, name) of `namespace/name`; no namespace where the key has none."""
    before, slash, after = key.partition("/")
    return (before, after) if slash else ("", key)


MOST_VERSION_DIGITS: Final = 20
"""The API server's versions are at most 64 bits long."""


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, comparable within one kind (promised by the API server since 1.35); 0 if it is none."""
    if len(resource_version) > MOST_VERSION_DIGITS or not (resource_version.isascii() and resource_version.isdigit()):
        return 0
    return int(resource_version)


_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC, microsecond=0)


class Moment(float):
    """Seconds since the epoch; in JSON e.g. `2026-11-25T09:46:40Z`, what no calendar has as the first or the last of its days."""


def moment(seconds: float | None) -> Moment | None:
    return None if seconds is None else Moment(seconds)


def encoded_moment(value: Any) -> str:
    """Return what msgspec writes for a Moment, as its `enc_hook`: RFC 3339 (UTC), with microseconds where it has any."""
    if not isinstance(value, Moment):
        raise NotImplementedError(f"no JSON for {type(value).__name__}")
    try:
        utc = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        utc = _FIRST if value < 0 else _LAST
    return utc.isoformat().replace("+00:00", "Z")


def decoded_moment(kind: type, value: Any) -> Moment:
    """Return the Moment that msgspec has read, as its `dec_hook`.

    Raises:
        ValueError: it is no time in RFC 3339.
    """
    if kind is not Moment:
        raise NotImplementedError(f"no JSON for {kind.__name__}")
    if not isinstance(value, str):
        raise ValueError(f"expected a time in RFC 3339, got {type(value).__name__}")  # noqa: TRY004 - msgspec's own contract
    parsed = datetime.fromisoformat(value)
    return Moment((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())
