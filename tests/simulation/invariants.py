"""What must hold after every write, and what must be so in the end, judged by stored objects alone."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from dra_extender.allocator.state.features import Features
from dra_extender.audit.findings import AWAY, KUBELET
from dra_extender.audit.invariants import audit
from dra_extender.audit.pending import waiting_pods
from dra_extender.kube.leader.candidate import held_on
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import node_from
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.apiserver.store import Store, WatchEventType

from tests.simulation.api_server import Write
from tests.support.e2e.checker import NEVER
from tests.support.model.reading import pod_from

_ALWAYS: Final = NEVER | {AWAY, KUBELET}
_LEADERS: Final = (StoredKind.CLAIM, StoredKind.POD, StoredKind.CLASS, StoredKind.ENDPOINT_SLICE, StoredKind.POD_GROUP)
"""Kinds that a replica writes only while it leads."""


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
        for kind, read in self._read.items():
            for key, data in store.keyed(kind).items():
                self._objects[kind][key] = read(data)

    def look(self, write: Write) -> None:
        """Judge the store as this write has left it."""
        self.writes += 1
        change = write.change
        kind = change.key.kind
        found = list(self._deposed(write))
        if kind in self._read:
            if change.verb is WatchEventType.DELETED:
                self._objects[kind].pop(change.key, None)
            else:
                self._keep(change.key, change.data)
            found += [str(each) for each in self._audit() if each.rule in _ALWAYS]
        seconds, step, process = self._moment()
        writer = f"{write.user} ({write.verb} {write.subresource})" if write.user else process
        for each in found:
            if each not in self._found:
                self.violations.append(Violation(seconds, step, each, writer, str(change.key)))
        self._found = set(found)

    def _keep(self, key: Key, data: bytes) -> None:
        try:
            self._objects[key.kind][key] = self._read[key.kind](data)
        except ModelError:
            # The service cannot read it, either, and goes on with what it knew of the object.
            return

    def _audit(self) -> Any:
        claims, slices, pods, nodes, groups = (list(self._objects[kind].values()) for kind in self._read)
        return audit(claims, slices, pods, nodes, groups, GroupReservation.AUTO, Options().own_namespace)

    def _deposed(self, write: Write) -> Iterator[str]:
        if write.user.startswith("replica") and write.change.key.kind in _LEADERS:
            lease = self._store.find(self._lease)
            holder = (lease or {}).get("spec", {}).get("holderIdentity") or ""
            if not held_on(holder, write.user):
                yield f"write by a deposed leader: {write.user} while {holder or 'nobody'} holds the lease"


def left_at_rest(store: Store) -> list[str]:
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
        Options().own_namespace,
    )
    return [*map(str, found), *map(str, waiting_pods(ledger, NodeAllocator(ledger, Features(), Options())))]
