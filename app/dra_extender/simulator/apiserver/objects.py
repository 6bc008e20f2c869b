"""The kinds of stored objects, their keys, and parts of them as JSON."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import msgspec

from dra_extender.manifests import api_defaults
from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.objects import WRITTEN

Json = dict[str, Any]
"""One API object, or a part of it, as decoded JSON."""

NAMESPACE = "default"
_RESOURCE: Final = "resource.k8s.io/v1"


class StoredKind(StrEnum):
    """The kinds of objects that the embedded cluster stores; the value is the plural that the API and the sinks use.

    `singular` is `kind` as objects spell it, e.g. ResourceClaim.
    """

    singular: str
    api_version: str
    namespaced: bool

    def __new__(cls, plural: str, singular: str = "", api_version: str = _RESOURCE, namespaced: bool = True) -> Self:
        kind = str.__new__(cls, plural)
        kind._value_ = plural
        kind.singular, kind.api_version, kind.namespaced = singular, api_version, namespaced
        return kind

    NODE = "nodes", "Node", "v1", False
    SLICE = "resourceslices", "ResourceSlice", _RESOURCE, False
    CLASS = "deviceclasses", "DeviceClass", _RESOURCE, False
    TAINT_RULE = "devicetaintrules", "DeviceTaintRule", _RESOURCE, False
    TEMPLATE = "resourceclaimtemplates", "ResourceClaimTemplate"
    CLAIM = "resourceclaims", "ResourceClaim"
    POD_GROUP = "podgroups", "PodGroup", "scheduling.k8s.io/v1beta1"
    POD = "pods", "Pod", "v1"
    NAMESPACE = "namespaces", "Namespace", "v1", False
    LEASE = "leases", "Lease", "coordination.k8s.io/v1"
    ENDPOINT_SLICE = "endpointslices", "EndpointSlice", "discovery.k8s.io/v1"
    EVENT = "events", "Event", "events.k8s.io/v1"
    BUDGET = "poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"
    SECRET = "secrets", "Secret", "v1"

    @property
    def has_status(self) -> bool:
        """Return whether a status subresource exists, so that ordinary writes leave the status alone."""
        return self in (StoredKind.NODE, StoredKind.CLAIM, StoredKind.POD_GROUP, StoredKind.POD, StoredKind.NAMESPACE)


KIND_OF = {kind.singular: kind for kind in StoredKind if kind.singular in WRITTEN}
"""`kind` as objects spell it -> the kinds that scheduling is about."""


class Key(NamedTuple):
    """What identifies one object; `namespace` is empty for kinds without one."""

    kind: StoredKind
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.singular} {where}{self.name}"


def key_of(kind: StoredKind, item: Json) -> Key:
    """Return the key of an object of this kind; without a namespace it is in `default`."""
    metadata = item.get("metadata") or {}
    namespace = (metadata.get("namespace") or NAMESPACE) if kind.namespaced else ""
    return Key(kind, namespace, metadata.get("name") or "")


def fill_in(kind: StoredKind, item: Json) -> None:
    """Add kind, apiVersion, namespace and the defaults that decisions read, in place, as the API server does on every write."""
    item["kind"], item["apiVersion"] = kind.singular, kind.api_version
    metadata = item.setdefault("metadata", {})
    if kind.namespaced:
        metadata["namespace"] = key_of(kind, item).namespace
    api_defaults.fill_in(kind, item)


def part(item: Json, *path: str) -> Json:
    """Return the object below `item` at this path; empty where it is absent or null."""
    for step in path:
        item = item.get(step) or {}
    return item


def group_name(pod: Json) -> str | None:
    """Return the PodGroup that a pod names, as released or as the drafts of KEP-5729 and 1.35 have it."""
    named: Json = part(pod, "spec", "schedulingGroup") or part(pod, "spec", "workloadRef")
    return named.get("podGroupName") or named.get("podGroup")


def controller_uid(item: Json) -> str | None:
    owners = part(item, "metadata").get("ownerReferences") or []
    return next((owner.get("uid") for owner in owners if owner.get("controller")), None)


def named_claims(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield the pod's name for each of its claims, and the name of the claim, empty until that is recorded."""
    recorded = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in part(pod, "status").get("resourceClaimStatuses") or []
    }
    for entry in pod["spec"].get("resourceClaims") or []:
        yield entry["name"], entry.get("resourceClaimName") or recorded.get(entry["name"]) or ""


def set_condition(pod: Json, condition: Json) -> None:
    """Put a condition in the place of the one of its type, in place."""
    status = pod.setdefault("status", {})
    other_conditions = [entry for entry in status.get("conditions") or [] if entry.get("type") != condition["type"]]
    status["conditions"] = [*other_conditions, condition]


def with_claims(owner: Json, claims: Mapping[str, str]) -> Json:
    """Return a pod or PodGroup whose status records these claims, by entry."""
    status = part(owner, "status")
    remaining = [entry for entry in status.get("resourceClaimStatuses") or () if entry.get("name") not in claims]
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in claims.items()]
    return {**owner, "status": {**status, "resourceClaimStatuses": [*remaining, *entries]}}


_NEED_SPEC: Final = (StoredKind.POD, StoredKind.SLICE)


class _Consumer(Value, frozen=True):
    uid: str = ""
    name: str = ""


class _ClaimEntry(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _GroupReference(Value, frozen=True):
    pod_group_name: str | None = None
    pod_group: str | None = None


class _Pool(Value, frozen=True):
    name: str = ""


class _Spec(Value, frozen=True):
    node_name: str | None = None
    resource_claims: tuple[_ClaimEntry, ...] | None = None
    scheduling_group: _GroupReference | None = None
    workload_ref: _GroupReference | None = None
    taints: tuple[dict[str, Any], ...] | None = None
    pool: _Pool | None = None


class _Status(Value, frozen=True):
    phase: str | None = None
    reserved_for: tuple[_Consumer, ...] | None = None
    resource_claim_statuses: tuple[_ClaimEntry, ...] | None = None


class ObjectHead(Value, frozen=True):
    """What finds an object, and the fields of any kind on whose types edits rely."""

    metadata: ObjectMeta
    spec: _Spec | None = None
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(ObjectHead)


def read_object_head(kind: StoredKind, data: bytes) -> ObjectHead:
    """Read the head of an object (API JSON).

    Raises:
        ModelError: a field has another type, or name, UID, namespace or spec are missing.
    """
    head = decode(kind.singular, _DECODER, data)
    metadata = head.metadata
    if not (metadata.name and metadata.uid) or bool(metadata.namespace) is not kind.namespaced:
        raise ModelError(f"{kind.singular}: expected a name, a UID, and a namespace where the kind has one")
    if head.spec is None and kind in _NEED_SPEC:
        raise ModelError(f"{kind.singular}: expected a spec")
    return head
