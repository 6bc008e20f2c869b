"""A copy of a cluster's objects in memory, to which changes are applied and which the use cases write to."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

import msgspec

from dra_extender.inspection.cluster_view import InspectionClock, served_fields
from dra_extender.inspection.near_names import name_hint
from dra_extender.inspection.objects import BUDGETS, KINDS, ClusterObjects, Origin
from dra_extender.inspection.pod_facts import DisruptionBudgets
from dra_extender.inspection.what_if.changes import ChangeError, PodKey
from dra_extender.inspection.what_if.report import ClaimFate, Fate
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import ModelError
from dra_extender.model.metadata import time_text
from dra_extender.model.resource_claim import read_claim, read_head
from dra_extender.scheduling.claims.readiness import conditional_devices
from dra_extender.scheduling.ports.cluster import NotFoundError
from dra_extender.simulator.apiserver.cluster import MemoryClaims, MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of, with_claims
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.controllers.claims import (
    claim_for_entry,
    group_claim,
    group_of,
    is_group_entry,
    lacking_entries,
)

ASSUMED: Final = "WhatIf"
"""The reason of a condition that no driver has reported and that is taken as reported."""
_MADE_UID: Final = "what-if"
_CONDITIONS_MARK: Final = b"indingConditions"
_IDENTITY: Final = ("driver", "pool", "device", "shareID")


def is_made(uid: str) -> bool:
    """Return whether an object with this UID is only in a copy, because of a change."""
    return uid.startswith(_MADE_UID)


class CopiedCluster:
    """The objects of a cluster in memory; those that it was made of stay as they are.

    A new object gets a UID that follows from its key, so that the same changes make the same copy.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self.cluster = MemoryCluster(
            clock=InspectionClock(objects.origin.taken_at), served=served_fields(objects.origin), claims=_ReadyClaims
        )
        self.store = self.cluster.store
        self._unusable = {kind: self.store.load(StoredKind(kind), objects.of_kind(kind)) for kind in KINDS}

    @property
    def origin(self) -> Origin:
        return self._objects.origin

    @cached_property
    def budgets(self) -> DisruptionBudgets:
        return DisruptionBudgets(self._objects.of_kind(BUDGETS))

    @property
    def created(self) -> str:
        """Return the creation time of new objects, RFC 3339."""
        return time_text(self.origin.taken_at)

    def meant(self, kind: StoredKind, key: PodKey) -> str:
        """Return what may be meant by an object that does not exist (`name_hint`)."""
        return name_hint(key, (stored_key[1:] for stored_key in self.store.keyed(kind)))

    def missing(self, kind: StoredKind, key: PodKey, label: str) -> ChangeError:
        """Return the error that an object (namespace, name) does not exist; `label` stands before its name."""
        hint = self.meant(kind, key)
        return ChangeError(f"{label} {'/'.join(filter(None, key))} does not exist in {self.origin.source}{hint}")

    def require(self, kind: StoredKind, key: PodKey, label: str) -> Json:
        """Return the object of this key; raises the error of `missing`."""
        item = self.store.find(Key(kind, *key))
        if item is None:
            raise self.missing(kind, key, label)
        return item

    def all(self, kind: StoredKind) -> Iterator[Json]:
        """Yield copies of all objects of a kind, by key."""
        for key in sorted(self.store.keyed(kind)):
            yield self.store.get(key)

    def put(self, kind: StoredKind, item: Json) -> Json:
        """Add the object, or replace the one of that name; return it as it is stored."""
        _, namespace, name = key_of(kind, item)
        metadata = item["metadata"]
        uid = metadata.get("uid") or "/".join((_MADE_UID, kind, *((namespace,) if namespace else ()), name))
        return self.store.put_unchecked(kind, {**item, "metadata": {**metadata, "uid": uid}})

    def objects(self) -> ClusterObjects:
        """Return all objects as they are now, and what a running extender holds."""
        by_kind = dict(self._objects.by_kind)
        for kind in KINDS:
            if items := [*self._unusable[kind], *self.store.keyed(StoredKind(kind)).values()]:
                by_kind[kind] = items
        return self._objects._replace(by_kind=by_kind)

    def end_pod(self, pod: Json) -> tuple[ClaimFate, ...]:
        """Take the pod away as the controllers do, and return what became of its claims, by name.

        Claims that the pod owns are deleted.  Other claims lose the pod's reservation, and with the last one their allocation.  An
        allocation that is reserved for a PodGroup stays.
        """
        self.store.remove_unchecked(key_of(StoredKind.POD, pod))
        return tuple(self._released(pod["metadata"]["uid"]))

    def evict_pod(self, pod: Json) -> tuple[ClaimFate, ...]:
        """End the pod and add one of the same name and spec that waits; return what became of its claims.

        Its controller would give it another name.
        """
        fates = tuple(
            msgspec.structs.replace(fate, fate=Fate.GENERATED) if fate.fate is Fate.DELETED else fate
            for fate in self.end_pod(pod)
        )
        metadata = {**pod["metadata"], "uid": f"{pod['metadata']['uid']}-evicted", "creationTimestamp": self.created}
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        self.put(StoredKind.POD, {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
        return fates

    def _released(self, uid: str) -> Iterator[ClaimFate]:
        for key in self.store.claims_of(uid):
            claim = self.store.get(key)
            status = claim.get("status") or {}
            left = [consumer for consumer in status.get("reservedFor") or () if consumer.get("uid") != uid]
            owners = claim["metadata"].get("ownerReferences") or ()
            if not left and any(owner.get("uid") == uid for owner in owners):
                self.store.remove_unchecked(key)
                yield ClaimFate(claim=key.name, fate=Fate.DELETED)
            elif left:
                self.put(StoredKind.CLAIM, {**claim, "status": {**status, "reservedFor": left}})
                users = tuple(f"{key.namespace}/{consumer.get('name', '')}" for consumer in left)
                yield ClaimFate(claim=key.name, fate=Fate.KEPT, users=users)
            else:
                self.put(StoredKind.CLAIM, without_allocation(claim))
                yield ClaimFate(claim=key.name, fate=Fate.RELEASED)

    def report_conditions(self) -> None:
        """Have the drivers report the binding conditions of all allocated devices."""
        for key, data in self.store.keyed(StoredKind.CLAIM).items():
            if _CONDITIONS_MARK in data:
                _report_conditions(self.store, self.store.get(key))


class _ReadyClaims(MemoryClaims):
    """Claims whose drivers report the binding conditions of what is allocated at once."""

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        written = await super().update_status(namespace, name, body)
        if _CONDITIONS_MARK not in written:
            return written
        return msgspec.json.encode(_report_conditions(self._store, msgspec.json.decode(written)))


def without_allocation(claim: Json) -> Json:
    """Return the claim as it is when nothing is allocated to it."""
    metadata = claim["metadata"]
    annotations = {
        name: text for name, text in (metadata.get("annotations") or {}).items() if name != SNAPSHOT_ANNOTATION
    }
    return {**claim, "metadata": {**metadata, "annotations": annotations}, "status": {}}


def _report_conditions(store: Store, claim: Json) -> Json:
    """Set every binding condition of the claim's devices to true, unless the device reports a failure; return the stored claim."""
    try:
        awaited = conditional_devices(read_head(msgspec.json.encode(claim)))
    except ModelError:
        return claim
    if not awaited:
        return claim
    status = claim.get("status") or {}
    reported = {tuple(device.get(name) for name in _IDENTITY): device for device in status.get("devices") or ()}
    for result in awaited:
        identity = (*result.device_id, result.share_id)
        known = reported.get(identity, dict(zip(_IDENTITY, identity, strict=True)))
        reported[identity] = {**known, "conditions": _assumed_conditions(known.get("conditions") or (), result)}
    return store.put_unchecked(StoredKind.CLAIM, {**claim, "status": {**status, "devices": list(reported.values())}})


def _assumed_conditions(conditions: Sequence[Json], result: DeviceResult) -> list[Json]:
    true = {condition.get("type") for condition in conditions if condition.get("status") == "True"}
    if not true.isdisjoint(result.binding_failure_conditions or ()):
        return list(conditions)
    missing = [condition for condition in result.binding_conditions or () if condition not in true]
    kept = [condition for condition in conditions if condition.get("type") not in missing]
    return [*kept, *({"type": kind, "status": "True", "reason": ASSUMED} for kind in missing)]


def generate_claims(copy: CopiedCluster) -> None:
    """Make the claims that waiting pods, and PodGroups, lack.  One whose template is not there or unreadable is left out."""
    for group in copy.all(StoredKind.POD_GROUP):
        generate_for(copy, StoredKind.POD_GROUP, group)
    for key, data in sorted(copy.store.keyed(StoredKind.POD).items()):
        if b'"resourceClaims"' in data:
            pod = copy.store.get(key)
            if not (pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]):
                generate_for(copy, StoredKind.POD, pod)


def generate_for(copy: CopiedCluster, kind: StoredKind, owner: Json) -> Json:
    """Make the claims of the owner's template entries, and record them in its status; return it as it is then.

    An entry of a pod that its PodGroup has too stands for the claim of the group.
    """

    def create(claim: Json) -> Json:
        read_claim(msgspec.json.encode(claim))
        fill_in(StoredKind.CLAIM, claim)
        metadata, base, number = claim["metadata"], claim["metadata"]["name"], 0
        while copy.store.find(Key(StoredKind.CLAIM, metadata["namespace"], metadata["name"])) is not None:
            number += 1
            metadata["name"] = f"{base}-{number}"
        return copy.put(StoredKind.CLAIM, claim)

    group, made = group_of(copy.store, owner) if kind is StoredKind.POD else None, dict[str, str]()
    for entry in lacking_entries(copy.store, owner):
        name, claim = entry.get("name", ""), None
        if not entry.get("resourceClaimTemplateName"):
            continue
        if group is not None and is_group_entry(group, entry):
            claim = group_claim(group, name)
        if not claim:
            with suppress(ModelError, NotFoundError):
                claim = claim_for_entry(copy.store, kind, owner, entry, create)
        if claim:
            made[name] = claim
    return copy.put(kind, with_claims(owner, made)) if made else owner
