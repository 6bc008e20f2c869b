"""Reads a cluster without a write, once or continuously; kinds that the account may not list are left out and named."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.connection import ClusterConnection
from dra_extender.kube.discovery import ServerFacts
from dra_extender.kube.reflector import Reflector, list_pages
from dra_extender.ledger.sinks import EventSink
from dra_extender.runtime.supervision import is_set_within

NOT_SERVED: Final = "the API server does not serve this kind"
_PAGE: Final = 500
_LOOK_SECONDS: Final = 0.05
_MOST_FAILURES: Final = 3
"""After so many failures in a row a kind counts as one that cannot be read now."""


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """What a cluster had at `taken_at` (seconds since the epoch): objects by plural kind, as JSON.

    `source` names where the credentials come from, the context, and in whose name was asked; `namespace` is that of the context.
    `forbidden`: kinds that the account may not list as a whole, and what the API server said; if the account may list those of
    one namespace, these are there, and the kind is in `one_namespace`.  `failed`: kinds that the API server could not list, and
    why.  `not_served`: kinds without objects, and why.
    """

    source: str
    namespace: str
    taken_at: float
    facts: ServerFacts
    by_kind: Mapping[str, Sequence[bytes]]
    forbidden: Mapping[str, str]
    one_namespace: Collection[str]
    not_served: Mapping[str, str]
    failed: Mapping[str, str] = field(default_factory=dict)


async def read_cluster(settings: KubeSettings, kinds: Collection[str], namespace: str | None = None) -> ClusterReading:
    """List all objects of these plural kinds; kinds that the account may not list, or the API server cannot, are left out.

    Of a kind that may not be listed in all namespaces, the objects of `namespace` are listed; None: that of the context.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    connection = ClusterConnection(settings)
    by_kind: dict[str, Sequence[bytes]] = {}
    forbidden: dict[str, str] = {}
    failed: dict[str, str] = {}
    try:
        credentials = await connection.open()
        namespace = namespace or credentials.identity.namespace
        facts = await connection.discover()
        served = facts.kinds()
        for plural in (plural for plural in kinds if plural in served):
            kind = served[plural]
            listed = await _list(connection.transport, settings, kind, None)
            if isinstance(listed, ApiCallError) and listed.forbidden:
                forbidden[plural] = str(listed)
                if kind.namespaced:
                    listed = await _list(connection.transport, settings, kind, namespace)
            if not isinstance(listed, ApiCallError):
                by_kind[plural] = listed
            elif not listed.forbidden:
                failed[plural] = str(listed)
    finally:
        await connection.close()
    return ClusterReading(
        source=connection.transport.identified(credentials.source),
        namespace=namespace,
        taken_at=connection.clock.now(),
        facts=facts,
        by_kind=by_kind,
        forbidden=forbidden,
        failed=failed,
        one_namespace=[plural for plural in forbidden if plural in by_kind],
        not_served={plural: NOT_SERVED for plural in kinds if plural not in served},
    )


async def _list(
    transport: ApiTransport, settings: KubeSettings, kind: ResourceKind, namespace: str | None
) -> Sequence[bytes] | ApiCallError:
    """Return the objects of a kind, in all namespaces or in one, or why the API server does not list them.

    Raises:
        ClusterError: the API server does not answer.
    """
    pages = list_pages(transport, kind, kind.path(namespace), _PAGE, settings.timeouts.page)
    try:
        return [bytes(item) async for page in pages for item in page.items or ()]
    except ApiCallError as problem:
        if problem.status is None:
            raise problem.as_cluster_error() from problem
        return problem


class ClusterFollower:
    """Keeps sinks in step with the kinds of a cluster, one reflector each.

    If the account may not list a kind in all namespaces, a second reflector follows those of one namespace.  `start` connects,
    `listed` returns once each kind has been listed, refused, or has failed several times, `stop` ends it.
    """

    def __init__(self, settings: KubeSettings) -> None:
        self._connection = ClusterConnection(settings)
        self._in_namespace: dict[str, Reflector] = {}
        self._sinks: Mapping[str, EventSink] = {}
        self._namespace = ""
        self._not_served: dict[str, str] = {}

    async def start(self, sinks: Mapping[str, EventSink], namespace: str | None = None) -> None:
        """Connect and begin to watch the kinds that have a sink, by plural name.

        only `namespace` is followed if the account may not list a kind in all of them; None: that of the context.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
        """
        credentials = await self._connection.open()
        facts = await self._connection.discover()
        self._namespace = namespace or credentials.identity.namespace
        self._sinks = sinks
        self._not_served = dict.fromkeys(self._connection.watch_served(sinks, facts, credentials), NOT_SERVED)

    async def listed(self) -> None:
        """Return when each kind has been listed and delivered, was refused, or has failed several times."""
        for plural, reflector in self._connection.reflectors.items():
            await _decided(reflector)
            if reflector.refusals and reflector.kind.namespaced:
                self._in_namespace[plural] = self._connection.watch(
                    reflector.kind, self._sinks[plural], self._namespace
                )
        for reflector in self._in_namespace.values():
            await _decided(reflector)

    def reading(self, by_kind: Mapping[str, Sequence[bytes]]) -> ClusterReading:
        """Return what the sinks have now, as one reading; kinds that could not be read are left out.

        Raises:
            RuntimeError: the start has not succeeded.
        """
        connection = self._connection
        if connection.credentials is None or connection.facts is None:
            raise RuntimeError("the cluster is not followed yet")
        forbidden = {
            plural: reflector.last_error or "list: forbidden"
            for plural, reflector in connection.reflectors.items()
            if reflector.refusals
        }
        failed = {
            plural: reflector.last_error or "not listed yet"
            for plural, reflector in connection.reflectors.items()
            if not reflector.synced.is_set() and plural not in forbidden
        }
        in_one_namespace = [
            plural
            for plural, reflector in self._in_namespace.items()
            if plural in forbidden and reflector.synced.is_set() and not reflector.refusals
        ]
        unread = {*failed, *self._not_served, *forbidden} - {*in_one_namespace}
        return ClusterReading(
            source=connection.transport.identified(connection.credentials.source),
            namespace=self._namespace,
            taken_at=connection.clock.now(),
            facts=connection.facts,
            by_kind={kind: objects for kind, objects in by_kind.items() if kind not in unread},
            forbidden=forbidden,
            failed=failed,
            one_namespace=in_one_namespace,
            not_served=dict(self._not_served),
        )

    def contact_ages(self) -> Mapping[str, float]:
        """Return the seconds since the last response to the list or watch of each kind."""
        return self._connection.contact_ages()

    def problems(self) -> Sequence[str]:
        """Return a sentence for each kind that is not followed now, and for objects that cannot be read."""
        reflectors = self._connection.reflectors.values()
        unhealthy = [problem for reflector in reflectors if (problem := reflector.health())]
        return [*unhealthy, *(note for reflector in reflectors for note in reflector.notes().values())]

    async def stop(self) -> None:
        await self._connection.close()


async def _decided(reflector: Reflector) -> None:
    """Return when the kind has been listed, was refused, or has failed several times."""
    while not reflector.refusals and reflector.failures < _MOST_FAILURES:
        if await is_set_within(reflector.synced, _LOOK_SECONDS):
            return
