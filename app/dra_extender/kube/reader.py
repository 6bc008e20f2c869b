"""One reading of a cluster, without watches and without writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.resources import CLAIM_TEMPLATES, WARNINGS, WATCHED, ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery.discovery import Discovery
from dra_extender.kube.discovery.server_features import ServerFacts
from dra_extender.kube.watch.listing import list_pages
from dra_extender.runtime.clock import SystemClock

_PAGE: Final = 500
NOT_SERVED: Final = "the API server does not serve this kind"


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


class _Listed(NamedTuple):
    """The objects of one kind; `refused` is what the API server said if not all may be listed, `failed` if it cannot list them."""

    objects: Sequence[bytes] | None
    refused: str = ""
    failed: str = ""


async def read_cluster(settings: KubeSettings, kinds: Collection[str], namespace: str | None = None) -> ClusterReading:
    """List all objects of these plural kinds; kinds that the account may not list, or the API server cannot, are left out.

    Of a kind that may not be listed in all namespaces, the objects of `namespace` are listed; None: that of the context.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    clock = SystemClock()
    credentials = await find_credentials(settings, clock)
    transport = ApiTransport(settings, clock, NullObserver())
    transport.connect(credentials)
    namespace = namespace or credentials.identity.namespace
    try:
        facts = await Discovery(transport, settings).facts()
        served = served_kinds(facts)
        lister = _Lister(transport, settings, namespace)
        found = {each: await lister.listed(served[each]) for each in kinds if each in served}
    finally:
        await transport.close()
    return ClusterReading(
        source=transport.identified(credentials.source),
        namespace=namespace,
        taken_at=clock.now(),
        facts=facts,
        by_kind={kind: each.objects for kind, each in found.items() if each.objects is not None},
        forbidden={kind: each.refused for kind, each in found.items() if each.refused},
        failed={kind: each.failed for kind, each in found.items() if each.failed},
        one_namespace=[kind for kind, each in found.items() if each.refused and each.objects is not None],
        not_served={each: NOT_SERVED for each in kinds if each not in served},
    )


class _Lister:
    """Lists kinds, of all namespaces where that is allowed, else of one."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings, namespace: str) -> None:
        self._transport = transport
        self._seconds = settings.timeouts.page
        self._namespace = namespace

    async def listed(self, kind: ResourceKind) -> _Listed:
        """Return the objects of this kind.

        Raises:
            ClusterError: the API server does not answer.
        """
        everywhere = await self._at(kind, kind.path())
        if not everywhere.refused or not kind.namespaced:
            return everywhere
        here = await self._at(kind, kind.path(self._namespace))
        return _Listed(here.objects, everywhere.refused, here.failed)

    async def _at(self, kind: ResourceKind, path: str) -> _Listed:
        pages = list_pages(self._transport, kind, path, _PAGE, self._seconds)
        try:
            return _Listed([bytes(item) async for page in pages for item in page.items or ()])
        except ApiCallError as problem:
            if problem.status is None:
                raise problem.as_cluster_error() from problem
            return _Listed(None, refused=str(problem)) if problem.forbidden else _Listed(None, failed=str(problem))


def served_kinds(facts: ServerFacts) -> Mapping[str, ResourceKind]:
    """The kinds that a reader may ask this API server for, by plural name."""
    optional = {each.plural: each for each in (facts.pod_groups, facts.taint_rules) if each is not None}
    return {**WATCHED, CLAIM_TEMPLATES.plural: CLAIM_TEMPLATES, WARNINGS.plural: WARNINGS, **optional}
