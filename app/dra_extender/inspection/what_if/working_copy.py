"""A copy of the objects of a cluster, to which changes are applied and what the use cases write."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dra_extender.inspection.objects import WITH_EVENTS, ClusterObjects, Origin
from dra_extender.model.api_json import ModelError, Value, decode, decode_object
from dra_extender.model.metadata import ObjectMeta, version_number

Json = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace is empty for kinds without one."""

KIND_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nodes": "Node",
        "deviceclasses": "DeviceClass",
        "devicetaintrules": "DeviceTaintRule",
        "resourceslices": "ResourceSlice",
        "resourceclaims": "ResourceClaim",
        "resourceclaimtemplates": "ResourceClaimTemplate",
        "podgroups": "PodGroup",
        "pods": "Pod",
    }
)
"""`kind` as objects spell it, by plural."""
NAMESPACED: Final = frozenset({"resourceclaims", "resourceclaimtemplates", "podgroups", "pods"})
_NEED_SPEC: Final = frozenset({"pods", "resourceslices"})
_MADE_UID: Final = "what-if"


def is_made(uid: str) -> bool:
    """Return whether an object with this UID is in a copy alone, because of a change."""
    return uid.startswith(_MADE_UID)


class _Reference(Value, frozen=True):
    uid: str = ""
    name: str = ""


class _Entry(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Group(Value, frozen=True):
    pod_group_name: str | None = None
    pod_group: str | None = None


class _Pool(Value, frozen=True):
    name: str = ""


class _Spec(Value, frozen=True):
    node_name: str | None = None
    resource_claims: tuple[_Entry, ...] | None = None
    scheduling_group: _Group | None = None
    workload_ref: _Group | None = None
    taints: tuple[dict[str, Any], ...] | None = None
    pool: _Pool | None = None


class _Status(Value, frozen=True):
    phase: str | None = None
    reserved_for: tuple[_Reference, ...] | None = None
    resource_claim_statuses: tuple[_Entry, ...] | None = None


class _Head(Value, frozen=True):
    """What changes read of an object of any kind; an object of another shape is passed on as it is."""

    metadata: ObjectMeta
    spec: _Spec | None = None
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(_Head)


class WorkingCopy:
    """Objects by plural kind and key.  The objects that it was made of stay as they are.

    A changed object gets a resourceVersion above all others of its kind, and a new one a UID that follows from its key, so that the
    same changes make the same copy.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._by_kind: dict[str, dict[Key, bytes]] = {}
        self._unreadable: dict[str, list[bytes]] = defaultdict(list)
        self._versions: dict[str, int] = {}
        self._users: dict[str, dict[Key, None]] = defaultdict(dict)
        self._users_known = False

    @property
    def origin(self) -> Origin:
        """Where the objects come from."""
        return self._objects.origin

    def has(self, kind: str, namespace: str, name: str) -> bool:
        """Whether there is such an object."""
        return (namespace, name) in self._of(kind)

    def data(self, kind: str, namespace: str, name: str) -> bytes | None:
        """The object as JSON, None if there is none."""
        return self._of(kind).get((namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """A copy of the object, None if there is none."""
        data = self.data(kind, namespace, name)
        return None if data is None else decode_object(KIND_NAMES[kind], data)

    def keys(self, kind: str) -> list[Key]:
        """The keys of all objects of a kind, sorted."""
        return sorted(self._of(kind))

    def all(self, kind: str) -> Iterator[Json]:
        """Copies of all objects of a kind, by key."""
        found = self._of(kind)
        for key in sorted(found):
            yield decode_object(KIND_NAMES[kind], found[key])

    def put(self, kind: str, item: Json) -> bytes:
        """Add the object, or replace the one of that name; returns it as it is kept."""
        found, metadata = self._of(kind), item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._versions[kind] += 1
        made = f"{_MADE_UID}/{kind}/{'/'.join(key)}"
        metadata = {**metadata, "uid": metadata.get("uid") or made, "resourceVersion": str(self._versions[kind])}
        data = found[key] = msgspec.json.encode({**item, "metadata": metadata})
        if kind == "resourceclaims" and self._users_known:
            self._note_users(key, data)
        return data

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Take the object away."""
        del self._of(kind)[namespace, name]

    def claims_of(self, uid: str) -> list[Key]:
        """Keys of the claims that name the pod or PodGroup with this UID as owner or consumer, sorted."""
        claims = self._of("resourceclaims")
        if not self._users_known:
            self._users_known = True
            for key, data in claims.items():
                self._note_users(key, data)
        return sorted(key for key in self._users.get(uid, ()) if key in claims)

    def cluster(self) -> ClusterObjects:
        """All objects as they are now, and what a running extender holds."""
        by_kind = {
            kind: [*self._unreadable[kind], *self._by_kind[kind].values()]
            if kind in self._by_kind
            else self._objects.of(kind)
            for kind in WITH_EVENTS
            if kind in self._objects.by_kind or self._by_kind.get(kind)
        }
        return self._objects._replace(by_kind=by_kind)

    def _of(self, kind: str) -> dict[Key, bytes]:
        known = self._by_kind.get(kind)
        if known is None:
            known = self._by_kind[kind] = {}
            highest = 0
            for data in self._objects.of(kind):
                try:
                    head = decode(KIND_NAMES[kind], _DECODER, data)
                except ModelError:
                    self._unreadable[kind].append(data)
                    continue
                metadata = head.metadata
                placed = bool(metadata.namespace) is (kind in NAMESPACED)
                if not (metadata.name and metadata.uid and placed) or (head.spec is None and kind in _NEED_SPEC):
                    self._unreadable[kind].append(data)
                    continue
                known[metadata.key] = data
                highest = max(highest, version_number(metadata.resource_version))
            self._versions[kind] = highest
        return known

    def _note_users(self, key: Key, data: bytes) -> None:
        with suppress(ModelError):
            head = decode("ResourceClaim", _DECODER, data)
            owners = [each.uid for each in head.metadata.owner_references]
            reserved = () if head.status is None else head.status.reserved_for or ()
            for uid in (*owners, *(each.uid for each in reserved)):
                self._users[uid][key] = None
