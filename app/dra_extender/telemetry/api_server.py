"""Metrics of the work with the API server: watches, requests, Events, optional fields."""

from dra_extender.telemetry.calls import CALL_SECONDS
from dra_extender.telemetry.declaration import MetricGroup, counter, gauge, histogram


class ApiServerMetrics(MetricGroup):
    """See `metrics.Metrics`; with it, an Observer of the adapters in `kube`."""

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
        """Count a watch event of a kind."""
        self._watch_events.labels(kind, event).inc()

    def listed(self, kind: str, objects: int, seconds: float) -> None:  # noqa: ARG002 - one counter is enough here
        """Count a complete list of a kind."""
        self._lists.labels(kind).inc()

    def relisting(self, kind: str, reason: str) -> None:  # noqa: ARG002 - the reason is in the log
        """Count that a kind must be listed again."""
        self._relists.labels(kind).inc()

    def watch_failed(self, kind: str, reason: str) -> None:
        """Count a list or watch that failed."""
        self._watch_failures.labels(kind, reason).inc()

    def unreadable(self, kind: str) -> None:
        """Count an object that could not be read and was skipped."""
        self._unreadable_objects.labels(kind).inc()

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """Count a request to the API server that ended with an HTTP status, or with none."""
        self._api_requests.labels(verb, resource, status).inc()
        self._api_request_duration_seconds.labels(verb, resource).observe(seconds)

    def pod_event(self, outcome: str) -> None:
        """Count an Event about a pod that was written, or was not."""
        self._pod_events.labels(outcome).inc()

    def unserved(self, field: str, unserved: bool = True) -> None:
        """Set whether the API server lacks an optional field."""
        self._field_served.labels(field).set(0 if unserved else 1)
