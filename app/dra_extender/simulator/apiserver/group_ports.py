import asyncio
from collections.abc import Mapping

from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.scheduling.ports.cluster import ConflictError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Store


class MemoryClaimTemplates:
    """ResourceClaimTemplates of the embedded cluster.  Implements ports.ClaimTemplates."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, namespace: str, name: str) -> bytes:
        """The live object.  Raises NotFoundError."""
        await asyncio.sleep(0)
        return self._store.read(Key(StoredKind.TEMPLATE, namespace, name))


class MemoryPodGroups:
    """PodGroups of the embedded cluster.  Implements ports.PodGroups."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def api_version(self) -> str:
        """The version in which they are stored."""
        return StoredKind.POD_GROUP.api_version

    async def read(self, namespace: str, name: str) -> PodGroup:
        """The live object.  Raises NotFoundError."""
        await asyncio.sleep(0)
        return read_pod_group(self._store.read(Key(StoredKind.POD_GROUP, namespace, name)))

    async def record_claims(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        """Add entries to `status.resourceClaimStatuses`.  Raises NotFoundError, ConflictError."""
        meta = group.metadata
        key = Key(StoredKind.POD_GROUP, meta.namespace, meta.name)
        await record_claims(self._store, key, meta.uid, meta.resource_version, claims)

    async def unprotect(self, group: PodGroup, finalizer: str) -> None:
        """Take the finalizer off.  Raises NotFoundError, ConflictError."""
        await asyncio.sleep(0)
        meta = group.metadata
        thing = self._store.get(Key(StoredKind.POD_GROUP, meta.namespace, meta.name))
        thing["metadata"].update(uid=meta.uid, resourceVersion=meta.resource_version)
        thing["metadata"]["finalizers"] = [each for each in meta.finalizers if each != finalizer]
        self._store.update(StoredKind.POD_GROUP, thing)


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
    store.replace(key, lambda thing: _record(thing, claims))


def _record(thing: Json, claims: Mapping[str, str]) -> None:
    status = thing.setdefault("status", {})
    kept = [each for each in status.get("resourceClaimStatuses") or [] if each["name"] not in claims]
    made = [{"name": entry, "resourceClaimName": claim} for entry, claim in sorted(claims.items())]
    status["resourceClaimStatuses"] = [*kept, *made]
