"""All metrics of the service, and their exposition."""

import asyncio
import platform
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from dra_extender.runtime.installation import build_version
from dra_extender.telemetry.binding_metrics import BindingMetrics
from dra_extender.telemetry.claim_metrics import ClaimMetrics
from dra_extender.telemetry.decision_metrics import DecisionMetrics
from dra_extender.telemetry.declaration import (
    MetricGroup,
    counter,
    declared,
    gauge,
    plain_counter,
    plain_gauge,
)
from dra_extender.telemetry.device_metrics import DeviceMetrics
from dra_extender.telemetry.request_metrics import ApiServerMetrics, CallMetrics
from dra_extender.telemetry.upstream_metrics import UpstreamMetrics

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class ReplicaMetrics(MetricGroup):
    """Policy, certificates, leadership, background work and audits of this replica."""

    _policy_reads = counter(
        "Reads of a changed policy file: taken, refused (it is wrong, the last valid policy stays in force) or missing",
        "outcome",
        limit=4,
    )
    _policy_current = plain_gauge(
        "1 when the policy in force is the one in the policy file, 0 when it is not or there is none",
    )
    certificate_reads = counter(
        "Changed files of certificates: taken, or refused (they cannot be used, the last valid ones stay in use)",
        "outcome",
        limit=2,
    )
    certificate_expiration_timestamp_seconds = gauge(
        "When the certificate in use expires, in seconds since the epoch: `server`, or the first of `client-ca`",
        "certificate",
        limit=2,
    )
    leader = plain_gauge("1 while this replica may act: it holds the lease, or leader election is off")
    _leader_changes = counter("Terms that this replica began (`won`) and ended (`lost`)", "change", limit=2)
    _background_failures = counter(
        "Failures of background tasks, by task; each is logged, and the task starts again or continues with the next object",
        "task",
    )
    _audits = plain_counter("Audits that the service has made of its caches (docs/operate/audit.md)")
    _audit_seconds = plain_counter("Seconds of work of these audits, without their pauses")
    audit_findings = gauge(
        "What the last two audits both found, by check (docs/operate/audit.md) and severity: error, warning",
        "check",
        "severity",
    )
    audit_unjudged_claims = plain_gauge(
        "Allocated claims that the last audit could not compare with their devices (docs/operate/audit.md)",
    )
    _build_info = gauge("Always 1; the labels are what is running", "version", "python")

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._build_info.labels(build_version(), platform.python_version()).set(1)

    def policy(self, outcome: str) -> None:
        """Count a read of a changed policy file: taken, refused or missing."""
        self._policy_reads.labels(outcome).inc()
        self._policy_current.set(1 if outcome == "taken" else 0)

    def leads(self, leads: bool) -> None:
        self._leader_changes.labels("won" if leads else "lost").inc()

    def audited(self, work: float) -> None:
        """Count an audit that has come to its end, with its seconds of work."""
        self._audits.inc()
        self._audit_seconds.inc(work)

    def background_failed(self, task: str) -> None:
        self._background_failures.labels(task).inc()


class Metrics(CallMetrics, DecisionMetrics, ClaimMetrics, DeviceMetrics, ApiServerMetrics, ReplicaMetrics):
    """The metrics of the service, in a registry of their own.

    Methods are cheap and never raise.  Label values may be any text: each metric has a limit, beyond which they count as `other`;
    names of pods, claims and nodes do not belong in labels.  Times are in seconds.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        self.binding = BindingMetrics(self.registry)
        self.upstream = UpstreamMetrics(self.registry)
        self._before: list[Callable[[], None]] = []
        ProcessCollector(registry=self.registry)

    def before_render(self, refresh: Callable[[], None]) -> None:
        """Have `refresh` called before each rendering, for gauges that are read at that time."""
        self._before.append(refresh)

    async def render(self) -> bytes:
        """Return the exposition in the text format 0.0.4; other tasks run between the metrics, which take milliseconds."""
        for refresh in self._before:
            refresh()
        parts: list[bytes] = []
        for metric in self.registry.collect():
            parts.append(generate_latest(_MetricRegistry(metric)))
            await asyncio.sleep(0)
        return b"".join(parts)


DEFINITIONS: Final = tuple(
    metric.definition for group in (Metrics, BindingMetrics, UpstreamMetrics) for _, metric in declared(group)
)
"""Every metric."""


class _MetricRegistry(Collector):
    """A registry of one metric, without the samples that record when each series began."""

    def __init__(self, metric: Metric) -> None:
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
