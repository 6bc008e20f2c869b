"""Who else writes in a cluster: kube-controller-manager, kubelets, drivers and users.

Each works on what its own process has seen; it writes to the store directly, because only the service's requests matter here.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of, part
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType
from dra_extender.simulator.controllers.claims import ClaimController, is_finished

from tests.controlplane import objects
from tests.simulation.cluster import NAMESPACE, WHOLE, random_kind, request, slices
from tests.simulation.loop import SimulationLoop
from tests.simulation.views import OF_PODS, View
from tests.support.e2e.driver import waiting_results
from tests.support.e2e.fabric import ATTACHED, FAILED

_CONTROLLER_SECONDS: Final = 0.5
_COLLECT_SECONDS: Final = 6.0
_KUBELET_SECONDS: Final = 2.0
_DRIVER_SECONDS: Final = 4.0
_GRACE_SECONDS: Final = 5
_NEVER, _FAILS = 0.1, 0.1
"""Shares of the devices that are never ready, and that fail."""
_MOST_UNREADY_IN_A_ROW: Final = 2
_RIVAL_SECONDS: Final = 1.0
"""How old the rival's view may be when it allocates, and how long it waits before it looks again and binds."""
_RIVAL_TRIES: Final = 8


class Actor:
    """Does something some time after a change; one that starts takes what exists for new."""

    def __init__(self, loop: SimulationLoop, store: Store, view: View) -> None:
        self.loop = loop
        self.store = store
        self.random = random.Random(f"{type(self).__name__} {loop.random.random()}")
        view.subscribe(self.saw)
        for kind in OF_PODS:
            for thing in view.all(kind):
                self.saw(
                    Change(WatchEventType.ADDED, key_of(kind, thing), thing["metadata"]["uid"], 0, b""), None, thing
                )

    def saw(self, change: Change, before: Json | None, after: Json | None) -> None:
        """Decide what to do."""
        raise NotImplementedError

    def later(self, seconds: float, call: Callable[..., None], *given: object) -> None:
        """Call within so many seconds; what the API server refuses is left."""

        def run() -> None:
            with suppress(ClusterError):
                call(*given)

        self.loop.call_later(self.random.uniform(0, seconds), run)


class ControllerManager(Actor):
    """Brings claims into line with pods, some time after changes of either, and removes what was on a node that is gone."""

    def __init__(self, loop: SimulationLoop, store: Store, view: View) -> None:
        self._controller = ClaimController(store)
        self._due = False
        super().__init__(loop, store, view)

    def saw(self, change: Change, before: Json | None, after: Json | None) -> None:
        if change.key.kind in (StoredKind.POD, StoredKind.CLAIM, StoredKind.POD_GROUP) and not self._due:
            self._due = True
            self.later(_CONTROLLER_SECONDS, self._reconcile)
        if change.key.kind is StoredKind.NODE and after is None:
            self.later(_COLLECT_SECONDS, self._collect, change.key)

    def _collect(self, node: Key) -> None:
        if self.store.find(node) is None:
            for kind in (StoredKind.POD, StoredKind.SLICE):
                for thing in self.store.all(kind):
                    if thing["spec"].get("nodeName") == node.name:
                        self.store.delete(key_of(kind, thing), thing["metadata"]["uid"])

    def _reconcile(self) -> None:
        self._due = False
        self._controller.reconcile()


