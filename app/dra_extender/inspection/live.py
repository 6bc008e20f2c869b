"""The objects of a running cluster, read once."""

from collections.abc import Sequence
from typing import Final

import msgspec

from dra_extender.inspection.objects import (
    EVENTS,
    KINDS,
    AssumedGate,
    ClusterObjects,
    GateState,
    MissingKind,
    Origin,
)
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.discovery import OPTIONAL_FIELDS, ServerFacts, Support
from dra_extender.kube.reading import ClusterReading, read_cluster
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.ports.cluster import ClusterError

_STATES: Final = {Support.KEPT: GateState.ON, Support.DROPPED: GateState.OFF, Support.UNKNOWN: GateState.UNKNOWN}


async def read_live(
    settings: KubeSettings, namespace: str | None = None, kinds: Sequence[str] = KINDS
) -> ClusterObjects:
    """Return all objects of these kinds that the account may list; `origin.missing` names the kinds that could not be read.

    If the account may list a kind in one namespace only, the objects of `namespace` are there (None: the namespace of the context).

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    return objects_of(await read_cluster(settings, kinds, namespace))


async def with_events(objects: ClusterObjects, settings: KubeSettings) -> ClusterObjects:
    """Return the objects with the Events as they are now; without Events if the API server does not answer."""
    try:
        found = objects_of(await read_cluster(settings, (EVENTS,), objects.namespace))
    except ClusterError:
        return objects
    missing = (*objects.origin.missing, *found.origin.missing)
    origin = msgspec.structs.replace(objects.origin, missing=missing)
    return objects._replace(origin=origin, by_kind={**objects.by_kind, **found.by_kind})


def objects_of(reading: ClusterReading) -> ClusterObjects:
    missing = (
        *(
            MissingKind(kind=kind, reason=reason, namespace=reading.namespace if kind in reading.one_namespace else "")
            for kind, reason in reading.forbidden.items()
        ),
        *(
            MissingKind(kind=kind, reason=reason, forbidden=False)
            for kind, reason in reading.failed.items()
            if kind not in reading.forbidden
        ),
        *(
            MissingKind(kind=kind, reason=reason, served=False, forbidden=False)
            for kind, reason in reading.not_served.items()
        ),
    )
    facts = reading.facts
    origin = Origin(
        source=reading.source,
        taken_at=Moment(reading.taken_at),
        release=facts.git_version,
        missing=missing,
        gates=assumed_gates(facts),
    )
    return ClusterObjects(origin, reading.by_kind, reading.namespace)


def assumed_gates(facts: ServerFacts) -> tuple[AssumedGate, ...]:
    """Return what is known of the feature gates of an API server on which answers depend."""
    return tuple(
        AssumedGate(gate=each.gate.gate_name, state=_STATES[facts.fields.get(each.name, Support.UNKNOWN)])
        for each in OPTIONAL_FIELDS
    )
