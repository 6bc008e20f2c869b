"""The objects of a cluster, as JSON: where they come from, which kinds could not be read, and the fields that are kept of each."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Union

from dra_extender.allocator.demand.alignment import DOMAIN
from dra_extender.model.allocation import OpaqueConfiguration
from dra_extender.model.api_json import Value
from dra_extender.model.fields import Gate, ListOf, Mark, Record, fields_of
from dra_extender.model.metadata import Moment
from dra_extender.model.objects import LABELLED, WATCHED
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION
from dra_extender.scheduling.hold_report import HoldReport

KINDS: Final = (
    "nodes",
    "deviceclasses",
    "devicetaintrules",
    "resourceslices",
    "resourceclaims",
    "resourceclaimtemplates",
    "podgroups",
    "pods",
)
"""Plural kinds in the order in which they refer to each other."""
EVENTS: Final = "events"
BUDGETS: Final = "poddisruptionbudgets"
ALL_KINDS: Final = (*KINDS, EVENTS, BUDGETS)
"""All kinds that are read.  No decision reads Events and PodDisruptionBudgets."""


class MissingKind(Value, frozen=True, rename=None):
    """A kind that could not be read, and why: the right is missing, the API server failed, or does not serve it.

    `namespace`: only objects of this namespace could be read, empty if there are none at all.  `forbidden`: the right is missing.
    """

    kind: str
    reason: str
    served: bool = True
    namespace: str = ""
    forbidden: bool = True


class GateState(StrEnum):
    """What is known of a feature gate of the API server; one that is unknown is taken as on."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class AssumedGate(Value, frozen=True, rename=None):
    """A feature gate of the API server on which answers depend."""

    gate: str
    state: GateState


class Origin(Value, frozen=True, rename=None):
    """Where objects come from: a sentence for people, when they were read, and from which release.

    `holds`: what was found out about the holds of a running extender; empty if none runs there, or a snapshot was asked.
    `release` is the API server's version, e.g. `v1.37.1`; empty if unknown.  `gates`: what was found out about its feature gates;
    empty if nothing was.
    """

    source: str
    taken_at: Moment
    release: str = ""
    missing: tuple[MissingKind, ...] = ()
    gates: tuple[AssumedGate, ...] = ()
    holds: str = ""

    def may_be_on(self, gate: Gate) -> bool:
        """Return whether a feature gate is on there, also where that is not known."""
        return AssumedGate(gate=gate.gate_name, state=GateState.OFF) not in self.gates

    @property
    def partial(self) -> bool:
        return any(kind.served for kind in self.missing)


class ClusterObjects(NamedTuple):
    """Objects by plural kind, each as JSON bytes, in the order of their keys.

    `namespace` is what a question is about that names none: that of the context.  `holds`: what a running extender holds, if that
    is known.
    """

    origin: Origin
    by_kind: Mapping[str, Sequence[bytes]]
    namespace: str = "default"
    holds: HoldReport | None = None

    def of_kind(self, kind: str) -> Sequence[bytes]:
        return self.by_kind.get(kind, ())


ROLE: Final = "ClusterRole dra-viewer"
DEVICES: Final = frozenset({"nodes", "deviceclasses", "devicetaintrules", "resourceslices", "resourceclaims"})
"""Kinds that every answer about free devices and fitting nodes depends on."""
JUDGED: Final = DEVICES | {"pods", "podgroups"}
"""Kinds that answers about pods that wait depend on."""


class UnknownObjectError(LookupError):
    """The object that a question is about is not in the cluster, or no pod uses it."""


class UnreadKindsError(Exception):
    """A question has no answer, because objects that it depends on could not be read."""


def unread(origin: Origin, kinds: Collection[str], namespace: str | None = None) -> tuple[MissingKind, ...]:
    """Return those of the kinds that the API server serves and that could not be read.

    Args:
        origin: Where the objects come from.
        kinds: Plural kinds that an answer depends on.
        namespace: The namespace that the answer is about; None: all of them.
    """
    return tuple(
        missing
        for missing in origin.missing
        if missing.kind in kinds and missing.served and not (namespace and missing.namespace == namespace)
    )


