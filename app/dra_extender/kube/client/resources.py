from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from dra_extender.scheduling.ports.cluster import RequestRejectedError


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A collection of the API: plural name, `apiVersion`, and whether its objects live in namespaces.

    `selector` is a field selector: lists have no other objects.
    """

    plural: str
    group_version: str
    namespaced: bool = True
    selector: str = ""

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path of a collection (of all namespaces, or of one), of an object, or of a part of an object.

        Raises:
            RequestRejectedError: namespace or name cannot be part of a path.
        """
        root = "/apis" if "/" in self.group_version else "/api"
        scope = ("namespaces", _segment(namespace)) if self.namespaced and namespace is not None else ()
        tail = (_segment(name), *((subresource,) if subresource else ())) if name is not None else ()
        return "/".join((root, self.group_version, *scope, self.plural, *tail))


def _segment(text: str) -> str:
    # Names arrive from outside; the API server refuses these for objects, and in a URL they would mean another object.
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise RequestRejectedError(f"{text!r} cannot be the name of an object or namespace")
    return quote(text, safe="")


RESOURCE_SLICES = ResourceKind("resourceslices", "resource.k8s.io/v1", namespaced=False)
RESOURCE_CLAIMS = ResourceKind("resourceclaims", "resource.k8s.io/v1")
CLAIM_TEMPLATES = ResourceKind("resourceclaimtemplates", "resource.k8s.io/v1")
DEVICE_CLASSES = ResourceKind("deviceclasses", "resource.k8s.io/v1", namespaced=False)
PODS = ResourceKind("pods", "v1")
NODES = ResourceKind("nodes", "v1", namespaced=False)
EVENTS = ResourceKind("events", "events.k8s.io/v1")
WARNINGS = ResourceKind("events", "v1", selector="type=Warning,source!=kubelet")
"""What controllers and schedulers complain of; what kubelets say of containers may hold secrets."""

WATCHED = {kind.plural: kind for kind in (RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES, PODS, NODES)}
"""The kinds that every server we work with serves; those whose version varies come from discovery."""


def micro_time(seconds: float) -> str:
    """Return a time (seconds since the epoch) as the API writes one with microseconds (MicroTime)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
