"""What must hold after every write, and what must be so in the end, judged by stored objects alone."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Final, NamedTuple

import msgspec
from dra_extender.allocator.state.features import Features
from dra_extender.audit.findings import AWAY, DEVICE_TWICE, KUBELET
from dra_extender.audit.invariants import audit
from dra_extender.audit.pending import waiting_pods
from dra_extender.kube.leader.candidate import held_on
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import node_from
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.claims.conditions import Readiness, evaluate_conditions
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind, part
from dra_extender.simulator.apiserver.store import Store, WatchEventType

from tests.simulation.actors import whole_devices
from tests.simulation.api_server import Write
from tests.support.e2e.checker import NEVER
from tests.support.model.reading import pod_from

RIVAL: Final = "rival-"
"""How names of the rival's pods and claims begin."""
_ALWAYS: Final = NEVER | {AWAY, KUBELET}
_WRITES: Final = (b"POST", b"PUT", b"PATCH", b"DELETE")


class Violation(NamedTuple):
    """A rule that a write has broken: when, which, about what, and who wrote which object."""

    seconds: float
    step: int
    found: str
    writer: str
    key: str

    def __str__(self) -> str:
        return f"at {self.seconds:.6f} s, step {self.step}: {self.found}; after a write of {self.key} by {self.writer}"


class Invariants:
    """Looks at the store after every write; `violations` has each broken rule once."""

    def __init__(self, store: Store, lease: Key, moment: Callable[[], tuple[float, int, str]]) -> None:
        """`moment`: seconds, step and the name of the process that runs."""
        self.violations: list[Violation] = []
        self.writes = 0
        self._store = store
        self._lease = lease
        self._moment = moment
        self._reader = SliceReader()
        self._read: dict[StoredKind, Callable[[bytes], Any]] = {
            StoredKind.CLAIM: lambda data: claim_from(msgspec.json.decode(data)),
            StoredKind.SLICE: self._reader.read,
            StoredKind.POD: lambda data: pod_from(msgspec.json.decode(data)),
            StoredKind.NODE: lambda data: node_from(msgspec.json.decode(data)),
            StoredKind.POD_GROUP: read_pod_group,
        }
        self._objects: dict[StoredKind, dict[Key, Any]] = {kind: {} for kind in self._read}
        self._found: set[str] = set()
        self._audited: list[str] = []
        for kind, read in self._read.items():
            for key, data in store.keyed(kind).items():
                self._objects[kind][key] = read(data)

    def look(self, write: Write) -> None:
        """Judge the store as this write has left it."""
        self.writes += 1
        change = write.change
        kind = change.key.kind
        found: list[str] = []
        if kind in self._read:
            before = self._objects[kind].pop(change.key, None)
            if change.verb is not WatchEventType.DELETED:
                self._keep(change.key, change.data, before)
            if kind is not StoredKind.POD or _where(before) != _where(self._objects[kind].get(change.key)):
                self._audited = [*self._broken_rules(), *self._bound_twice()]
            if kind is StoredKind.POD:
                found += self._not_ready(before, self._objects[kind].get(change.key))
        found += self._audited
        seconds, step, process = self._moment()
        writer = f"{write.user} ({write.verb} {write.subresource})" if write.user else process
        for each in found:
            if each not in self._found:
                self.violations.append(Violation(seconds, step, each, writer, str(change.key)))
        self._found = set(found)

    def _keep(self, key: Key, data: bytes, before: Any) -> None:
        try:
            self._objects[key.kind][key] = self._read[key.kind](data)
        except ModelError:
            # The service cannot read it, either, and goes on with what it knew of the object.
            if before is not None:
                self._objects[key.kind][key] = before

    def _broken_rules(self) -> Iterator[str]:
        for each in self._audit():
            # The rival may store what a pod of ours has that is not bound yet.
            if each.rule in _ALWAYS and not (each.rule == DEVICE_TWICE and RIVAL in each.detail):
                yield str(each)

    def _bound_twice(self) -> Iterator[str]:
        """Devices that two bound pods have: what a pod has when it is bound stays its own."""
        bound = {pod.uid for pod in self._objects[StoredKind.POD].values() if pod.node_name and not pod.finished}
        holders: dict[tuple[str, str, str], str] = {}
        for key in self._objects[StoredKind.CLAIM]:
            claim = self._store.find(key) or {}
            if any(each["uid"] in bound for each in part(claim, "status").get("reservedFor") or ()):
                for device in whole_devices(claim):
                    if device in holders:
                        yield f"bound twice: {'/'.join(device)}: {holders[device]} and {key}"
                    holders[device] = str(key)

    def _not_ready(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Claims of a pod that has just been bound whose devices were not reported as ready."""
        if after is None or not after.node_name or before is None or before.node_name:
            return
        for key, claim in self._objects[StoredKind.CLAIM].items():
            if claim.reserved_by(after.uid):
                verdict = evaluate_conditions(claim, now=0.0, waiting_since=0.0, timeout=inf)
                if verdict.readiness is not Readiness.READY:
                    yield f"bound before its devices are ready: pod {after.key}, {key}: {verdict.text}"

    def _audit(self) -> Any:
        claims, slices, pods, nodes, groups = (list(self._objects[kind].values()) for kind in self._read)
        return audit(claims, slices, pods, nodes, groups, GroupReservation.AUTO, self._lease.namespace)

    def look_at_request(self, host: str, data: bytes) -> None:
        """Judge bytes that a replica hands to a connection: only the holder of the lease may begin a write, but to the lease.

        What it has sent may be carried out when it leads no more.
        """
        method, _, rest = data.partition(b" ")
        lease = self._store.find(self._lease)
        holder = str(part(lease or {}, "spec").get("holderIdentity") or "")
        if method in _WRITES and b"/leases" not in rest.partition(b" ")[0] and not held_on(holder, host):
            seconds, step, _ = self._moment()
            request = data.partition(b" HTTP")[0].decode()
            found = f"write by a deposed leader, while {holder or 'nobody'} has the lease"
            self.violations.append(Violation(seconds, step, found, host, request))


def _where(pod: Pod | None) -> tuple[object, ...]:
    """What the rules ask of a pod, as far as it changes."""
    return () if pod is None else (pod.uid, pod.node_name, pod.finished, pod.deleting, pod.claim_statuses)


def left_at_rest(store: Store, guard_namespace: str) -> list[str]:
    """What must not be left when everything has come to rest: pods that wait although they fit, and anything that nobody uses."""
    ledger = Ledger()
    sinks = sinks_of(ledger)
    for kind in StoredKind:
        for data in store.data(kind) if kind in sinks else ():
            try:
                sinks[kind].changed(data)
            except ModelError:
                continue
    reader = SliceReader()
    found = audit(
        [claim_from(each) for each in store.all(StoredKind.CLAIM)],
        [reader.read(each) for each in store.data(StoredKind.SLICE)],
        [pod_from(each) for each in store.all(StoredKind.POD)],
        [node_from(each) for each in store.all(StoredKind.NODE)],
        [read_pod_group(each) for each in store.data(StoredKind.POD_GROUP)],
        GroupReservation.AUTO,
        guard_namespace,
    )
    return [*map(str, found), *map(str, waiting_pods(ledger, NodeAllocator(ledger, Features(), Options())))]
