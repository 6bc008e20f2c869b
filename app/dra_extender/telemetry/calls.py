"""Metrics of the calls of kube-scheduler and of their connections."""

from typing import Final

from prometheus_client import CollectorRegistry

from dra_extender.telemetry.declaration import MetricGroup, counter, histogram, plain_gauge

CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_VERBS: Final = ("filter", "prioritize", "bind", "preempt")


class CallMetrics(MetricGroup):
    """See `metrics.Metrics`."""

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
    _closed_connections = counter(
        "Connections of callers that the service closed, by reason: replaced (there were too many, and its caller had "
        "most), busy (there were too many, all in use), idle, slow_request, slow_reader, large_head, large_body, pipeline "
        "(too many requests sent ahead), memory (unanswered requests took too much), forbidden (a client "
        "certificate with another name), and for the headers of a request: host, origin, content_type, repeated_header",
        "reason",
        limit=16,
    )
    _tls_handshakes = counter(
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
        """Count a call of kube-scheduler that was answered."""
        self._requests.labels(verb, outcome).inc()
        self._request_duration_seconds.labels(verb).observe(seconds)

    def closed_connection(self, reason: str) -> None:
        """Count a connection of a caller that the service closed by itself."""
        self._closed_connections.labels(reason).inc()

    def tls_handshake(self, outcome: str) -> None:
        """Count a TLS handshake with a caller that is done, or failed."""
        self._tls_handshakes.labels(outcome).inc()

    def connections(self, count: int, in_flight: int) -> None:
        """Set how many connections of callers are open, and how many bytes wait in them."""
        self._connections.set(count)
        self._in_flight_bytes.set(in_flight)
