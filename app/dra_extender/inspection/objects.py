"""The objects of a cluster, as JSON, and where they come from; a running cluster is read once through a kubeconfig."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.discovery.server_features import OPTIONAL_FIELDS, ServerFacts, Support
from dra_extender.kube.reader import ClusterReading, read_cluster
from dra_extender.model.api_json import ModelError, Value, decode
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


class MissingKind(Value, frozen=True, rename=None):
    """A kind that could not be read, and why: the right is missing, or the API server does not serve it.

    `namespace`: objects of this namespace alone could be read, empty if there are none at all.
    """

    kind: str
    reason: str
    served: bool = True
    namespace: str = ""


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
    """Where objects come from: a sentence for people, when they were read (seconds since the epoch), and from which release.

    `holds`: what was found out about the holds of a running extender; empty if none runs there, or a snapshot was asked.
    `release` is the API server's version, e.g. `v1.37.1`; empty if unknown.  `gates`: what was found out about its feature gates;
    empty if nothing was.
    """

    source: str
    taken_at: float
    release: str = ""
    missing: tuple[MissingKind, ...] = ()
    gates: tuple[AssumedGate, ...] = ()
    holds: str = ""

    @property
    def partial(self) -> bool:
        """Whether a kind that the API server serves could not be read."""
        return any(each.served for each in self.missing)


class _NodeOfSlice(Value, frozen=True):
    node_name: str | None = None


class _Slice(Value, frozen=True):
    spec: _NodeOfSlice = _NodeOfSlice()


_SLICE: Final = msgspec.json.Decoder(_Slice)
_STATES: Final = {Support.KEPT: GateState.ON, Support.DROPPED: GateState.OFF, Support.UNKNOWN: GateState.UNKNOWN}


class ClusterObjects(NamedTuple):
    """Objects by plural kind, each as JSON bytes, in the order of their keys.

    `namespace` is what a question is about that names none: that of the context.  `holds`: what a running extender holds, if that
    is known.
    """

    origin: Origin
    by_kind: Mapping[str, Sequence[bytes]]
    namespace: str = "default"
    holds: HoldReport | None = None

    def of(self, kind: str) -> Sequence[bytes]:
        """The objects of a plural kind."""
        return self.by_kind.get(kind, ())


async def read_live(settings: KubeSettings, namespace: str | None = None) -> ClusterObjects:
    """All objects that the account may list; kinds that it may not list are missing, and answers are partial then.

    Where it may list a kind in one namespace only, the objects of `namespace` are there (None: the namespace of the context).
    Without the right to list nodes, the nodes are those that slices name, without labels and taints.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    return objects_of(await read_cluster(settings, KINDS, namespace))


def objects_of(reading: ClusterReading) -> ClusterObjects:
    """The objects of a reading, and where they come from."""
    by_kind = dict(reading.by_kind)
    if "nodes" in reading.forbidden:
        by_kind["nodes"] = _nodes_of_slices(by_kind.get("resourceslices", ()))
    missing = (
        *(
            MissingKind(kind=kind, reason=reason, namespace=reading.namespace if kind in reading.one_namespace else "")
            for kind, reason in reading.forbidden.items()
        ),
        *(MissingKind(kind=kind, reason=reason, served=False) for kind, reason in reading.not_served.items()),
    )
    facts = reading.facts
    origin = Origin(
        source=reading.source,
        taken_at=reading.taken_at,
        release=facts.git_version,
        missing=missing,
        gates=assumed_gates(facts),
    )
    return ClusterObjects(origin, by_kind, reading.namespace)


def assumed_gates(facts: ServerFacts) -> tuple[AssumedGate, ...]:
    """What is known of the feature gates of an API server on which answers depend."""
    return tuple(
        AssumedGate(gate=each.gate, state=_STATES[facts.fields.get(each.name, Support.UNKNOWN)])
        for each in OPTIONAL_FIELDS
    )


def _nodes_of_slices(slices: Sequence[bytes]) -> Sequence[bytes]:
    """The nodes that slices name, with nothing but their names."""
    names = set()
    for data in slices:
        with suppress(ModelError):
            names.add(decode("ResourceSlice", _SLICE, data).spec.node_name)
    return tuple(msgspec.json.encode({"metadata": {"name": name, "uid": name}}) for name in sorted(filter(None, names)))
