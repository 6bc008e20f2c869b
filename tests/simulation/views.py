"""What processes have seen of the store, each in its own time."""

import random
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

import msgspec
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType

from tests.simulation.loop import Process, SimulationLoop

OF_PODS: Final = tuple(
    kind for kind in StoredKind if kind not in (StoredKind.EVENT, StoredKind.LEASE, StoredKind.ENDPOINT_SLICE)
)
"""The kinds that whoever places, starts or serves pods watches."""
_DECODED: Final = 2_000


class View:
    """What one process has seen of the store: changes of one kind come in their order, of two kinds in any."""

    def __init__(
        self,
        store: Store,
        loop: SimulationLoop,
        process: Process,
        slowest: float,
        kinds: Collection[StoredKind] = OF_PODS,
    ) -> None:
        """`slowest`: seconds by which a change may be late; `kinds`: what the process watches."""
        self._loop = loop
        self._process = process
        self._slowest = slowest
        self._random = random.Random(f"view {loop.random.random()}")
        self._arrival = dict.fromkeys(kinds, 0.0)
        self._objects = {kind: {key_of(kind, thing): thing for thing in store.all(kind)} for kind in kinds}
        self._listeners: list[Callable[[Change, Json | None, Json | None], None]] = []
        store.subscribe(self._note)

    def subscribe(self, listener: Callable[[Change, Json | None, Json | None], None]) -> None:
        """Call this with every change that is seen, the object before and the object after it."""
        self._listeners.append(listener)

    def all(self, kind: StoredKind) -> list[Json]:
        """All objects of a kind; they may not be changed."""
        return list(self._objects[kind].values())

    def find(self, key: Key) -> Json | None:
        return self._objects[key.kind].get(key)

    def assume(self, pod: Json, node: str) -> None:
        """Count a pod on the node, until a change of it is seen."""
        key = key_of(StoredKind.POD, pod)
        if key in self._objects[StoredKind.POD]:
            self._objects[StoredKind.POD][key] = {**pod, "spec": {**pod["spec"], "nodeName": node}}

    def forget(self, pod: Json) -> None:
        """Take back what was assumed, unless a change of the pod has been seen."""
        key = key_of(StoredKind.POD, pod)
        seen = self.find(key)
        if seen is not None and seen["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]:
            self._objects[StoredKind.POD][key] = pod

    def _note(self, change: Change) -> None:
        kind = change.key.kind
        if self._process.alive and kind in self._arrival:
            self._arrival[kind] = max(self._arrival[kind], self._loop.time() + self._slowest * self._random.random())
            self._loop.call_at(self._arrival[kind], self._see, change, context=self._process.context)

    def _see(self, change: Change) -> None:
        objects = self._objects[change.key.kind]
        before = objects.pop(change.key, None)
        after: Json | None = None
        if change.verb is not WatchEventType.DELETED:
            after = objects[change.key] = _decoded(change.data)
        for listener in self._listeners:
            listener(change, before, after)


@lru_cache(_DECODED)
def _decoded(data: bytes) -> Json:
    """Every view shows the same object, which nobody may change."""
    found: Json = msgspec.json.decode(data)
    return found
