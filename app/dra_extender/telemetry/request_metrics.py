"""Metrics of requests: calls of kube-scheduler and their connections, and the work with the API server."""

from typing import Final

from prometheus_client import CollectorRegistry

from dra_extender.telemetry.declaration import MetricGroup, counter, gauge, histogram, plain_gauge
from dra_extender.telemetry.observer import Observer

CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_VERBS: Final = ("filter", "prioritize", "bind", "preempt")


class CallMetrics(MetricGroup):
    """The metrics of requests and connections."""

    _requests = counter(
        "Calls of kube-scheduler by verb and outcome: ok, again (the response was an Error, kube-scheduler tries again), "
        "malformed, too_large, closed (starting, stopping, not the leader), gone (the caller disconnected while sending), internal",
        "verb",
        "outcome",
    )
    _request_duration_seconds = histogram(
        "Time from the first byte of a call's body to the response; waiting for binding conditions counts",
        "verb",
        buckets=CALL_SECONDS,
        limit=4,
    )
    closed_connections = counter(
        "Connections of callers that the service closed, by reason: replaced (there were too many, and its caller had "
        "most), busy (there were too many, all in use), idle, slow_request, slow_reader, large_head, large_body, pipeline "
        "(too many requests sent ahead), memory (unanswered requests took too much), forbidden (a client "
        "certificate with another name), and for the headers of a request: host, origin, content_type, repeated_header",
        "reason",
        limit=16,
    )
    tls_handshakes = counter(
        "TLS handshakes with callers: done, or failed (no certificate that is accepted, too slow, or no TLS at all)",
        "outcome",
        limit=2,
    )
    _connections = plain_gauge("Open connections of callers")
    _in_flight_bytes = plain_gauge("Bytes of unanswered requests and of unsent responses")

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        for verb in _VERBS:
            self._requests.labels(verb, "ok")
            self._request_duration_seconds.labels(verb)

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        self._requests.labels(verb, outcome).inc()
        self._request_duration_seconds.labels(verb).observe(seconds)

    def connections(self, count: int, in_flight: int) -> None:
        """Set how many connections of callers are open, and how many bytes wait in them."""
        self._connections.set(count)
        self._in_flight_bytes.set(in_flight)


class ApiServerMetrics(MetricGroup, Observer):
    """Watches, requests, Events and optional fields."""

    _watch_events = counter("Watch events received, by kind of object and type of event", "kind", "type", limit=60)
    _lists = counter("Complete lists of a kind", "kind")
    _relists = counter("Times a kind had to be listed again", "kind")
    _watch_failures = counter("Lists and watches that failed, by kind and reason", "kind", "reason")
    _unreadable_objects = counter("Objects of the API server that could not be read and were skipped", "kind")
    watch_age_seconds = gauge("Seconds since the last response to the list or watch of a kind", "kind")
    _api_requests = counter(
        "Requests to the API server by verb, resource and outcome",
        "verb",
        "resource",
        "outcome",
        limit=120,
    )
    _api_request_duration_seconds = histogram(
        "Duration of requests to the API server; of a watch, until its response begins",
        "verb",
        "resource",
        buckets=CALL_SECONDS,
        limit=32,
    )
    _pod_events = counter("Events about pods: written, repeated, limited, overflowed or failed", "outcome")
    _field_served = gauge("1 when the API server serves this optional field, 0 when it does not", "field")

    def watch_event(self, kind: str, event: str) -> None:
        self._watch_events.labels(kind, event).inc()

    def listed(self, kind: str, objects: int, seconds: float) -> None:  # noqa: ARG002 - one counter is enough here
        self._lists.labels(kind).inc()

    def relisting(self, kind: str, reason: str) -> None:  # noqa: ARG002 - the reason is in the log
        self._relists.labels(kind).inc()

    def watch_failed(self, kind: str, reason: str) -> None:
        self._watch_failures.labels(kind, reason).inc()

    def unreadable(self, kind: str) -> None:
        self._unreadable_objects.labels(kind).inc()

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        self._api_requests.labels(verb, resource, status).inc()
        self._api_request_duration_seconds.labels(verb, resource).observe(seconds)

    def pod_event(self, outcome: str) -> None:
        self._pod_events.labels(outcome).inc()

    def set_field_served(self, field: str, served: bool) -> None:
        self._field_served.labels(field).set(served)
