"""What must hold after every write, and what must be so in the end, judged by stored objects alone."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple

from dra_extender.allocator.state.features import Features
from dra_extender.kube.leader_election import held_on
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import node_from
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.claims.readiness import Readiness, evaluate_conditions
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind, part
from dra_extender.simulator.apiserver.store import Store, WatchEventType
from dra_extender.simulator.scheduler.in_tree import InTreeFilters

from tests.simulation.api_server import Write
from tests.simulation.judge import Judge
from tests.support.audit.raw_objects import audit
from tests.support.audit.waiting_pods import FITS, waiting_pods
from tests.support.model.reading import pod_from

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
        self._judge = Judge(lease.namespace)
        self._found: set[str] = set()
        for kind in StoredKind:
            for key, data in store.keyed(kind).items():
                self._judge.change(key, data)

    def look(self, write: Write) -> None:
        """Judge the store as this write has left it."""
        self.writes += 1
        change = write.change
        data = None if change.verb is WatchEventType.DELETED else change.data
        before, after = self._judge.change(change.key, data)
        found = self._judge.broken()
        if isinstance(after, Pod):
            found += self._not_ready(before, after)
        if found:
            seconds, step, process = self._moment()
            writer = f"{write.user} ({write.verb} {write.subresource})" if write.user else process
            for each in found:
                if each not in self._found:
                    self.violations.append(Violation(seconds, step, each, writer, str(change.key)))
        self._found = set(found)

    def disagreement(self) -> list[str]:
        """Return what is found after every write and not when everything is judged anew, or the other way round."""
        return sorted(set(self._judge.broken()) ^ set(self._judge.broken_in_full()))

    def _not_ready(self, before: Pod | None, after: Pod) -> Iterator[str]:
        """Claims of a pod that has just been bound whose devices were not reported as ready."""
        if not after.node_name or before is None or before.node_name:
            return
        for claim in self._judge.reserved_for(after.uid):
            verdict = evaluate_conditions(claim, now=0.0, waiting_since=0.0, timeout=inf)
            # A device that was ready may have failed meanwhile.
            if verdict.readiness is Readiness.PENDING:
                name = "/".join(claim.metadata.key)
                yield f"bound before its devices are ready: pod {after.key}, {name}: {verdict.text}"

    def note(self, found: str, writer: str, key: str) -> None:
        """Something is wrong that a write did, or would do."""
        seconds, step, _ = self._moment()
        self.violations.append(Violation(seconds, step, found, writer, key))

    def look_at_request(self, host: str, data: bytes) -> None:
        """Judge bytes that a replica hands to a connection: only the holder of the lease may begin a write, but to the lease.

        What it has sent may be carried out when it leads no more.
        """
        method, _, rest = data.partition(b" ")
        lease = self._store.peek(self._lease)
        holder = str(part(lease or {}, "spec").get("holderIdentity") or "")
        if method in _WRITES and b"/leases" not in rest.partition(b" ")[0] and not held_on(holder, host):
            seconds, step, _ = self._moment()
            request = data.partition(b" HTTP")[0].decode()
            found = f"write by a deposed leader, while {holder or 'nobody'} has the lease"
            self.violations.append(Violation(seconds, step, found, host, request))


def left_at_rest(store: Store, guard_namespace: str) -> Iterator[str]:
    """Find what must not be left when everything has come to rest: what nobody uses, then pods that wait although they fit.

    The next one is only looked for when it is asked for.
    """
    reader = SliceReader()
    found = audit(
        [claim_from(each) for each in store.peek_all(StoredKind.CLAIM)],
        [reader.read(each) for each in store.keyed(StoredKind.SLICE).values()],
        [pod_from(each) for each in store.peek_all(StoredKind.POD)],
        [node_from(each) for each in store.peek_all(StoredKind.NODE)],
        [read_pod_group(each) for each in store.keyed(StoredKind.POD_GROUP).values()],
        GroupEntryPolicy.AUTO,
        guard_namespace,
    )
    yield from map(str, found)
    ledger = Ledger()
    sinks = sinks_of(ledger)
    for kind in StoredKind:
        for data in store.keyed(kind).values() if kind in sinks else ():
            try:
                sinks[kind].changed(data)
            except ModelError:
                continue
    waiting = waiting_pods(ledger, NodeAllocator(ledger, Features(), Options()))
    yield from (str(each) for each in waiting if each.rule != FITS or _admitted(store, each.about))


def _admitted(store: Store, pod: str) -> bool:
    """Whether kube-scheduler's own filters let the pod on any node."""
    found = store.find(Key(StoredKind.POD, *pod.split("/")))
    return found is not None and bool(InTreeFilters(store.peek_all, classes_serve=True).judge(found).fitting)
