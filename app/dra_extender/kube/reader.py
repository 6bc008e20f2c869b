"""One reading of a cluster, without watches and without writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.connection import ClusterConnection
from dra_extender.kube.discovery.server_features import ServerFacts
from dra_extender.kube.watch.listing import list_pages

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
