"""The cluster that the use cases write to in a trial: a working copy of the objects, whose writes are delivered at once."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dra_extender.inspection.cluster_view import keeps_extended_claims
from dra_extender.inspection.read_only_cluster import ReadOnlyCluster
from dra_extender.inspection.what_if.working_copy import Json, WorkingCopy
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.api_json import decode_object
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.metadata import time_text
from dra_extender.model.pod import Pod, read_pod
from dra_extender.model.resource_claim import read_head
from dra_extender.scheduling.claims.conditions import conditional_devices
from dra_extender.scheduling.ports.cluster import ConflictError, NotFoundError

ASSUMED: Final = "WhatIf"
"""The reason of a condition that no driver has reported and that is taken as reported."""
_CLAIMS: Final = "resourceclaims"
_PODS: Final = "pods"
_MARK: Final = b"indingConditions"
_IDENTITY: Final = ("driver", "pool", "device", "shareID")


class _Stored:
    """Objects of one kind in the copy, and the sink that learns of every write."""

    def __init__(self, copy: WorkingCopy, kind: str) -> None:
        self._copy = copy
        self._kind = kind
        self.sink: EventSink | None = None

    def get(self, namespace: str, name: str) -> Json:
        found = self._copy.find(self._kind, namespace, name)
        if found is None:
            raise NotFoundError(f'{self._kind} "{name}" not found')
        return found

    def put(self, item: Json) -> bytes:
        data = self._copy.put(self._kind, item)
        if self.sink is not None:
            self.sink.changed(data)
        return data

    def remove(self, item: Json) -> None:
        metadata = item["metadata"]
        self._copy.remove(self._kind, metadata["namespace"], metadata["name"])
        if self.sink is not None:
            self.sink.deleted(metadata["namespace"], metadata["name"], metadata["uid"])

    def has(self, namespace: str, name: str) -> bool:
        return self._copy.has(self._kind, namespace, name)


class TrialClaims:
    """ResourceClaims of a trial.  Implements ports.Claims; drivers report the binding conditions of what is allocated at once."""

    keeps_groups = False

    def __init__(self, stored: _Stored, created: str) -> None:
        self._stored = stored
        self._created = created

    async def read(self, namespace: str, name: str) -> bytes:
        """See Claims."""
        return msgspec.json.encode(self._stored.get(namespace, name))

    async def create(self, namespace: str, body: bytes) -> bytes:
        """See Claims."""
        claim = decode_object("ResourceClaim", body)
        metadata = {**claim["metadata"], "namespace": namespace, "creationTimestamp": self._created}
        if self._stored.has(namespace, metadata["name"]):
            raise ConflictError(f'{_CLAIMS} "{metadata["name"]}" already exists')
        return self._stored.put({**claim, "metadata": metadata})

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """See Claims."""
        claim = self._stored.get(namespace, name)
        _check(claim, uid, version)
        if claim["metadata"].get("finalizers"):
            self._stored.put({**claim, "metadata": {**claim["metadata"], "deletionTimestamp": self._created}})
        else:
            self._stored.remove(claim)

    async def update(self, namespace: str, name: str, change: MetadataChange) -> bytes:
        """See Claims."""
        claim = self._stored.get(namespace, name)
        _check(claim, change.uid, change.resource_version)
        metadata = dict(claim["metadata"])
        if change.finalizers is not None:
            metadata["finalizers"] = list(change.finalizers)
        annotations = {**(metadata.get("annotations") or {}), **change.annotations}
        metadata["annotations"] = {name: text for name, text in annotations.items() if text is not None}
        return self._stored.put({**claim, "metadata": metadata})

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """See Claims."""
        written = decode_object("ResourceClaim", body)
        claim = self._stored.get(namespace, name)
        # The version of the body may be the one before the update of the metadata, as the API server allows for its own writer.
        _check(claim, written["metadata"]["uid"], None)
        return self._stored.put(with_reported_conditions({**claim, "status": written.get("status") or {}}))


class TrialPods:
    """Pods of a trial.  Implements ports.Pods."""

    def __init__(self, stored: _Stored) -> None:
        self._stored = stored

    async def read(self, namespace: str, name: str) -> Pod:
        """See Pods."""
        return read_pod(msgspec.json.encode(self._stored.get(namespace, name)))

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """See Pods."""
        pod = self._stored.get(namespace, name)
        if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
            raise ConflictError(f"pod {namespace}/{name} is bound already, or another one")
        self._stored.put({**pod, "spec": {**pod["spec"], "nodeName": node}})

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """See Pods; nobody reads it here."""

    async def record_extended_claim(
        self, namespace: str, name: str, uid: str, claim: str, mappings: Sequence[tuple[str, str, str]]
    ) -> bool:
        """See Pods."""
        pod = self._stored.get(namespace, name)
        _check(pod, uid, None)
        names = ("containerName", "resourceName", "requestName")
        recorded = {
            "resourceClaimName": claim,
            "requestMappings": [dict(zip(names, each, strict=True)) for each in mappings],
        }
        self._stored.put({**pod, "status": {**(pod.get("status") or {}), "extendedResourceClaimStatus": recorded}})
        return True

    async def record_claims(
        self,
        namespace: str,
        name: str,
        uid: str,  # noqa: ARG002 - the port has it
        version: str,  # noqa: ARG002 - the port has it
        claims: Mapping[str, str],  # noqa: ARG002 - the port has it
    ) -> None:
        """See Pods; claims from templates are made before the trial."""
        raise ConflictError(f"pod {namespace}/{name} has the claims that its templates make")


class TrialCluster(ReadOnlyCluster):
    """Implements Cluster over a working copy; `deliver_to` names the ledger that learns of each write as from a watch."""

    def __init__(self, copy: WorkingCopy, *, devices_beside_counters: bool) -> None:
        """`devices_beside_counters` as in Cluster."""
        super().__init__(
            copy.origin.taken_at,
            devices_beside_counters=devices_beside_counters,
            keeps_extended_claims=keeps_extended_claims(copy.origin),
        )
        self._stored = {kind: _Stored(copy, kind) for kind in (_CLAIMS, _PODS)}
        self.claims = TrialClaims(self._stored[_CLAIMS], time_text(copy.origin.taken_at))
        self.pods = TrialPods(self._stored[_PODS])

    def deliver_to(self, sinks: Mapping[str, EventSink]) -> None:
        """Deliver writes to these sinks (by plural kind) from now on."""
        for kind, stored in self._stored.items():
            stored.sink = sinks[kind]


def with_reported_conditions(claim: Json) -> Json:
    """The claim with every binding condition of its devices reported as true; a device that reports a failure stays as it is."""
    data = msgspec.json.encode(claim)
    awaited = conditional_devices(read_head(data)) if _MARK in data else ()
    if not awaited:
        return claim
    status = claim.get("status") or {}
    reported = {_identity(each): each for each in status.get("devices") or ()}
    for result in awaited:
        identity = (*result.device_id, result.share_id)
        known = reported.get(identity, dict(zip(_IDENTITY, identity, strict=True)))
        reported[identity] = {**known, "conditions": _assumed_conditions(known.get("conditions") or (), result)}
    return {**claim, "status": {**status, "devices": list(reported.values())}}


def _assumed_conditions(conditions: Sequence[Json], result: DeviceResult) -> list[Json]:
    """The conditions that a device reports, and those that are awaited of it as true, unless it reports a failure."""
    true = {each.get("type") for each in conditions if each.get("status") == "True"}
    if not true.isdisjoint(result.binding_failure_conditions or ()):
        return list(conditions)
    missing = [each for each in result.binding_conditions or () if each not in true]
    kept = [each for each in conditions if each.get("type") not in missing]
    return [*kept, *({"type": each, "status": "True", "reason": ASSUMED} for each in missing)]


def _identity(device: Json) -> tuple[Any, ...]:
    return tuple(device.get(name) for name in _IDENTITY)


def _check(item: Json, uid: str, version: str | None) -> None:
    metadata = item["metadata"]
    if metadata["uid"] != uid or version not in (None, metadata["resourceVersion"]):
        raise ConflictError(f'"{metadata["name"]}" is another object, or in another version')
