"""A cluster that notes what it delivers, what it is asked and what it answers."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Protocol

import msgspec

from dra_extender.ledger.sinks import EventSink
from dra_extender.recording.plain import KIND_OF_PORT, argument_of, object_of, result_of
from dra_extender.recording.recorder import Recorder
from dra_extender.recording.records import CURRENT_CALL, Asked, Delivered, FactsLearned, Given, TimeRead
from dra_extender.scheduling.ports.cluster import Clock, Cluster, Events


class WatchedCluster(Cluster, Protocol):
    """A cluster that keeps sinks up to date."""

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect and begin to watch.  Raises ClusterError and errors of its configuration."""
        ...

    async def wait_synced(self) -> None:
        """Returns when every object that exists has been delivered to its sink."""
        ...

    async def stop(self) -> None:
        """End watches and connections."""
        ...

    def life(self) -> Mapping[str, str | None]:
        """Failures that only a restart of the process can repair, by name."""
        ...


class RecordedCluster:
    """Implements WatchedCluster over another one, and notes what passes through."""

    def __init__(self, cluster: WatchedCluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        numbers = count()
        self.claims: Any = _RecordedPort("claims", cluster.claims, recorder, numbers)
        self.pods: Any = _RecordedPort("pods", cluster.pods, recorder, numbers)
        self.claim_templates: Any = _RecordedPort("claim_templates", cluster.claim_templates, recorder, numbers)
        self.pod_groups: Any = _RecordedPort("pod_groups", cluster.pod_groups, recorder, numbers)
        self.waker = cluster.waker
        self.events: Events = cluster.events
        self.clock: Clock = _RecordedClock(cluster.clock, recorder)
        self._facts: FactsLearned | None = None

    @property
    def keeps_extended_claims(self) -> bool:
        """See Cluster."""
        return self._cluster.keeps_extended_claims

    @property
    def has_devices_beside_counters(self) -> bool:
        """See Cluster."""
        return self._cluster.has_devices_beside_counters

    def health(self) -> Mapping[str, str | None]:
        """See Cluster."""
        return self._cluster.health()

    def notes(self) -> Mapping[str, str]:
        """See Cluster."""
        ended = self._recorder.ended
        state = "in progress" if ended is None else f"has ended: {ended}"
        return {**self._cluster.notes(), "recording": state}

    def life(self) -> Mapping[str, str | None]:
        """See WatchedCluster."""
        return self._cluster.life()

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """See WatchedCluster."""
        await self._cluster.start({kind: _RecordedSink(kind, sink, self) for kind, sink in sinks.items()})

    async def wait_synced(self) -> None:
        """See WatchedCluster."""
        await self._cluster.wait_synced()

    async def stop(self) -> None:
        """See WatchedCluster."""
        await self._cluster.stop()

    def note_delivery(self, kind: str, change: str, data: bytes | None, key: tuple[str, str, str] | None) -> None:
        """Note what a watch delivers."""
        if self._recorder.ended is None:
            self.note_facts()
            item = None if data is None else object_of(kind, data)
            self._recorder.note_cause(lambda at: Delivered(at=at, kind=kind, change=change, object=item, key=key))

    def note_facts(self) -> None:
        """Note what the API server serves, if that has changed."""
        cluster = self._cluster
        facts = FactsLearned(
            at=0.0,
            keeps_groups=cluster.claims.keeps_groups,
            group_version=cluster.pod_groups.api_version,
            keeps_extended_claims=cluster.keeps_extended_claims,
            has_devices_beside_counters=cluster.has_devices_beside_counters,
        )
        if facts != self._facts:
            self._facts = facts
            self._recorder.note_cause(lambda at: msgspec.structs.replace(facts, at=at))


class _RecordedSink:
    def __init__(self, kind: str, sink: EventSink, cluster: RecordedCluster) -> None:
        self._kind = kind
        self._sink = sink
        self._cluster = cluster

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "changed", data, None)
        self._sink.changed(data)

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "deleted", None, (namespace, name, uid))
        self._sink.deleted(namespace, name, uid)

    def synced(self) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "synced", None, None)
        self._sink.synced()

    def absent(self) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "absent", None, None)
        self._sink.absent()


class _RecordedClock:
    """Notes what the wall clock shows."""

    def __init__(self, clock: Clock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder
        self.monotonic = clock.monotonic

    def now(self) -> float:
        """See Clock."""
        now = self._clock.now()
        self._recorder.note(lambda at: TimeRead(at=at, now=now, call=CURRENT_CALL.get()))
        return now


class _RecordedPort:
    """Notes the calls of the methods of a port and what they return or raise."""

    def __init__(self, name: str, port: Any, recorder: Recorder, numbers: "count[int]") -> None:
        self._name = name
        self._kind = KIND_OF_PORT[name]
        self._port = port
        self._recorder = recorder
        self._numbers = numbers

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._port, method)
        if not callable(found):
            return found

        async def call(*arguments: Any) -> Any:
            number = next(self._numbers)
            self._note_asked(number, method, arguments)
            try:
                value = await found(*arguments)
            except Exception as problem:
                error = (type(problem).__name__, str(problem))
                for base in type(problem).__mro__:
                    if base.__module__ == Cluster.__module__:
                        error = (base.__name__, str(problem))
                        break
                self._recorder.note_cause(lambda at: Given(at=at, number=number, error=error))
                raise
            self._recorder.note_cause(lambda at: Given(at=at, number=number, value=result_of(self._kind, value)))
            return value

        return call

    def _note_asked(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        def made(at: float) -> Asked:
            plain = [argument_of(self._kind, each) for each in arguments]
            return Asked(at=at, number=number, port=self._name, method=method, arguments=plain)

        self._recorder.note(made)
