"""What matters of kube-scheduler's DynamicResources plugin beside us: its set of allocated devices, and pods that wait for one."""

import asyncio

import msgspec
from dra_extender.model.device import DeviceId
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Change, WatchEventType

from tests.support.scheduling.world import InMemoryExtender


class InTreeScheduler:
    """Allocates one device to the claim of the next waiting pod as soon as the device is not in its set, before any other write.

    As in `allocateddevices.go`, the set counts no claims: a claim that loses its allocation removes the devices that others have.
    """

    def __init__(self, world: InMemoryExtender, device: DeviceId) -> None:
        self.allocated: set[DeviceId] = set()
        self._world = world
        self._device = device
        self._devices: dict[Key, frozenset[DeviceId]] = {}
        self._waiting: list[str] = []
        world.cluster.store.subscribe(self._see)

    def add_pod(self, name: str) -> None:
        """Create a pod of this scheduler with a claim of the same name, and place it when the set lets it."""
        self._world.add_claim(name)
        self._world.add_pod(name, name, schedulerName="default-scheduler")
        self._waiting.append(name)

    def withdraw(self, name: str) -> None:
        """Delete the pod."""
        if name in self._waiting:
            self._waiting.remove(name)
        self._world.delete(StoredKind.POD, name)

    def allocate(self, name: str) -> None:
        """Give the device to the claim of this pod, and bind the pod, whatever the set says by now."""
        self._waiting.remove(name)
        store, (driver, pool, device) = self._world.cluster.store, self._device
        stored = self._world.claim(name)
        result = {"request": "req", "driver": driver, "pool": pool, "device": device}
        consumer = {"resource": "pods", "name": name, "uid": self._world.pod(name)["metadata"]["uid"]}
        stored["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        stored = store.update(StoredKind.CLAIM, stored)
        stored["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
        store.update_status(StoredKind.CLAIM, stored)
        store.edit_unchecked(Key(StoredKind.POD, "default", name), lambda pod: pod["spec"].update(nodeName=pool))

    def owners(self) -> list[str]:
        """The pods of this scheduler that have the device."""
        claims = self._world.cluster.store.all(StoredKind.CLAIM)
        names = {pod["metadata"]["name"] for pod in self._world.cluster.store.all(StoredKind.POD)}
        return [
            claim["metadata"]["name"]
            for claim in claims
            if self._device in _allocated_to(claim)
            and claim["metadata"]["name"] in names
            and self._world.pod(claim["metadata"]["name"])["spec"]["schedulerName"] == "default-scheduler"
        ]

    def _see(self, change: Change) -> None:
        if change.key.kind is not StoredKind.CLAIM:
            return
        deleted = change.verb is WatchEventType.DELETED
        devices = frozenset() if deleted else _allocated_to(msgspec.json.decode(change.data))
        before = self._devices.pop(change.key, frozenset[DeviceId]())
        if devices:
            self._devices[change.key] = devices
        self.allocated |= devices - before
        self.allocated -= before - devices
        if before - devices:
            asyncio.get_running_loop().call_soon(self._try_next)

    def _try_next(self) -> None:
        if self._waiting and self._device not in self.allocated:
            self.allocate(self._waiting[0])


def _allocated_to(claim: Json) -> frozenset[DeviceId]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", [])
    return frozenset((result["driver"], result["pool"], result["device"]) for result in results)
