"""One reading of a cluster, without watches and without writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.resources import CLAIM_TEMPLATES, WATCHED, ResourceKind
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

    `source` names where the credentials come from.  `forbidden` and `not_served`: kinds without objects, and why.
    """

    source: str
    taken_at: float
    facts: ServerFacts
    by_kind: Mapping[str, Sequence[bytes]]
    forbidden: Mapping[str, str]
    not_served: Mapping[str, str]


async def read_cluster(settings: KubeSettings, kinds: Collection[str]) -> ClusterReading:
    """List all objects of these plural kinds; kinds that the account may not list are left out.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    clock = SystemClock()
    credentials = await find_credentials(settings, clock)
    transport = ApiTransport(settings, clock, NullObserver())
    transport.connect(credentials)
    try:
        facts = await Discovery(transport, settings).facts()
        found: dict[str, Sequence[bytes]] = {}
        forbidden: dict[str, str] = {}
        served = served_kinds(facts)
        for kind in (served[each] for each in kinds if each in served):
            try:
                found[kind.plural] = await _objects(transport, kind, settings)
            except ApiCallError as failed:
                if not failed.forbidden:
                    raise failed.as_cluster_error() from failed
                forbidden[kind.plural] = str(failed)
    finally:
        await transport.close()
    absent = {each: NOT_SERVED for each in kinds if each not in served}
    return ClusterReading(credentials.source, clock.now(), facts, found, forbidden, absent)


def served_kinds(facts: ServerFacts) -> Mapping[str, ResourceKind]:
    """The kinds that a reader may ask this API server for, by plural name."""
    optional = {each.plural: each for each in (facts.pod_groups, facts.taint_rules) if each is not None}
    return {**WATCHED, CLAIM_TEMPLATES.plural: CLAIM_TEMPLATES, **optional}


async def _objects(transport: ApiTransport, kind: ResourceKind, settings: KubeSettings) -> Sequence[bytes]:
    pages = [
        [bytes(each) for each in page.items or ()]
        async for page in list_pages(transport, kind, kind.path(), _PAGE, settings.timeouts.page)
    ]
    return tuple(chain.from_iterable(pages))
