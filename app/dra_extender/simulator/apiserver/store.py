"""The embedded API server's storage: all writes are in one order, and a stale write is refused."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.metadata import time_text, version_number
from dra_extender.model.pod_group import PROTECTION_FINALIZER
from dra_extender.scheduling.ports.cluster import Clock, ConflictError, NotFoundError
from dra_extender.simulator.apiserver.managed_fields import note_writer
from dra_extender.simulator.apiserver.objects import (
    Json,
    Key,
    StoredKind,
    fill_in,
    key_of,
    part,
    read_object_head,
    set_condition,
)
from dra_extender.simulator.apiserver.served_fields import NEWEST, Served, served_by
from dra_extender.simulator.apiserver.validation import (
    InvalidError,
    check_claim_status,
    check_unchanged,
    prune_device_statuses,
)

_SEED: Final = uuid.UUID("6f6f1a52-8d9b-4d0e-9a3a-52a0f4b3c7d1")
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_KEPT: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
)


_COUNTED: Final = (StoredKind.SLICE, StoredKind.CLASS, StoredKind.TAINT_RULE)
"""Kinds whose changes of spec are counted in `metadata.generation`."""


class WatchEventType(StrEnum):
    """What a change did; values as a watch spells them."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(msgspec.Struct, frozen=True):
    """One stored change: the object after it (the last state for a deletion) as JSON, and its place in the order of writes.

    `before` is the object that was stored until then, None if there was none.
    """

    verb: WatchEventType
    key: Key
    uid: str
    version: int
    data: bytes
    before: bytes | None = None


