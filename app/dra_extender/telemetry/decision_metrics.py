"""Metrics of the decisions."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry

from dra_extender.telemetry.declaration import (
    MetricGroup,
    counter,
    counter_by_namespace,
    gauge,
    histogram,
    plain_counter,
    plain_gauge,
    plain_histogram,
)

_BIND_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 600.0)
_SEARCH_STEPS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)


class SearchLane(StrEnum):
    """The budget to which the time of a decision is charged."""

    SLICE = "slice"
    NAMESPACE = "namespace"
    ALL = "all_namespaces"
    ALONE = "alone"
    WAKE_UP = "wake_up"


class DecisionMetrics(MetricGroup):
    """Searches, rejections, holds, binds, requeues and conflicts."""

    rejected_nodes = counter("Nodes refused by filter, by the reason's code", "code", limit=60)
    _bind = counter("Ends of bind calls, by outcome", "outcome", limit=8)
    _bind_duration_seconds = histogram(
        "Duration of bind calls, by outcome",
        "outcome",
        buckets=_BIND_SECONDS,
        limit=8,
    )
    scheduler_wakes = counter(
        "Requeues of rejected pods, by the change that may make one of them schedulable: devices, classes, claims, holds, "
        "backoff (one has ended), gang (a member can be placed now), or start (a term as leader has begun)",
        "reason",
    )
    _node_results = counter(
        'Evaluations of one node: `source="cache"` is a cached result, `source="search"` a search',
        "source",
    )
    _search_steps = plain_histogram("Steps of one search on one node", buckets=_SEARCH_STEPS)
    search_seconds = counter(
        "Seconds that filter, preempt and bind calls took for their decisions, by the share that they used: `slice` (a call's own "
        "slice sufficed, no share), `namespace` (the share of a namespace), with it `all_namespaces` (the share of all namespaces, "
        "while pods of other namespaces waited or were evaluated in the last 10 s) or `alone` (the share of a namespace "
        "that waits by itself); `wake_up`: evaluating rejected pods after changes",
        "lane",
        limit=6,
    )
    _expected_pods = gauge(
        "Share of the expected pods by what one of them asks for, where `scheduling.placement` is preserve "
        "(docs/concepts/scoring.md)",
        "devices",
        limit=65,
    )
    _expected_price = gauge(
        "What it costs to lose room for one device of these pods, of 1 for all expected pods", "devices", limit=65
    )
    searches_resumed = plain_counter("Paused searches that went on, in the same call or a later one")
    _searches_stopped = plain_counter("Calls that were denied a further slice of time for their searches")
    _search_refusals = counter_by_namespace(
        "Calls that were denied a further slice of time, by the namespace of the pod; beyond 50 namespaces in an hour, the others "
        "count together",
    )
    allocation_overlaps = counter(
        "Devices, capacities, counters or groups allocated to two claims, by kind, outcome: yielded (ours was released), "
        "reported (a pod of ours has it, too), and writer of the other allocation: foreign (another scheduler), own (this "
        "program), none (the slices publish less than was allocated)",
        "kind",
        "outcome",
        "writer",
    )
    reclaims = counter(
        "Holds, reservations and allocations found unused, by reason (docs/concepts/reclaim.md) and outcome: done, changed (looked "
        "at again later), foreign (another scheduler's, kept), failed",
        "reason",
        "outcome",
        limit=50,
    )
    held_claims = plain_gauge("Claims for which devices are held, not yet allocated")
    multi_node_holds = plain_gauge("Holds on more than one node")
    guard_claims = plain_gauge("Guard claims that keep devices for claims of other schedulers")
    waiting_pods = plain_gauge("Pods that were refused on every node and have not been placed since")
    waiting_pods_longest_seconds = plain_gauge(
        "Seconds since the first of these refusals of the pod that waits longest; 0 without any",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._from_cache, self._from_search = self._node_results.labels("cache"), self._node_results.labels("search")

    def bound(self, outcome: str, seconds: float) -> None:
        self._bind.labels(outcome).inc()
        self._bind_duration_seconds.labels(outcome).observe(seconds)

    def cached_results(self, count: int) -> None:
        """Count results of nodes that came from the cache."""
        self._from_cache.inc(count)

    def searched(self, steps: int) -> None:
        self._from_search.inc()
        self._search_steps.observe(steps)

    def search_stopped(self, namespace: str) -> None:
        """Count a call about a pod of this namespace that was denied a further slice."""
        self._searches_stopped.inc()
        self._search_refusals.inc(namespace)

    def expected(self, kinds: Mapping[str, tuple[float, float]]) -> None:
        """Set share and price of the expected pods, by what one of them asks for."""
        labels = [(devices,) for devices in kinds]
        for metric in (self._expected_pods, self._expected_price):
            metric.keep(labels)
        for devices, (share, price) in kinds.items():
            self._expected_pods.labels(devices).set(share)
            self._expected_price.labels(devices).set(price)
