"""Follows the kinds of a cluster for a reader, without a write: kinds that the account may not list are left out and named."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from dra_extender.kube.client.credentials import Credentials, find_credentials
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.resources import ResourceKind
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
_MOST_FAILURES: Final = 3
"""After so many failures in a row a kind counts as one that cannot be read now."""


class ClusterFollower:
    """Keeps sinks in step with the kinds of a cluster, one reflector each.

    If the account may not list a kind in all namespaces, a second reflector follows those of one namespace.  `start` connects,
    `listed` returns once each kind has been listed, refused, or has failed several times, `stop` ends it.
    """

    def __init__(self, settings: KubeSettings, *, chance: SleepAndJitter | None = None) -> None:
        self._settings = settings
        self._chance = chance or SleepAndJitter()
        self._clock = SystemClock()
        self._observer = NullObserver()
        self._transport = ApiTransport(settings, self._clock, self._observer)
        self._supervisor = Supervisor(self._observer.background_failed, sleep=self._chance.sleep)
        self._reflectors: dict[str, Reflector] = {}
        self._in_namespace: dict[str, Reflector] = {}
        self._sinks: Mapping[str, EventSink] = {}
        self._namespace = ""
        self._not_served: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._credentials: Credentials | None = None
        self._facts: ServerFacts | None = None

    async def start(self, sinks: Mapping[str, EventSink], namespace: str | None = None) -> None:
        """Connect and begin to watch the kinds that have a sink, by plural name.

        `namespace` is followed alone if the account may not list a kind in all of them; None: that of the context.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
        """
        self._credentials = await find_credentials(self._settings, self._clock)
        self._transport.connect(self._credentials)
        self._facts = await Discovery(self._transport, self._settings).facts()
        self._namespace = namespace or self._credentials.identity.namespace
        self._sinks = sinks
        served = served_kinds(self._facts)
        for plural, sink in sinks.items():
            kind = served.get(plural)
            if kind is None:
                self._not_served[plural] = NOT_SERVED
                sink.absent()
                continue
            self._reflectors[plural] = self._reflector(kind)
        keep_fresh = partial(self._credentials.keep_fresh, self._chance.sleep)
        self._tasks.append(self._supervisor.keep(BackgroundTask.CREDENTIALS, keep_fresh))

    def _reflector(self, kind: ResourceKind, namespace: str | None = None) -> Reflector:
        """Start to follow the kind, in all namespaces or in one."""
        reflector = Reflector(
            self._transport,
            kind,
            self._sinks[kind.plural],
            self._settings,
            self._clock,
            observer=self._observer,
            chance=self._chance,
            namespace=namespace,
        )
        self._tasks.append(self._supervisor.keep(BackgroundTask.WATCH, reflector.run, kind.plural))
        return reflector

    async def listed(self) -> None:
        """Return when each kind has been listed and delivered, was refused, or has failed several times."""
        for plural, reflector in self._reflectors.items():
            await _decided(reflector)
            if reflector.refusals and reflector.kind.namespaced:
                self._in_namespace[plural] = self._reflector(reflector.kind, self._namespace)
        for reflector in self._in_namespace.values():
            await _decided(reflector)

    def reading(self, by_kind: Mapping[str, Sequence[bytes]]) -> ClusterReading:
        """Return what the sinks have now, as one reading; kinds that could not be read are left out.

        Raises:
            RuntimeError: the start has not succeeded.
        """
        if self._credentials is None or self._facts is None:
            raise RuntimeError("the cluster is not followed yet")
        forbidden = {
            plural: reflector.last_error or "list: forbidden"
            for plural, reflector in self._reflectors.items()
            if reflector.refusals
        }
        failed = {
            plural: reflector.last_error or "not listed yet"
            for plural, reflector in self._reflectors.items()
            if not reflector.synced.is_set() and plural not in forbidden
        }
        narrowed = [
            plural
            for plural, reflector in self._in_namespace.items()
            if plural in forbidden and reflector.synced.is_set() and not reflector.refusals
        ]
        unread = {*failed, *self._not_served, *forbidden} - {*narrowed}
        return ClusterReading(
            source=self._transport.identified(self._credentials.source),
            namespace=self._namespace,
            taken_at=self._clock.now(),
            facts=self._facts,
            by_kind={kind: found for kind, found in by_kind.items() if kind not in unread},
            forbidden=forbidden,
            failed=failed,
            one_namespace=narrowed,
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


async def _decided(reflector: Reflector) -> None:
    """Return when the kind has been listed, was refused, or has failed several times."""
    while not reflector.refusals and reflector.failures < _MOST_FAILURES:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await reflector.synced.wait()
        except TimeoutError:
            continue
        return
