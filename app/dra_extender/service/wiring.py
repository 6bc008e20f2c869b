"""The composition root: what a replica consists of.

`serve` makes what reaches the API server: the cluster, the election, the reviewer of tokens.  `assemble` makes all else over any
cluster: the ledger, the use cases, background work and the HTTP side.  Every part reports to the metrics.  `service.Service.serve`
starts and stops the parts, in the order that the docstring of its module lists.
"""

import asyncio
import math
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final
from uuid import uuid4

import structlog

from dra_extender.api.application import create_app, create_probe_app
from dra_extender.api.calls import VerbGate
from dra_extender.api.debug import add_debug
from dra_extender.api.health import Health
from dra_extender.api.scrape_access import ScrapeAccess, ScrapeReviewer
from dra_extender.config.scheduler_checks import check, scheduler_names
from dra_extender.config.scheduler_configuration import read_configuration
from dra_extender.config.service_settings import ClusterSettings, LeaderElectionSettings, MetricsAccess
from dra_extender.config.settings import InvalidSettingsError, Settings
from dra_extender.inspection.audit.cluster_audit import AuditedCluster
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import KubeCluster
from dra_extender.kube.discovery import Support
from dra_extender.kube.endpoint_publisher import EndpointPublisher, ServiceEndpoint
from dra_extender.kube.leader_election import LeaderElection, LeaseSettings, LeaseTimes
from dra_extender.kube.token_reviewer import TokenReviewer
from dra_extender.ledger.ledger import Ledger
from dra_extender.runtime.supervision import Supervisor
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.recent_decisions import DecisionReport, RecentDecisions
from dra_extender.service.audit_task import AuditTask
from dra_extender.service.certificates import Certificates
from dra_extender.service.decision_recorder import DecisionRecorder
from dra_extender.service.device_count import DeviceCountTask, DeviceStates
from dra_extender.service.leadership import Leadership
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.service.server import listen, raise_limit
from dra_extender.service.service import LOADING, Service, WatchedCluster
from dra_extender.service.tracing import spans_of, traced
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import NO_SPANS, Spans

# The names of the ports of the Service that the leader points at itself.
VERBS: Final = "verbs"
PROBES: Final = "http"
PROBES_OVER_TLS: Final = "https"
_LOG = structlog.get_logger(__name__)


async def serve(settings: Settings) -> None:
    """Run the service against the API server until SIGTERM or SIGINT.

    Raises:
        ListenError: an address cannot be used.
        ConfigurationError: there is no usable configuration of the API server.
        InvalidSettingsError: leader election is enabled, but the namespace of the Lease is not known; kube-scheduler's
            configuration does not fit the settings; the account is not the expected one; or a certificate cannot be used.
        InvalidPolicyError: the policy file is wrong.
        ClusterError: the API server does not answer, is too old, or refuses access.
    """
    settings = with_scheduler(settings)
    check_account(settings.cluster)
    if settings.server.plain_http:
        _LOG.warning(
            "the verbs are served over plain HTTP: every caller that reaches them can bind pods",
            setting="server.plain_http",
            host=settings.server.host,
        )
    metrics = Metrics()
    connection = kube_settings(settings)
    election = _election(settings.leader_election, connection, metrics) if settings.leader_election.enabled else None
    spans = spans_of(settings.tracing)
    cluster = kube_cluster(connection, metrics, election, spans)
    raise_limit()
    authorized = settings.probes.metrics is MetricsAccess.AUTHORIZED
    reviewer = TokenReviewer(connection, metrics) if authorized else None
    with ExitStack() as listeners:
        listener = listeners.enter_context(listen(settings.server.host, settings.server.port))
        port = settings.probes.port
        probes = None if port is None else listeners.enter_context(listen(settings.probes.host, port))
        leadership = None
        if election is not None:
            ports = {VERBS: listener.getsockname()[1]}
            if probes is not None:
                ports[PROBES_OVER_TLS if authorized else PROBES] = probes.getsockname()[1]
            publisher = _publisher(settings.leader_election, connection, cluster, ports)
            leadership = Leadership(election, cluster, publisher)
        service = assemble(
            settings,
            cluster,
            metrics,
            spans=spans,
            leadership=leadership,
            reviewer=reviewer,
            watch_ages=cluster.contact_ages,
        )
        try:
            await service.serve(stop_on_signal(), listener, probes)
        finally:
            if reviewer is not None:
                await reviewer.close()


