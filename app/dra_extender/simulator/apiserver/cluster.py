"""The cluster in memory behind the ports of the use cases, which document the methods."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dra_extender.ledger.sinks import EventSink
from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.fields import Gate
from dra_extender.model.pod import Pod, read_pod
from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import Clock, ConflictError, RequestRejectedError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part, with_claims
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.apiserver.watch import StoreWatch


class MemoryClaimTemplates:
    """ResourceClaimTemplates of the embedded cluster.  Implements ports.ClaimTemplates."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, namespace: str, name: str) -> bytes:
        await asyncio.sleep(0)
        return self._store.read(Key(StoredKind.TEMPLATE, namespace, name))


class MemoryPodGroups:
    """PodGroups of the embedded cluster.  Implements ports.PodGroups."""

    def __init__(self, store: Store) -> None:
        self._store = store

    api_version = StoredKind.POD_GROUP.api_version

    async def read(self, namespace: str, name: str) -> PodGroup:
        await asyncio.sleep(0)
        return read_pod_group(self._store.read(Key(StoredKind.POD_GROUP, namespace, name)))

    async def record_claims(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        meta = group.metadata
        key = Key(StoredKind.POD_GROUP, meta.namespace, meta.name)
        await record_claims(self._store, key, meta.uid, meta.resource_version, claims)

    async def unprotect(self, group: PodGroup, finalizer: str) -> None:
        await asyncio.sleep(0)
        meta = group.metadata
        item = self._store.get(Key(StoredKind.POD_GROUP, meta.namespace, meta.name))
        item["metadata"].update(uid=meta.uid, resourceVersion=meta.resource_version)
        item["metadata"]["finalizers"] = [entry for entry in meta.finalizers if entry != finalizer]
        self._store.update(StoredKind.POD_GROUP, item)


async def record_claims(store: Store, key: Key, uid: str, version: str, claims: Mapping[str, str]) -> None:
    """Add {entry: claim} to the `status.resourceClaimStatuses` of a pod or PodGroup that is in this version.

    Raises:
        NotFoundError: it is gone.
        ConflictError: it is another one, or in another version.
    """
    await asyncio.sleep(0)
    stored = store.get(key)["metadata"]
    if (stored["uid"], stored["resourceVersion"]) != (uid, version):
        raise ConflictError(f'Operation cannot be fulfilled on {key.kind} "{key.name}": the object has been modified')
    store.edit_unchecked(key, lambda item: item.update(with_claims(item, dict(sorted(claims.items())))))


class MemoryClaims:
    """ResourceClaims of the embedded cluster.  Implements ports.Claims; each call lets other tasks run before it acts.

    Writes are recorded under `field_manager`, by which the service recognizes its own.
    """

    def __init__(self, store: Store, field_manager: str = "dra-extender", *, keeps_groups: bool = False) -> None:
        self._store = store
        self._field_manager = field_manager
        self.keeps_groups = keeps_groups

    async def read(self, namespace: str, name: str) -> bytes:
        await asyncio.sleep(0)
        return self._store.read(Key(StoredKind.CLAIM, namespace, name))

    async def create(self, namespace: str, body: bytes) -> bytes:
        await asyncio.sleep(0)
        claim = _object(body)
        claim.setdefault("metadata", {})["namespace"] = namespace
        return msgspec.json.encode(self._store.create(StoredKind.CLAIM, claim, self._field_manager))

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        await asyncio.sleep(0)
        self._store.delete(Key(StoredKind.CLAIM, namespace, name), uid, version)

    async def update(self, namespace: str, name: str, change: MetadataChange) -> bytes:
        await asyncio.sleep(0)
        claim = self._store.get(Key(StoredKind.CLAIM, namespace, name))
        metadata = claim["metadata"]
        metadata.update(uid=change.uid, resourceVersion=change.resource_version)
        if change.finalizers is not None:
            metadata["finalizers"] = list(change.finalizers)
        metadata["annotations"] = {
            name: value
            for name, value in {**part(metadata, "annotations"), **change.annotations}.items()
            if value is not None
        }
        return msgspec.json.encode(self._store.update(StoredKind.CLAIM, claim, self._field_manager))

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        await asyncio.sleep(0)
        claim = _object(body)
        metadata = part(claim, "metadata")
        if (metadata.get("namespace", namespace), metadata.get("name", name)) != (namespace, name):
            raise RequestRejectedError(
                f"the name of the object does not match the name on the URL ({namespace}/{name})"
            )
        claim.setdefault("metadata", {}).update(namespace=namespace, name=name)
        return msgspec.json.encode(self._store.update_status(StoredKind.CLAIM, claim, self._field_manager))


class MemoryPods:
    """Pods of the embedded cluster.  Implements ports.Pods."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, namespace: str, name: str) -> Pod:
        await asyncio.sleep(0)
        return read_pod(self._store.read(Key(StoredKind.POD, namespace, name)))

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        await asyncio.sleep(0)
        self._store.bind(Key(StoredKind.POD, namespace, name), uid, node)

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        def edit(pod: Json) -> None:
            status = pod.setdefault("status", {})
            status.pop("nominatedNodeName", None)
            if node:
                status["nominatedNodeName"] = node

        await self._patch_status(namespace, name, uid, edit)

    async def record_extended_claim(
        self, namespace: str, name: str, uid: str, claim: str, mappings: Sequence[tuple[str, str, str]]
    ) -> bool:
        listed = [
            dict(zip(("containerName", "resourceName", "requestName"), mapping, strict=True)) for mapping in mappings
        ]
        claim_status = {"resourceClaimName": claim, "requestMappings": listed}
        stored = await self._patch_status(
            namespace,
            name,
            uid,
            lambda item: item.setdefault("status", {}).update(extendedResourceClaimStatus=claim_status),
        )
        return part(stored, "status", "extendedResourceClaimStatus") == claim_status

    async def record_claims(self, namespace: str, name: str, uid: str, version: str, claims: Mapping[str, str]) -> None:
        await record_claims(self._store, Key(StoredKind.POD, namespace, name), uid, version, claims)

    async def _patch_status(self, namespace: str, name: str, uid: str, edit: Callable[[Json], None]) -> Json:
        await asyncio.sleep(0)
        key = Key(StoredKind.POD, namespace, name)
        stored = self._store.get(key)["metadata"]["uid"]
        if uid != stored:
            raise RequestRejectedError(
                f'pod "{name}" is invalid: metadata.uid: Invalid value: "{uid}": field is immutable'
            )
        return self._store.edit_unchecked(key, edit)


class PodEvent(msgspec.Struct, frozen=True):
    """An Event on a pod; equal ones are counted."""

    pod: str
    uid: str
    warning: bool
    reason: str
    message: str
    count: int = 1


class EventLog:
    """Keeps Events in memory, the newest of each pod and reason last.  Implements ports.Events."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str, str], PodEvent] = {}

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """Record an Event on the pod; an equal one counts up and moves to the end."""
        key = (pod.uid, reason, message)
        before = self._events.pop(key, None)
        count = before.count + 1 if before is not None else 1
        self._events[key] = PodEvent(pod.key, pod.uid, warning, reason, message, count)

    def of_pod(self, uid: str) -> list[PodEvent]:
        return [event for event in self._events.values() if event.uid == uid]


class MemoryWaker:
    """Moves rejected pods back to the queue of the embedded scheduler.  Implements ports.SchedulerWaker."""

    def __init__(self) -> None:
        self.calls = 0
        self._called = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def wake(self) -> None:
        """Count the call; the scheduling loop compares the count with the one it saw when it parked a pod."""
        await asyncio.sleep(0)
        self.calls += 1
        self._called.set()
        for listener in self._listeners:
            listener()

    async def called_since(self, calls: int, timeout: float) -> bool:  # noqa: ASYNC109 - a result, not an error, when it is over
        """Wait at most `timeout` seconds until there were more than `calls` calls; whether there were."""
        try:
            async with asyncio.timeout(timeout):
                while self.calls <= calls:
                    self._called.clear()
                    await self._called.wait()
        except TimeoutError:
            return False
        return True


class MemoryCluster:
    """A cluster in memory.  Implements ports.Cluster; `store` is its API server, `watch` brings changes to sinks.

    `start`, `wait_synced` and `stop` let the service run on it as on a real cluster.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        served: Served | None = None,
        claims: type[MemoryClaims] = MemoryClaims,
    ) -> None:
        """`served`: the fields that the API server keeps; `claims`: a port that does more than write claims."""
        self.clock: Clock = clock or SystemClock()
        served = served or Served()
        self.store = Store(self.clock, served)
        self.watch = StoreWatch(self.store)
        self.claims: MemoryClaims = claims(self.store, keeps_groups=served.frozen_groups)
        self.pods = MemoryPods(self.store)
        self.claim_templates = MemoryClaimTemplates(self.store)
        self.pod_groups = MemoryPodGroups(self.store)
        self.events = EventLog()
        self.waker = MemoryWaker()
        self.keeps_extended_claims = Gate.EXTENDED_RESOURCES not in served.off
        self.has_devices_beside_counters = served.devices_beside_counters
        self._watching: asyncio.Task[None] | None = None

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """List into the sinks and keep them up to date from now on."""
        self.watch.attach(sinks)
        self._watching = asyncio.create_task(self.watch.keep_delivering())

    async def wait_synced(self) -> None:
        await self.watch.caught_up()

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    def health(self) -> Mapping[str, str | None]:
        return {"memory": None}

    def life(self) -> Mapping[str, str | None]:
        return {}

    def notes(self) -> Mapping[str, str]:
        return {}


def _object(body: bytes) -> Json:
    try:
        return decode_object("body", body)
    except ModelError as problem:
        raise RequestRejectedError(f"the body is not an object: {problem}") from problem
