"""A cluster that notes what it delivers, what it is asked and what it answers."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from dra_extender.ledger.sinks import EventSink
from dra_extender.recording.clock_readings import ClockKind
from dra_extender.recording.plain import KIND_OF_PORT, argument_of, object_of, result_of
from dra_extender.recording.records import BACKGROUND, Delivered, FactsLearned, is_use_case, working_for
from dra_extender.recording.steps import StepRecorder
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

    def __init__(self, cluster: WatchedCluster, steps: StepRecorder, began: float) -> None:
        """The clock that never goes back shows seconds since `began`."""
        self._cluster = cluster
        self._steps = steps
        self.claims: Any = _RecordedPort("claims", cluster.claims, steps, self._note_facts)
        self.pods: Any = _RecordedPort("pods", cluster.pods, steps, self._note_facts)
        self.claim_templates: Any = _RecordedPort("claim_templates", cluster.claim_templates, steps, self._note_facts)
        self.pod_groups: Any = _RecordedPort("pod_groups", cluster.pod_groups, steps, self._note_facts)
        self.waker: Any = _RecordedPort("waker", cluster.waker, steps, self._note_facts)
        self.events: Events = cluster.events
        self.clock: Clock = _RecordedClock(cluster.clock, steps, began)
        self._facts: FactsLearned | None = None

    @property
    def keeps_extended_claims(self) -> bool:
        """See Cluster."""
        self._note_facts()
        return self._cluster.keeps_extended_claims

    @property
    def has_devices_beside_counters(self) -> bool:
        """See Cluster."""
        self._note_facts()
        return self._cluster.has_devices_beside_counters

    def health(self) -> Mapping[str, str | None]:
        """See Cluster."""
        return self._cluster.health()

    def notes(self) -> Mapping[str, str]:
        """See Cluster."""
        ended = self._steps.ended
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
        if self._steps.ended is None:
            item = None if data is None else object_of(kind, data)
            self._steps.cause(lambda at: Delivered(at=at, kind=kind, change=change, object=item, key=key))  # type: ignore[arg-type]

    def _note_facts(self) -> None:
        """Note what the API server serves, when a use case asks for it and it has changed."""
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
            self._steps.within(lambda at: msgspec.structs.replace(facts, at=at))


class _RecordedSink:
    def __init__(self, kind: str, sink: EventSink, cluster: RecordedCluster) -> None:
        self._kind = kind
        self._sink = sink
        self._cluster = cluster

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "changed", data, None)
        with working_for(BACKGROUND):
            self._sink.changed(data)

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "deleted", None, (namespace, name, uid))
        with working_for(BACKGROUND):
            self._sink.deleted(namespace, name, uid)

    def synced(self) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "synced", None, None)
        with working_for(BACKGROUND):
            self._sink.synced()

    def absent(self) -> None:
        """See EventSink."""
        self._cluster.note_delivery(self._kind, "absent", None, None)
        with working_for(BACKGROUND):
            self._sink.absent()


class _RecordedClock:
    """Notes what clocks show to the use cases."""

    def __init__(self, clock: Clock, steps: StepRecorder, began: float) -> None:
        self._clock = clock
        self._steps = steps
        self._began = began

    def now(self) -> float:
        """See Clock."""
        now = self._clock.now()
        return self._steps.reading(ClockKind.WALL, now) if is_use_case() else now

    def monotonic(self) -> float:
        """See Clock."""
        seconds = self._clock.monotonic() - self._began
        return self._steps.reading(ClockKind.MONOTONIC, seconds) if is_use_case() else seconds


class _RecordedPort:
    """Notes the calls of the methods of a port and what they return or raise."""

    def __init__(self, name: str, port: Any, steps: StepRecorder, note_facts: Callable[[], None]) -> None:
        self._name = name
        self._kind = KIND_OF_PORT.get(name, "")
        self._port = port
        self._steps = steps
        self._note_facts = note_facts

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._port, method)
        if not callable(found):
            self._note_facts()
            return found

        async def call(*arguments: Any) -> Any:
            def asked() -> tuple[str, str, list[Any]]:
                return self._name, method, [argument_of(self._kind, each) for each in arguments]

            return await self._steps.outside(found(*arguments), asked, lambda value: result_of(self._kind, value))

        return call
