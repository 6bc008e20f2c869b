"""What an API server says of itself: its version, what it serves, its feature gates and its schema."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from dra_extender.model.fields import Gate
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.apiserver.served_fields import NEWEST, Served, served_by

BUILT: Final = NEWEST
_PUBLISHED_GATES: Final = (
    Gate.COMPATIBILITY_GROUPS,
    Gate.PARTITIONABLE_DEVICES,
    Gate.CONSUMABLE_CAPACITY,
    Gate.BINDING_CONDITIONS,
    Gate.DEVICE_STATUS,
    Gate.EXTENDED_RESOURCES,
    Gate.DEVICE_TAINTS,
)
_STATUS_KINDS: Final = {kind for kind in StoredKind if kind.has_status}
_ALL_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kubernetes 1 with its gates: `minor`, the fields that it keeps, and the kinds that it does not serve.

    `versions` has the kinds that it serves in another group/version than that of their stored form.
    """

    minor: int = NEWEST
    served: Served = field(default_factory=lambda: served_by(NEWEST))
    without: frozenset[StoredKind] = frozenset()
    versions: Mapping[StoredKind, str] = field(default_factory=dict)

    @classmethod
    def of(cls, minor: int) -> "Release":
        """A release with the gates that the demo takes for it; PodGroups and taint rules are served by default from 1.37 on."""
        younger = frozenset({StoredKind.POD_GROUP, StoredKind.TAINT_RULE})
        return cls(minor, served_by(minor), frozenset() if minor >= NEWEST else younger)

    @property
    def kinds(self) -> Mapping[tuple[str, str], StoredKind]:
        """The kinds that are served, by group/version and plural."""
        return {
            (self.versions.get(kind, kind.api_version), str(kind)): kind
            for kind in StoredKind
            if kind not in self.without
        }

    @property
    def gates(self) -> Mapping[str, bool]:
        """The feature gates that optional fields depend on."""
        return {gate.gate_name: gate not in self.served.off for gate in _PUBLISHED_GATES}


def page(release: Release, path: str) -> tuple[bytes, str] | None:
    """The page at a path that is no resource, and its media type; None if there is none."""
    if path in ("/healthz", "/livez", "/readyz"):
        return b"ok", "text/plain"
    if path == "/metrics":
        lines = [
            f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {int(on)}' for name, on in release.gates.items()
        ]
        return "\n".join(["# TYPE kubernetes_feature_enabled gauge", *lines, ""]).encode(), "text/plain"
    found = _document(release, path)
    return None if found is None else (msgspec.json.encode(found), "application/json")


def _document(release: Release, path: str) -> Json | None:
    groups: dict[str, list[str]] = {}
    for group_version, _ in release.kinds:
        group, _, version = group_version.rpartition("/")
        if version not in groups.setdefault(group, []):
            groups[group].append(version)
    if path == "/version":
        return {
            "major": "1",
            "minor": str(BUILT),
            "emulationMajor": "1",
            "emulationMinor": str(release.minor),
            "minCompatibilityMajor": "1",
            "minCompatibilityMinor": str(release.minor - 1),
            "gitVersion": f"v1.{BUILT}.1",
            "platform": "linux/amd64",
        }
    if path == "/api":
        return {"kind": "APIVersions", "versions": groups[""]}
    if path == "/apis":
        named = [_group(name, versions) for name, versions in groups.items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
    if path == "/openapi/v3/apis/resource.k8s.io/v1":
        return _schema(release)
    root, _, rest = path.lstrip("/").partition("/")
    if root == "apis" and rest in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(rest, groups[rest])}
    resources = _resources(release, rest)
    return resources if resources["resources"] and root == ("apis" if "/" in rest else "api") else None


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(release: Release, group_version: str) -> Json:
    found: list[Json] = []
    for (served, plural), kind in release.kinds.items():
        if served != group_version:
            continue
        one = {"singularName": kind.singular.lower(), "namespaced": kind.namespaced, "kind": kind.singular}
        found.append({"name": plural, **one, "verbs": _ALL_VERBS})
        if kind in _STATUS_KINDS:
            found.append({"name": f"{plural}/status", **one, "singularName": "", "verbs": ("get", "patch", "update")})
        if kind is StoredKind.POD:
            binding = {"name": "pods/binding", "singularName": "", "namespaced": True, "kind": "Binding"}
            found.append({**binding, "verbs": ("create",)})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found}


def _schema(release: Release) -> Json:
    """Of the schema, what is read of it: the fields of the results of allocations."""
    text = {"type": "string", "default": ""}
    properties: Json = dict.fromkeys(("request", "driver", "pool", "device"), text)
    if release.served.frozen_groups:
        properties["compatibilityGroups"] = {
            "type": "object",
            "additionalProperties": {"type": "array", "items": text},
        }
    result = {"type": "object", "properties": properties, "required": ["request", "driver", "pool", "device"]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v1.{BUILT}.1"},
        "components": {"schemas": {"io.k8s.api.resource.v1.DeviceRequestAllocationResult": result}},
    }
