"""The connection to one API server: who we are there, what it serves, and the kinds that are watched."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from dra_extender.kube.client.backoff import SleepAndJitter
from dra_extender.kube.client.credentials import Credentials
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport, WriteFence
from dra_extender.kube.discovery import Discovery, ServerFacts
from dra_extender.kube.reflector import Reflector
from dra_extender.ledger.sinks import EventSink
from dra_extender.runtime.clock import SystemClock
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel_all
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.observer import Observer
from dra_extender.telemetry.spans import NO_SPANS, Spans


class ClusterConnection:
    """Connects, learns what the API server serves, and watches kinds in the background, one reflector each.

    `open` connects, `discover` reads the facts, `watch` begins to follow a kind, and `close` ends it all.  `facts` and
    `credentials` are None until they are known.
    """

    def __init__(
        self,
        settings: KubeSettings,
        clock: Clock | None = None,
        observer: Observer | None = None,
        chance: SleepAndJitter | None = None,
        write_fence: WriteFence | None = None,
        spans: Spans = NO_SPANS,
    ) -> None:
        self.facts: ServerFacts | None = None
        self.credentials: Credentials | None = None
        self.reflectors: dict[str, Reflector] = {}
        self.clock = clock or SystemClock()
        self.chance = chance or SleepAndJitter()
        self.observer = observer or Observer()
        self.transport = ApiTransport(settings, self.clock, self.observer, write_fence, spans)
        self.supervisor = Supervisor(self.observer.background_failed, sleep=self.chance.sleep)
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Credentials:
        """Find the credentials.  Raises ConfigurationError."""
        self.credentials = await self.transport.open()
        return self.credentials

    async def discover(self) -> ServerFacts:
        """Read what the API server is and serves.

        Raises:
            RequestRejectedError: the server is too old, or refuses access.
            ServerUnavailableError: it does not answer.
        """
        self.facts = await Discovery(self.transport, self._settings).facts()
        return self.facts

    def watch(self, kind: ResourceKind, sink: EventSink, namespace: str | None = None) -> Reflector:
        """Begin to follow a kind, in all namespaces or in one."""
        reflector = Reflector(
            self.transport,
            kind,
            sink,
            self._settings,
            self.clock,
            observer=self.observer,
            chance=self.chance,
            namespace=namespace,
        )
        self.keep(BackgroundTask.WATCH, reflector.keep_watching, kind.plural)
        return reflector

    def watch_served(self, sinks: Mapping[str, EventSink], facts: ServerFacts, credentials: Credentials) -> list[str]:
        """Begin to follow the kinds that have a sink, by plural name; return those that are not served.

        Of a kind that is not served, `absent` of its sink is called.  The credentials are kept fresh from now on.
        """
        self.keep(BackgroundTask.CREDENTIALS, partial(credentials.keep_fresh, self.chance.sleep))
        served = facts.kinds()
        for plural, sink in sinks.items():
            if plural in served:
                self.reflectors[plural] = self.watch(served[plural], sink)
            else:
                sink.absent()
        return [plural for plural in sinks if plural not in served]

    def keep(self, kind: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]], instance: str = "") -> None:
        self._tasks.append(self.supervisor.keep(kind, work, instance))

    def contact_ages(self) -> Mapping[str, float]:
        """Return the seconds since the last response to the list or watch of each kind."""
        now = self.clock.monotonic()
        return {plural: now - reflector.last_contact for plural, reflector in self.reflectors.items()}

    async def close(self) -> None:
        await cancel_all(self._tasks)
        self._tasks.clear()
        await self.transport.close()