class Store:
    """Objects of one cluster, kept as JSON; reads hand out fresh copies, but for `peek` and `peek_all`.

    Every write raises ports.NotFoundError, ConflictError or RequestRejectedError as an API server answers 404, 409, 422 or 403.
    """

    def __init__(self, clock: Clock, served: Served | None = None) -> None:
        self._clock = clock
        self._served = served or served_by(NEWEST)
        self._objects: dict[StoredKind, dict[Key, bytes]] = {kind: {} for kind in StoredKind}
        self._peeked: dict[StoredKind, dict[Key, Json]] = {kind: {} for kind in StoredKind}
        self._listeners: list[Callable[[Change], None]] = []
        self._version = 0
        self._claim_users: dict[str, dict[Key, None]] | None = None

    @property
    def version(self) -> int:
        return self._version

    def skip_versions(self, version: int) -> None:
        """Give later writes greater resourceVersions than this one."""
        self._version = max(self._version, version)

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """Call this with every later change, within the write."""
        self._listeners.append(listener)

    @contextmanager
    def restoring(self) -> Iterator[Sequence[Change]]:
        """Yield the list of changes made inside; afterwards put every object back as it was."""
        changes: list[Change] = []
        self._listeners.append(changes.append)
        try:
            yield changes
        finally:
            self._listeners.remove(changes.append)
            before: dict[Key, bytes | None] = {}
            for change in changes:
                before.setdefault(change.key, change.before)
            for key, data in before.items():
                if key in self._objects[key.kind]:
                    self.remove_unchecked(key)
                if data is not None:
                    self.put_unchecked(key.kind, decode_object(key.kind.singular, data))

    def load(self, kind: StoredKind, objects: Iterable[bytes]) -> list[bytes]:
        """Take over objects of another cluster as they are; return those that have no usable name, UID or spec."""
        unusable = []
        for data in objects:
            try:
                metadata = read_object_head(kind, data).metadata
            except ModelError:
                unusable.append(data)
                continue
            key = Key(kind, *metadata.key)
            self._objects[kind][key] = data
            self._peeked[kind].pop(key, None)
            self._version = max(self._version, version_number(metadata.resource_version))
        return unusable

    def read(self, key: Key) -> bytes:
        """Return the stored JSON.  Raises NotFoundError."""
        data = self._objects[key.kind].get(key)
        if data is None:
            raise NotFoundError(f'{key.kind} "{key.name}" not found')
        return data

    def get(self, key: Key) -> Json:
        """Return a copy of the object.  Raises NotFoundError."""
        return decode_object(key.kind.singular, self.read(key))

    def find(self, key: Key) -> Json | None:
        return self.get(key) if key in self._objects[key.kind] else None

    def all(self, kind: StoredKind) -> list[Json]:
        """Return copies of all objects of a kind, in the order in which they were created."""
        return [msgspec.json.decode(data) for data in self._objects[kind].values()]

    def peek(self, key: Key) -> Json | None:
        """As `find`, but shared by all who ask: nobody may change it."""
        data = self._objects[key.kind].get(key)
        if data is None:
            return None
        return self._shared(self._peeked[key.kind], key, data)

    def peek_all(self, kind: StoredKind) -> list[Json]:
        """As `all`, but shared by all who ask: nobody may change them."""
        peeked = self._peeked[kind]
        return [peeked.get(key) or self._shared(peeked, key, data) for key, data in self._objects[kind].items()]

    @staticmethod
    def _shared(peeked: dict[Key, Json], key: Key, data: bytes) -> Json:
        if key not in peeked:
            peeked[key] = msgspec.json.decode(data)
        return peeked[key]

    def keyed(self, kind: StoredKind) -> dict[Key, bytes]:
        return dict(self._objects[kind])

    def claims_of(self, uid: str) -> list[Key]:
        """Return the keys of the claims that name the object with this UID as owner or consumer, sorted."""
        if self._claim_users is None:
            self._claim_users = {}
            for key, data in self._objects[StoredKind.CLAIM].items():
                self._note_users(self._claim_users, key, None, data)
        return sorted(self._claim_users.get(uid, ()))

    def create(self, kind: StoredKind, item: Json, manager: str = "") -> Json:
        """Store a new object.  A claim starts without status, a pod as Pending; `metadata.uid` is kept if it is given.

        `manager` is recorded as the writer of a claim.
        """
        item = _copy(item)
        metadata = item.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._suffix()
        if not metadata.get("name"):
            raise InvalidError(kind.singular, "metadata.name: Required value: name or generateName is required")
        if kind is not StoredKind.NODE:
            item.pop("status", None)
        fill_in(kind, item)
        key = key_of(kind, item)
        if key in self._objects[kind]:
            raise ConflictError(f'{kind} "{key.name}" already exists')
        for field in _KEPT[1:]:
            metadata.pop(field, None)
        metadata["uid"] = metadata.get("uid") or str(uuid.uuid5(_SEED, f"{key} {self._version + 1}"))
        metadata["creationTimestamp"] = self._now()
        if kind in _COUNTED:
            metadata["generation"] = 1
        if kind is StoredKind.CLAIM:
            note_writer({}, item, manager)
        if kind is StoredKind.POD_GROUP:
            # As the admission plugin PodGroupProtection does.
            finalizers = metadata.setdefault("finalizers", [])
            if PROTECTION_FINALIZER not in finalizers:
                finalizers.append(PROTECTION_FINALIZER)
        self._served.check(kind, item)
        return self._write(WatchEventType.ADDED, key, item)

    def update(self, kind: StoredKind, item: Json, manager: str = "") -> Json:
        """Replace metadata and spec; the status stays.  If the object is being deleted, removing its last finalizer deletes it.

        `manager` is recorded as the writer of a claim.
        """
        item = _copy(item)
        fill_in(kind, item)
        key, old = self._checked_current(kind, item)
        metadata, before = item["metadata"], old["metadata"]
        for field in _KEPT:
            metadata.pop(field, None)
            if field in before:
                metadata[field] = before[field]
        if kind.has_status:
            _keep(item, old, "status")
        added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if "deletionTimestamp" in before and added:
            raise InvalidError(
                str(key),
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
            )
        check_unchanged(key, old, item)
        if kind in _COUNTED and item.get("spec") != old.get("spec"):
            metadata["generation"] = before.get("generation", 1) + 1
        # Pods stay until their kubelet has ended them, with a deletion without grace.
        if (
            "deletionTimestamp" in before
            and not metadata.get("finalizers")
            and not before.get("deletionGracePeriodSeconds")
        ):
            return self._write(WatchEventType.DELETED, key, item)
        return self._write_changed(key, old, item, manager)

    def update_status(self, kind: StoredKind, item: Json, manager: str = "") -> Json:
        """Replace the status; metadata and spec stay.  A claim's status must keep the API server's rules.

        `manager` is recorded as the writer of a claim.
        """
        item = _copy(item)
        fill_in(kind, item)
        key, old = self._checked_current(kind, item)
        item["metadata"] = _copy(old["metadata"])
        _keep(item, old, "spec")
        self._served.strip(kind, item)
        if kind is StoredKind.CLAIM:
            prune_device_statuses(part(old, "status"), part(item, "status"))
            check_claim_status(key, old, item)
        return self._write_changed(key, old, item, manager)

    def put_unchecked(self, kind: StoredKind, item: Json) -> Json:
        """Write an object as it is, new or in the place of one: no rule is checked, and nothing but a UID is filled in."""
        key, item = key_of(kind, item), {**item, "metadata": dict(item["metadata"])}
        exists = key in self._objects[kind]
        if not item["metadata"].get("uid"):
            item["metadata"]["uid"] = str(uuid.uuid5(_SEED, f"{key} {self._version + 1}"))
        return self._write(WatchEventType.MODIFIED if exists else WatchEventType.ADDED, key, item)

    def remove_unchecked(self, key: Key) -> Json:
        """Take the object away, whatever finalizers it has.  Raises NotFoundError."""
        return self._write(WatchEventType.DELETED, key, self.get(key))

    def edit_unchecked(self, key: Key, edit: Callable[[Json], None]) -> Json:
        """Write as the server itself does, for example a subresource: `edit` changes a copy in place; no rule is checked."""
        old, item = self.get(key), self.get(key)
        edit(item)
        return self._write_changed(key, old, item)

    def bind(self, key: Key, uid: str, node: str) -> Json:
        """Assign a pod to a node once: clear the nomination, and say that the pod is scheduled.

        Raises:
            NotFoundError: no such pod.
            ConflictError: the pod is bound already, is being deleted, has scheduling gates, or has another UID.
            InvalidError: no node is named.
        """
        pod = self.get(key)
        metadata, spec = pod["metadata"], pod["spec"]
        if not node:
            raise InvalidError(f'Binding "{key.name}"', "target.name: Required value")
        refusal = None
        if uid and metadata["uid"] != uid:
            refusal = f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']})"
        elif "deletionTimestamp" in metadata:
            refusal = f"pod {key.name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            refusal = f'pod {key.name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            refusal = f"pod {key.name} has non-empty .spec.schedulingGates"
        if refusal:
            raise ConflictError(f'Operation cannot be fulfilled on pods/binding "{key.name}": {refusal}')
        return self.edit_unchecked(key, lambda stored: _assign(stored, node, self._now()))

    def delete(self, key: Key, uid: str | None = None, version: str | None = None, grace: int = 0) -> Json:
        """Delete, or only mark as deleted while finalizers are left or `grace` seconds are granted.

        Raises:
            NotFoundError: no such object.
            ConflictError: the object has another UID or version.
        """
        old = self.get(key)
        if uid is not None and uid != old["metadata"]["uid"]:
            raise ConflictError(
                f'Operation cannot be fulfilled on {key.kind} "{key.name}": the UID in the precondition ({uid}) does not '
                f"match the UID in record ({old['metadata']['uid']}). The object might have been deleted and then recreated"
            )
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise ConflictError(
                f'Operation cannot be fulfilled on {key.kind} "{key.name}": the ResourceVersion in the precondition '
                f"({version}) does not match the ResourceVersion in record ({old['metadata']['resourceVersion']}). "
                "The object might have been modified"
            )
        if not old["metadata"].get("finalizers") and not grace:
            return self._write(WatchEventType.DELETED, key, old)
        item = self.get(key)
        metadata = item["metadata"]
        # A later deletion may only shorten the grace of an earlier one.
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            ends = time_text(self._clock.now() + grace)
            metadata.update(deletionTimestamp=ends, deletionGracePeriodSeconds=grace)
        return self._write_changed(key, old, item)

    def _checked_current(self, kind: StoredKind, item: Json) -> tuple[Key, Json]:
        """Return the key and the stored object; raise ConflictError if the write was made from another version."""
        key = key_of(kind, item)
        old = self.get(key)
        sent, stored = item["metadata"], old["metadata"]
        if sent.get("uid") and sent["uid"] != stored["uid"]:
            raise ConflictError(
                f'{kind} "{key.name}": the UID in the object ({sent["uid"]}) is not the stored one ({stored["uid"]})'
            )
        if sent.get("resourceVersion") and sent["resourceVersion"] != stored["resourceVersion"]:
            raise ConflictError(
                f'Operation cannot be fulfilled on {kind} "{key.name}": the object has been modified; '
                "please apply your changes to the latest version and try again",
            )
        return key, old

    def _write_changed(self, key: Key, old: Json, item: Json, manager: str = "") -> Json:
        """Write unless nothing changed: a write without effect has no version and no watch event."""
        self._served.check(key.kind, item)
        self._served.strip(key.kind, item)
        if key.kind is StoredKind.CLAIM:
            # A client that may write a claim may also write its managedFields, as on the real server.
            sent = item["metadata"].get("managedFields")
            note_writer({**old, "metadata": {**old["metadata"], "managedFields": sent}}, item, manager)
        # A copy of another cluster may hold objects that people wrote, without a version.
        item["metadata"]["resourceVersion"] = old["metadata"].setdefault("resourceVersion", "")
        return old if item == old else self._write(WatchEventType.MODIFIED, key, item)

    def _write(self, verb: WatchEventType, key: Key, item: Json) -> Json:
        self._served.strip(key.kind, item)
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        data = msgspec.json.encode(item)
        objects = self._objects[key.kind]
        self._peeked[key.kind].pop(key, None)
        change = Change(verb, key, item["metadata"]["uid"], self._version, data, objects.get(key))
        if verb is WatchEventType.DELETED:
            del objects[key]
        else:
            objects[key] = data
        if key.kind is StoredKind.CLAIM and self._claim_users is not None:
            self._note_users(self._claim_users, key, change.before, objects.get(key))
        for listener in self._listeners:
            listener(change)
        return decode_object(key.kind.singular, data)

    @staticmethod
    def _note_users(users: dict[str, dict[Key, None]], key: Key, before: bytes | None, after: bytes | None) -> None:
        """Take over which objects the claim names as owners and consumers; None: the claim does not exist."""
        old, new = _users_of(before), _users_of(after)
        for uid in new:
            users.setdefault(uid, {})[key] = None
        for uid in old - new:
            claims = users.get(uid, {})
            claims.pop(key, None)
            if not claims:
                users.pop(uid, None)

    def _suffix(self) -> str:
        """Five letters as generateName adds; the same in every run of the same story."""
        number = uuid.uuid5(_SEED, str(self._version)).int
        return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(5))

    def _now(self) -> str:
        return time_text(self._clock.now())


def _users_of(claim: bytes | None) -> frozenset[str]:
    """Return the UIDs of owners and consumers; none of a claim that does not exist or cannot be read."""
    if claim is None:
        return frozenset()
    try:
        head = read_object_head(StoredKind.CLAIM, claim)
    except ModelError:
        return frozenset()
    consumers = () if head.status is None else head.status.reserved_for or ()
    return frozenset((*(owner.uid for owner in head.metadata.owner_references), *(user.uid for user in consumers)))


def _assign(pod: Json, node: str, now: str) -> None:
    pod["spec"]["nodeName"] = node
    set_condition(pod, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
    pod["status"].pop("nominatedNodeName", None)


def _copy(item: Json) -> Json:
    copied: Json = msgspec.json.decode(msgspec.json.encode(item))
    return copied


def _keep(item: Json, old: Json, field: str) -> None:
    item.pop(field, None)
    if field in old:
        item[field] = _copy(old[field])