class Kubelets(Actor):
    """Start pods that are bound, let the share `completing` of them end, and remove those that are deleted."""

    completing = 0.5

    def saw(self, change: Change, before: Json | None, after: Json | None) -> None:
        if change.key.kind is not StoredKind.POD or after is None or not after["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in after["metadata"]:
            self.later(_KUBELET_SECONDS, self._remove, change.key, change.uid)
        elif not (before or {}).get("spec", {}).get("nodeName"):
            self.later(_KUBELET_SECONDS, self._set_phase, change.key, change.uid, "Running")

    def _set_phase(self, key: Key, uid: str, phase: str) -> None:
        pod = self.store.get(key)
        # A pod that has ended never runs again, whatever a kubelet has forgotten.
        if pod["metadata"]["uid"] == uid and not is_finished(pod):
            self.store.edit_unchecked(key, lambda stored: stored["status"].update(phase=phase))
            if phase == "Running" and self.random.random() < self.completing:
                self.later(40.0, self._set_phase, key, uid, "Succeeded")

    def _remove(self, key: Key, uid: str) -> None:
        self.store.delete(key, uid)


class Drivers(Actor):
    """Attach devices after their allocation, and publish slices again."""

    lacking: frozenset[str] = frozenset()
    """Devices that no node has."""

    def __init__(self, loop: SimulationLoop, store: Store, view: View) -> None:
        super().__init__(loop, store, view)
        self._generation = 1
        self._unready_in_a_row: Counter[Key] = Counter()

    def saw(self, change: Change, before: Json | None, after: Json | None) -> None:
        if change.key.kind is StoredKind.CLAIM and after is not None and waiting_results({"status": {}, **after}):
            self.later(_DRIVER_SECONDS, self.attach, change.key)

    def attach(self, key: Key) -> None:
        """Report the devices of a claim that wait for that as attached, or failed, or never report them.

        After two devices of a claim that were not ready, the next is; otherwise a world might not come to rest in time.
        """
        claim = self.store.get(key)
        waiting = waiting_results({"status": {}, **claim})
        chance = self.random.random()
        if not waiting:
            return
        if chance >= _NEVER + _FAILS or self._unready_in_a_row[key] == _MOST_UNREADY_IN_A_ROW:
            del self._unready_in_a_row[key]
            self._report(claim, waiting, ATTACHED)
            return
        self._unready_in_a_row[key] += 1
        if chance >= _NEVER:
            self._report(claim, waiting, FAILED)

    def _report(self, claim: Json, results: list[Json], told: str) -> None:
        condition = {"type": told, "status": "True", "reason": "Test", "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        claim["status"]["devices"] = [
            {name: each[name] for name in ("driver", "pool", "device") if name in each} | {"conditions": [condition]}
            for each in results
        ]
        self.store.update_status(StoredKind.CLAIM, claim, "driver")

    def fail(self, chance: random.Random) -> None:
        """Report that a device has failed that was ready."""
        ready = [claim for claim in self.store.all(StoredKind.CLAIM) if part(claim, "status").get("devices")]
        # The claims of pods that are being bound are the interesting ones.
        binding = [claim for claim in ready if not any(map(self._runs, claim["status"].get("reservedFor") or ()))]
        if ready:
            claim = chance.choice(binding or ready)
            conditional = [each for each in _results(claim) if each.get("bindingConditions")]
            self._report(claim, conditional, FAILED)

    def _runs(self, consumer: Json) -> bool:
        found = self.store.find(Key(StoredKind.POD, NAMESPACE, consumer["name"]))
        return found is not None and bool(found["spec"].get("nodeName"))

    def publish(self, node: str, absent: frozenset[str]) -> None:
        """Publish a node's slices again, one some time after the other, without these devices."""
        self._generation += 1
        for each in slices(node, self._generation, absent | self.lacking):
            self.later(1.0, self._publish, each)

    def _publish(self, found: Json) -> None:
        key = key_of(StoredKind.SLICE, found)
        stored = self.store.find(key)
        if self.store.find(Key(StoredKind.NODE, "", found["spec"]["nodeName"])) is None:
            return
        if stored is None or stored["spec"]["pool"]["generation"] < found["spec"]["pool"]["generation"]:
            self.store.update(StoredKind.SLICE, found) if stored else self.store.create(StoredKind.SLICE, found)


class Rival:
    """Another scheduler, which knows nothing of the service.

    It takes a device that it sees free for a pod of its own, and binds the pod if nobody else has the device a moment later.
    """

    def __init__(self, loop: SimulationLoop, store: Store, view: View) -> None:
        self._loop = loop
        self._store = store
        self._view = view
        self._random = random.Random(f"rival {loop.random.random()}")

    async def place(self, name: str, shared: str = "") -> None:
        """Make a pod with a claim of its own, or with this one that others use, too, and place it; give up after some tries."""
        with suppress(ClusterError):
            claim = Key(StoredKind.CLAIM, NAMESPACE, shared or name)
            fields = objects.pod(name, NAMESPACE, claims={"gpu": claim.name}, scheduler="rival")
            pod = self._store.create(StoredKind.POD, fields)
            if self._store.find(claim) is None:
                self._store.create(StoredKind.CLAIM, objects.resource_claim(claim.name, NAMESPACE, request(WHOLE)))
            consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
            if not await self._tried(claim, consumer):
                self._store.delete(key_of(StoredKind.POD, pod))
                if not shared:
                    self._store.delete(claim)

    def _joined(self, key: Key, consumer: Json) -> bool:
        """Whether the pod was bound with a claim that a pod runs with."""
        claim = self._store.get(key)
        users = part(claim, "status").get("reservedFor") or []
        for each in users:
            user = self._store.find(Key(StoredKind.POD, key.namespace, each["name"]))
            if user is not None and user["spec"].get("nodeName"):
                claim["status"]["reservedFor"] = [*users, consumer]
                self._store.update_status(StoredKind.CLAIM, claim, "rival")
                pod = Key(StoredKind.POD, key.namespace, consumer["name"])
                self._store.bind(pod, consumer["uid"], user["spec"]["nodeName"])
                return True
        return False

    async def _tried(self, key: Key, consumer: Json) -> bool:
        for _ in range(_RIVAL_TRIES):
            if self._joined(key, consumer):
                return True
            if part(self._store.get(key), "status").get("allocation"):
                await asyncio.sleep(self._random.uniform(0, _RIVAL_SECONDS))
                continue
            taken = {device for claim in self._view.all(StoredKind.CLAIM) for device in whole_devices(claim)}
            free = [device for device in self._published() if device not in taken]
            if free:
                device = self._random.choice(free)
                await asyncio.sleep(self._random.uniform(0, _RIVAL_SECONDS))
                if part(self._store.get(key), "status").get("allocation"):
                    continue
                self._write(key, device, [consumer])
                await asyncio.sleep(_RIVAL_SECONDS)
                holders = [claim for claim in self._view.all(StoredKind.CLAIM) if device in whole_devices(claim)]
                users = part(self._store.get(key), "status").get("reservedFor") or []
                if len(holders) == 1 and consumer in users:
                    self._store.bind(Key(StoredKind.POD, key.namespace, consumer["name"]), consumer["uid"], device[1])
                    return True
                if users == [consumer]:
                    self._write(key, None, [])
            await asyncio.sleep(self._random.uniform(0, _RIVAL_SECONDS))
        return False

    def _published(self) -> list[tuple[str, str, str]]:
        return [
            (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
            for each in self._view.all(StoredKind.SLICE)
            for device in each["spec"].get("devices") or ()
            if device["name"].startswith(WHOLE)
        ]

    def _write(self, key: Key, device: tuple[str, str, str] | None, consumers: list[Json]) -> None:
        claim = self._store.get(key)
        claim["metadata"]["finalizers"] = [FINALIZER]
        claim = self._store.update(StoredKind.CLAIM, claim, "rival")
        status = claim.setdefault("status", {})
        if device is None:
            status.pop("allocation", None)
            status.pop("reservedFor", None)
        else:
            here = {"key": "metadata.name", "operator": "In", "values": [device[1]]}
            result = {"request": "gpu", **dict(zip(("driver", "pool", "device"), device, strict=True))}
            nodes = {"nodeSelectorTerms": [{"matchFields": [here]}]}
            status |= {
                "allocation": {"devices": {"results": [result]}, "nodeSelector": nodes},
                "reservedFor": consumers,
            }
        self._store.update_status(StoredKind.CLAIM, claim, "rival")


def _results(claim: Json) -> list[Json]:
    return list(part(claim, "status", "allocation", "devices").get("results") or ())


def whole_devices(claim: Json) -> Iterator[tuple[str, str, str]]:
    """The devices that a claim has whole."""
    for each in _results(claim):
        if not each.get("shareID"):
            yield each["driver"], each["pool"], each["device"]


class Users:
    """Make and delete pods and claims; some of them mean harm."""

    def __init__(self, loop: SimulationLoop, store: Store) -> None:
        self._store = store
        self._random = random.Random(f"users {loop.random.random()}")

    def create_pod(self, name: str, kind: str, shared: str = "", more: str = "") -> None:
        """A pod with a claim from a template, or one that uses a claim that others may use, too; `more`: and a further claim."""
        grace = self._fields()
        if more:
            templates = {"gpu": kind, "more": more}
            self._store.create(StoredKind.POD, objects.pod(name, NAMESPACE, templates=templates, **grace))
            return
        if shared:
            with suppress(ClusterError):
                self._store.create(StoredKind.CLAIM, objects.resource_claim(shared, NAMESPACE, request(kind)))
            pod = objects.pod(name, NAMESPACE, claims={"gpu": shared}, **grace)
        else:
            pod = objects.pod(name, NAMESPACE, templates={"gpu": kind}, **grace)
        self._store.create(StoredKind.POD, pod)

    def _fields(self) -> dict[str, Any]:
        """What a pod has besides its claims."""
        fields: dict[str, Any] = {"terminationGracePeriodSeconds": self._random.choice((0, _GRACE_SECONDS))}
        if self._random.random() < 0.5:
            fields["tolerations"] = [{"operator": "Exists"}]
        return fields

    def create_gang(self, name: str, size: int, shared: str) -> None:
        """A PodGroup whose members start together; `shared`: the kind of a claim that all of them use, else each has its own."""
        templates = {"gpu": shared} if shared else None
        group = objects.pod_group(name, NAMESPACE, min_count=size, templates=templates)
        self._store.create(StoredKind.POD_GROUP, group)

    def create_member(self, gang: str, name: str, kind: str) -> None:
        fields = self._fields() | {"schedulingGroup": {"podGroupName": gang}}
        self._store.create(StoredKind.POD, objects.pod(name, NAMESPACE, templates={"gpu": kind}, **fields))

    def touch_claim(self, name: str) -> None:
        key = Key(StoredKind.CLAIM, NAMESPACE, name)
        label = str(self._random.randrange(1000))
        self._store.edit_unchecked(key, lambda claim: claim["metadata"].setdefault("labels", {}).update(touched=label))

    def create_claim(self, name: str, kind: str) -> None:
        """A claim that pods may use later."""
        self._store.create(StoredKind.CLAIM, objects.resource_claim(name, NAMESPACE, request(kind)))

    def delete_claim(self, name: str) -> None:
        """Delete a claim; one that is in use goes when it is used no more, and another of its name may follow."""
        self._store.delete(Key(StoredKind.CLAIM, NAMESPACE, name))

    def delete_pod(self, name: str) -> None:
        """Delete a pod, if it is there; a bound one goes when its kubelet has ended it."""
        key = Key(StoredKind.POD, NAMESPACE, name)
        pod = self._store.find(key)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            bound = pod["spec"].get("nodeName") and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
            self._store.delete(key, grace=pod["spec"].get("terminationGracePeriodSeconds", 0) if bound else 0)

    def create_hostile(self, name: str) -> None:
        """A claim and a pod that are as large, nested or odd as the API server lets through."""
        chance, selector = self._random, "true"
        for _ in range(chance.randrange(1, 60)):
            selector = chance.choice((f"({selector})", f"!({selector})", f"[{selector}][0]", f"({selector}) && true"))
        text = chance.choice(('"', "\\", "\u202e\U0001f9a4", "{{" * 40, "x" * 5_000, "\n\x00\t")) * chance.randrange(
            1, 8
        )
        claim = objects.resource_claim(
            name, NAMESPACE, objects.request("gpu", "gpu", selector, count=chance.choice((1, 32)))
        )
        claim["metadata"]["annotations"] = {"note": text}
        pod = objects.pod(name, NAMESPACE, claims={"gpu": name})
        pod["metadata"]["annotations"] = {"note": text}
        self._store.create(StoredKind.CLAIM, claim)
        self._store.create(StoredKind.POD, pod)

    def random_kind(self) -> str:
        return random_kind(self._random)