def assemble(
    settings: Settings,
    cluster: WatchedCluster,
    metrics: Metrics,
    *,
    spans: Spans = NO_SPANS,
    leadership: Leadership | None = None,
    reviewer: ScrapeReviewer | None = None,
    watch_ages: Callable[[], Mapping[str, float]] = dict,
) -> Service:
    """Return a service over this cluster, ready to run.

    `reviewer` knows who may read metrics, where the settings want it to be asked.  `watch_ages`: seconds since the API server last
    answered the watch of each kind.
    """
    access = settings.probes.metrics
    if access is MetricsAccess.AUTHORIZED and reviewer is None:
        raise ValueError("metrics for authorized callers need somebody who reviews their tokens")
    features, election = settings.features, settings.leader_election
    ledger = Ledger(settings.scheduling.namespace_claim_bytes)
    options = settings.scheduling.options(
        extended_resources=features.extended_resources, pod_group_claims=features.pod_group_claims
    )
    options = replace(options, own_namespace=election.known_namespace() or options.own_namespace)
    extender = Extender(ledger, cluster, metrics, options, features.features(), spans)
    policy = PolicyReloader(
        settings.scheduling.policy_file,
        ledger,
        metrics,
        seconds=settings.scheduling.policy_check_seconds,
        compatibility_groups=features.compatibility_groups,
        expect=extender.expect,
    )
    audited = AuditedCluster(
        ledger,
        cluster.clock.now,
        options.binding_timeout_seconds if features.device_binding_and_status else math.inf,
        policy_messages=lambda: policy.ineffective,
        device_taints=features.device_taints,
    )
    health, gate = Health(), VerbGate(LOADING)
    decisions = RecentDecisions(cluster.clock.now)

    def needs_devices(pod_uid: str) -> bool:
        """Return whether the pod needs devices; True if the watch has not delivered the pod."""
        pod = ledger.pods.by_uid(pod_uid)
        return pod is None or pod.needs_devices

    def report_decisions() -> DecisionReport:
        return decisions.report(
            leads=gate.reason is None,
            replica=election.host or socket.gethostname(),
            watches=watch_ages(),
            notes=health.readyz().failures_and_notes,
        )

    recorder = DecisionRecorder(extender, decisions, needs_devices)
    service = Service(
        settings=settings,
        cluster=cluster,
        ledger=ledger,
        extender=extender,
        policy=policy,
        audit=AuditTask(audited, metrics, settings.audit),
        device_count=DeviceCountTask(DeviceStates(ledger, extender, features.features()), metrics, settings.metrics),
        certificates=Certificates(settings.tls, metrics),
        supervisor=Supervisor(metrics.background_failed),
        metrics=metrics,
        spans=spans,
        gate=gate,
        app=create_app(traced(recorder, spans), health, metrics, settings.server, gate),
        probe_app=create_probe_app(
            health,
            None if access is MetricsAccess.OFF else metrics,
            ScrapeAccess(reviewer) if reviewer is not None and access is MetricsAccess.AUTHORIZED else None,
        ),
        leadership=leadership,
    )
    for app in (service.app, service.probe_app):
        add_debug(app, lambda: extender.hold_reporter.report(leads=gate.reason is None), report_decisions)
    _add_checks(service, health)
    return service


