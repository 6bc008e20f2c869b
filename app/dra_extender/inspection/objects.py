"""The objects of a cluster, as JSON, and where they come from; a running cluster is read once through a kubeconfig."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.reader import read_cluster
from dra_extender.model.api_json import Value

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
    """A kind that could not be read, and why: the right is missing, or the API server does not serve it."""

    kind: str
    reason: str
    served: bool = True


class Origin(Value, frozen=True, rename=None):
    """Where objects come from: a sentence for people, when they were read (seconds since the epoch), and from which release.

    `release` is the API server's version, e.g. `v1.37.1`; empty if unknown.
    """

    source: str
    taken_at: float
    release: str = ""
    missing: tuple[MissingKind, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether a kind that the API server serves could not be read."""
        return any(each.served for each in self.missing)


class ClusterObjects(NamedTuple):
    """Objects by plural kind, each as JSON bytes, in the order of their keys."""

    origin: Origin
    by_kind: Mapping[str, Sequence[bytes]]

    def of(self, kind: str) -> Sequence[bytes]:
        """The objects of a plural kind."""
        return self.by_kind.get(kind, ())


async def read_live(settings: KubeSettings) -> ClusterObjects:
    """All objects that the account may list; kinds that it may not list are missing, and answers are partial then.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    reading = await read_cluster(settings, KINDS)
    missing = (
        *(MissingKind(kind=kind, reason=reason) for kind, reason in reading.forbidden.items()),
        *(MissingKind(kind=kind, reason=reason, served=False) for kind, reason in reading.not_served.items()),
    )
    origin = Origin(
        source=reading.source, taken_at=reading.taken_at, release=reading.facts.git_version, missing=missing
    )
    return ClusterObjects(origin, reading.by_kind)