def require(origin: Origin, kinds: Collection[str], namespace: str | None = None) -> None:
    """Refuse an answer that depends on objects that could not be read; arguments as for `unread`.

    Raises:
        UnreadKindsError: one of the kinds could not be read.
    """
    missing = unread(origin, kinds, namespace)
    if missing:
        raise UnreadKindsError(f"no answer with {origin.source}: {unknown_text(missing)}: {missing[0].reason}")


def require_any(origin: Origin) -> None:
    """Refuse an answer that would be made of nothing.

    Raises:
        UnreadKindsError: no kind could be read, not even that of one namespace.
    """
    missing = unread(origin, KINDS)
    absent = {kind.kind for kind in origin.missing if not kind.served}
    if len(missing) + len(absent) == len(KINDS) and not any(kind.namespace for kind in missing):
        require(origin, KINDS)


def unknown_text(missing: Sequence[MissingKind]) -> str:
    """Return a sentence that says which kinds could not be read, which right lacks, and which role grants it."""
    denied = [kind for kind in missing if kind.forbidden]
    failed = [kind.kind for kind in missing if not kind.forbidden]
    parts = []
    if denied:
        parts.append(f"the account may not list {_scoped(denied)} ({ROLE} grants it)")
    if failed:
        parts.append(f"the API server did not list {', '.join(failed)}")
    return "; ".join(parts)


def _scoped(missing: Sequence[MissingKind]) -> str:
    """Return e.g. `nodes, resourceslices, nor pods and resourceclaims outside namespace ml`."""
    wholly = [kind.kind for kind in missing if not kind.namespace]
    partly = [kind for kind in missing if kind.namespace]
    if not partly:
        return ", ".join(wholly)
    kinds = [kind.kind for kind in partly]
    listed = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    outside = f"{listed} outside namespace {partly[0].namespace}"
    return f"{', '.join(wholly)}, nor {outside}" if wholly else outside


Fields = Mapping[str, Union["Fields", None]]
"""Names of fields that are kept; None keeps the whole value.  Fields of the elements of a list are named as the list's own."""

_OUR_ANNOTATIONS: Final = "dra-extender.io/"
_KEPT_ANNOTATIONS: Final = frozenset({ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION, EXTENDED_ANNOTATION})


_OPAQUE: Final[Fields] = MappingProxyType({"driver": None})
"""Of the configuration for a driver; that of our own domain stays whole."""


def _fields(struct: type[Value]) -> Fields:
    """Return the fields of an object that snapshots keep, by the annotations of the struct that describes it."""
    if struct is OpaqueConfiguration:
        return _OPAQUE
    fields: dict[str, Fields | None] = {}
    for field in fields_of(struct):
        if Mark.LEFT_OUT not in field.marks:
            shape = field.shape.item if isinstance(field.shape, ListOf) else field.shape
            fields[field.name] = (
                _fields(shape.struct) if isinstance(shape, Record) and Mark.WHOLE not in field.marks else None
            )
    return MappingProxyType(fields)


_KEPT: Final[Mapping[str, Fields]] = MappingProxyType({kind: _fields(struct) for kind, struct in WATCHED.items()})


def keep_fields(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the fields that the structs of the model describe, and no others.

    No environment, arguments, commands, contents of volumes or opaque parameters of drivers: these may hold secrets, and no
    decision reads them.  Parameters of our own domain stay.
    """
    reduced: dict[str, Any] = _cut_to(item, _KEPT[kind])
    metadata = reduced.get("metadata")
    if not isinstance(metadata, dict):
        return reduced
    if kind not in LABELLED:
        metadata.pop("labels", None)
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {
            name: text
            for name, text in annotations.items()
            if name.startswith(_OUR_ANNOTATIONS) or name in _KEPT_ANNOTATIONS
        }
    return reduced


def _cut_to(value: Any, fields: Fields) -> Any:
    """Return the fields of a value, or of the elements of a list, that are named, and no others."""
    if isinstance(value, list):
        return [_cut_to(item, fields) for item in value]
    if not isinstance(value, dict) or (fields is _OPAQUE and value.get("driver") == DOMAIN):
        return value
    return {
        name: value[name] if nested is None else _cut_to(value[name], nested)
        for name, nested in fields.items()
        if name in value
    }
