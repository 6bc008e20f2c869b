"""The composition root: what a replica consists of.

Every part reports to the metrics.  The cluster reads from and writes to the API server; with leader election, it writes only while
the election holds the lease.  The service has the ledger, the use cases and the HTTP side; `service.Service.run` starts and stops
everything, in the order that the docstring of its module lists.
"""

import asyncio
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final
from uuid import uuid4

import structlog

from dra_extender.config.listener_settings import MetricsAccess
from dra_extender.config.scheduler_checks import check, limits_of, scheduler_names
from dra_extender.config.scheduler_configuration import read_configuration
from dra_extender.config.service_settings import LeaderElectionSettings
from dra_extender.config.settings import InvalidSettingsError, Settings
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.discovery import Support
from dra_extender.kube.leader.election import LeaderElection, LeaseSettings
from dra_extender.kube.leader.endpoint_publisher import EndpointPublisher, ServiceEndpoint
from dra_extender.kube.leader.lease import LeaseTimes
from dra_extender.kube.token_reviewer import TokenReviewer
from dra_extender.runtime import installation
from dra_extender.service.leadership import KubeLeadership
from dra_extender.service.server import listen, listen_at, raise_limit
from dra_extender.service.service import Service
from dra_extender.telemetry.metrics import Metrics

VERBS: Final = "verbs"
PROBES: Final = "http"
PROBES_OVER_TLS: Final = "https"
"""The names of the ports of the Service that the leader points at itself."""
_LOG = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Run `serve` in an event loop of its own."""
    installation.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Run the service against the API server until SIGTERM or SIGINT.

    Raises:
        ListenError: an address cannot be used.
        ConfigurationError: there is no usable configuration of the API server.
        InvalidSettingsError: leader election is enabled, but the namespace of the Lease is not known; kube-scheduler's
            configuration does not fit the settings; or a certificate cannot be used.
        InvalidPolicyError: the policy file is wrong.
        ClusterError: the API server does not answer, is too old, or refuses access.
    """
    settings = with_scheduler(settings)
    if settings.server.plain_http:
        _LOG.warning(
            "the verbs are served over plain HTTP: every caller that reaches them can bind pods",
            setting="server.plain_http",
            host=settings.server.host,
        )
    metrics = Metrics()
    connection = kube_settings(settings)
    election = _election(settings.leader_election, connection, metrics) if settings.leader_election.enabled else None
    cluster = kube_cluster(connection, metrics, election)
    raise_limit()
    reviewer = _reviewer(settings, connection, metrics)
    with ExitStack() as listeners:
        listener = listeners.enter_context(listen(settings.server))
        port = settings.probes.port
        probes = None if port is None else listeners.enter_context(listen_at(settings.probes.host, port))
        leadership = None
        if election is not None:
            ports = {VERBS: listener.getsockname()[1]}
            if probes is not None:
                secured = settings.probes.metrics is MetricsAccess.AUTHORIZED
                ports[PROBES_OVER_TLS if secured else PROBES] = probes.getsockname()[1]
            publisher = _publisher(settings.leader_election, connection, cluster, ports)
            leadership = KubeLeadership(election, cluster, publisher)
        service = Service(settings, cluster, metrics, leadership, cluster.contact_ages, reviewer)
        try:
            await service.run(_stop_on_signal(), listener, probes)
        finally:
            if reviewer is not None:
                await reviewer.close()


def with_scheduler(settings: Settings) -> Settings:
    """Fill in the scheduler names of the kube-scheduler configuration, unless they are set.

    Raises:
        InvalidSettingsError: kube-scheduler's configuration does not fit the settings.
    """
    file = settings.scheduling.scheduler_config
    if file is None:
        return settings
    document = read_configuration(file).value
    problems = check(document, limits_of(settings))
    if problems:
        raise InvalidSettingsError(f"{file}: {'; '.join(map(str, problems))}")
    names = settings.scheduling.scheduler_names or scheduler_names(document)
    return settings.model_copy(update={"scheduling": settings.scheduling.model_copy(update={"scheduler_names": names})})


def kube_settings(settings: Settings) -> KubeSettings:
    """Return how to reach the configured API server."""
    return KubeSettings(
        kubeconfig=settings.cluster.kubeconfig,
        context=settings.cluster.context,
        identity=settings.scheduling.field_manager,
        instance=socket.gethostname(),
        startup_timeout=settings.cluster.startup_timeout_seconds,
    )


def _election(settings: LeaderElectionSettings, connection: KubeSettings, metrics: Metrics) -> LeaderElection:
    # The host name of a pod is the pod's name; the UUID distinguishes a restarted container from the one before.
    host = settings.host or socket.gethostname()
    lease = LeaseSettings(
        namespace=_namespace(settings),
        name=settings.lease_name,
        host=host,
        identity=f"{host}_{uuid4()}",
        follow=settings.follow_lease,
        times=LeaseTimes(settings.duration_seconds, settings.renew_seconds, settings.retry_seconds),
    )
    return LeaderElection(lease, connection, observer=metrics, on_term=metrics.leads)


def kube_cluster(connection: KubeSettings, metrics: Metrics, election: LeaderElection | None = None) -> KubeCluster:
    """Return the cluster behind an API server, which reports to `metrics` and writes only while `election` holds the Lease."""
    cluster = KubeCluster(connection, observer=metrics, election=election)

    def refresh() -> None:
        for kind, seconds in cluster.contact_ages().items():
            metrics.watch_age_seconds.labels(kind).set(seconds)
        for field, support in (cluster.facts.fields if cluster.facts else {}).items():
            if support is not Support.UNKNOWN:
                metrics.unserved(field, support is Support.DROPPED)

    metrics.before_render(refresh)
    return cluster


def _reviewer(settings: Settings, connection: KubeSettings, metrics: Metrics) -> TokenReviewer | None:
    """Return who reviews the tokens of callers that read metrics; None if nobody does."""
    if settings.probes.metrics is not MetricsAccess.AUTHORIZED:
        return None
    return TokenReviewer(connection, metrics)


def _publisher(
    settings: LeaderElectionSettings, connection: KubeSettings, cluster: KubeCluster, ports: Mapping[str, int]
) -> EndpointPublisher | None:
    """Return what directs the configured Service to this replica; None without such a Service."""
    if settings.service is None:
        return None
    endpoint = ServiceEndpoint(_namespace(settings), settings.service, str(settings.address), ports)
    return EndpointPublisher(cluster.transport, connection, endpoint)


def _namespace(settings: LeaderElectionSettings) -> str:
    found = settings.known_namespace()
    if found is None:
        raise InvalidSettingsError(
            "setting leader_election.namespace (DRA_EXTENDER_LEADER_ELECTION__NAMESPACE): expected the namespace of the Lease, "
            "because this is not a pod that could have one"
        )
    return found


def _stop_on_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        _LOG.info("stop requested", signal=number.name)
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
    return stop