def _add_checks(service: Service, health: Health) -> None:
    """Let the parts of the service say on the pages of the probes how they are."""
    leadership, cluster, metrics = service.leadership, service.cluster, service.metrics
    # Without a leadership, what is written before the first decision keeps the gate closed after the phase has ended.
    health.add_checks("service", lambda: {"service": service.phase or (None if leadership else service.gate.reason)})
    if leadership is not None:
        health.add_checks("leader", lambda: {"leader": None if service.phase else service.gate.reason})
        health.add_notes("leader", leadership.notes)
    health.add_checks("cluster", cluster.health)
    health.add_liveness_checks("cluster", cluster.life)
    for name, supervisor in (("service-tasks", service.supervisor), ("scheduling-tasks", service.extender.supervisor)):
        health.add_checks(name, supervisor.failing)
        health.add_liveness_checks(name, supervisor.beyond_repair)
        health.add_notes(name, supervisor.notes)

    def kept_claims() -> Mapping[str, str]:
        note = service.ledger.claims.kept.note()
        return {"claims-kept-short": note} if note else {}

    health.add_notes("cluster", cluster.notes)
    health.add_notes("policy", service.policy.notes)
    health.add_notes("certificates", service.certificates.notes)
    health.add_notes("audit", service.audit.notes)
    health.add_notes("claims", kept_claims)
    health.add_notes("podgroup-claims", service.extender.group_claims.notes)
    metrics.before_render(lambda: metrics.leader.set(leadership is None or leadership.reason() is None))


def with_scheduler(settings: Settings) -> Settings:
    """Fill in the scheduler names of the kube-scheduler configuration, unless they are set.

    Raises:
        InvalidSettingsError: kube-scheduler's configuration does not fit the settings.
    """
    file = settings.scheduling.scheduler_config
    if file is None:
        return settings
    document = read_configuration(file).value
    problems = check(document, settings)
    if problems:
        raise InvalidSettingsError(f"{file}: {'; '.join(map(str, problems))}")
    names = settings.scheduling.scheduler_names or scheduler_names(document)
    return settings.model_copy(update={"scheduling": settings.scheduling.model_copy(update={"scheduler_names": names})})


def check_account(settings: ClusterSettings) -> None:
    """Check that this pod has the account that the admission policy names: the policy would refuse every bind of another one.

    Raises:
        InvalidSettingsError: it has another account.
    """
    expected, account = settings.expected_account, settings.known_account()
    if None not in (expected, account) and account != expected:
        raise InvalidSettingsError(
            f"setting cluster.expected_account (DRA_EXTENDER_CLUSTER__EXPECTED_ACCOUNT): expected {account}, the account of this "
            f"pod, got {expected}; the admission policy for snapshots names the latter, and would refuse every bind. "
            "kustomize's `namespace:` and `namePrefix:` do not change it: install with Helm (docs/start/install.md)"
        )


def kube_settings(settings: Settings) -> KubeSettings:
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


def kube_cluster(
    connection: KubeSettings, metrics: Metrics, election: LeaderElection | None = None, spans: Spans = NO_SPANS
) -> KubeCluster:
    """Return the cluster behind an API server, which reports to `metrics` and writes only while `election` holds the Lease."""
    cluster = KubeCluster(connection, observer=metrics, election=election, spans=spans)

    def refresh() -> None:
        for kind, seconds in cluster.contact_ages().items():
            metrics.watch_age_seconds.labels(kind).set(seconds)
        for field, support in (cluster.facts.fields if cluster.facts else {}).items():
            if support is not Support.UNKNOWN:
                metrics.set_field_served(field, support is not Support.DROPPED)

    metrics.before_render(refresh)
    return cluster


def _publisher(
    settings: LeaderElectionSettings, connection: KubeSettings, cluster: KubeCluster, ports: Mapping[str, int]
) -> EndpointPublisher | None:
    """Return the publisher that directs the configured Service to this replica; None without such a Service."""
    if settings.service is None:
        return None
    endpoint = ServiceEndpoint(_namespace(settings), settings.service, str(settings.address), ports)
    return EndpointPublisher(cluster.transport, connection, endpoint)


def _namespace(settings: LeaderElectionSettings) -> str:
    namespace = settings.known_namespace()
    if namespace is None:
        raise InvalidSettingsError(
            "setting leader_election.namespace (DRA_EXTENDER_LEADER_ELECTION__NAMESPACE): expected the namespace of the Lease, "
            "because this is not a pod that could have one"
        )
    return namespace


def stop_on_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        _LOG.info("stop requested", signal=number.name)
        stop.set()
        for handled in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(handled)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
    return stop
