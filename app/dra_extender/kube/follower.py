"""Follows the kinds of a cluster for a reader, without a write: kinds that the account may not list are left out and named."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from dra_extender.kube.client.credentials import Credentials, find_credentials
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery.discovery import Discovery
from dra_extender.kube.discovery.server_features import ServerFacts
from dra_extender.kube.reader import NOT_SERVED, ClusterReading, served_kinds
from dra_extender.kube.watch.reflector import Reflector, SleepAndJitter
from dra_extender.ledger.sinks import EventSink
from dra_extender.runtime.clock import SystemClock
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel_all

_LOOK_SECONDS = 0.05


class ClusterFollower:
    """Keeps sinks in step with the kinds of a cluster, one reflector each.

    `start` connects, `listed` returns once each kind has been listed or refused, `stop` ends it.
    """

    def __init__(self, settings: KubeSettings, *, chance: SleepAndJitter | None = None) -> None:
        self._settings = settings
        self._chance = chance or SleepAndJitter()
        self._clock = SystemClock()
        self._observer = NullObserver()
        self._transport = ApiTransport(settings, self._clock, self._observer)
        self._supervisor = Supervisor(self._observer.background_failed, sleep=self._chance.sleep)
        self._reflectors: dict[str, Reflector] = {}
        self._not_served: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._credentials: Credentials | None = None
        self._facts: ServerFacts | None = None

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect and begin to watch the kinds that have a sink, by plural name.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
        """
        self._credentials = await find_credentials(self._settings, self._clock)
        self._transport.connect(self._credentials)
        self._facts = await Discovery(self._transport, self._settings).facts()
        served = served_kinds(self._facts)
        for plural, sink in sinks.items():
            kind = served.get(plural)
            if kind is None:
                self._not_served[plural] = NOT_SERVED
                sink.absent()
                continue
            reflector = Reflector(
                self._transport,
                kind,
                sink,
                self._settings,
                self._clock,
                observer=self._observer,
                chance=self._chance,
            )
            self._reflectors[plural] = reflector
            self._tasks.append(self._supervisor.keep(BackgroundTask.WATCH, reflector.run, plural))
        keep_fresh = partial(self._credentials.keep_fresh, self._chance.sleep)
        self._tasks.append(self._supervisor.keep(BackgroundTask.CREDENTIALS, keep_fresh))

    async def listed(self) -> None:
        """Returns when each kind has been listed and delivered, or refused."""
        for reflector in self._reflectors.values():
            while not reflector.refusals:
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await reflector.synced.wait()
                except TimeoutError:
                    continue
                break

    def reading(self, by_kind: Mapping[str, Sequence[bytes]]) -> ClusterReading:
        """What the sinks have now, as one reading; kinds that the account may not list are left out.

        Raises:
            RuntimeError: the start has not succeeded.
        """
        if self._credentials is None or self._facts is None:
            raise RuntimeError("the cluster is not followed yet")
        forbidden = {
            plural: each.last_error or "list: forbidden" for plural, each in self._reflectors.items() if each.refusals
        }
        return ClusterReading(
            source=self._transport.identified(self._credentials.source),
            namespace=self._credentials.identity.namespace,
            taken_at=self._clock.now(),
            facts=self._facts,
            by_kind={
                kind: found for kind, found in by_kind.items() if kind not in forbidden and kind not in self._not_served
            },
            forbidden=forbidden,
            one_namespace=(),
            not_served=dict(self._not_served),
        )

    def contact_ages(self) -> Mapping[str, float]:
        """Seconds since the last response to the list or watch of each kind."""
        now = self._clock.monotonic()
        return {plural: now - each.last_contact for plural, each in self._reflectors.items()}

    def problems(self) -> Sequence[str]:
        """A sentence for each kind that is not followed now, and for objects that cannot be read."""
        found = [problem for each in self._reflectors.values() if (problem := each.health())]
        for each in self._reflectors.values():
            found += each.notes().values()
        return found

    async def stop(self) -> None:
        """End watches and connections."""
        await cancel_all(self._tasks)
        self._tasks.clear()
        await self._transport.close()
