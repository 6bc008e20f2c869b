"""Metrics of the work with the API server: watches, requests, Events, optional fields."""

from dra_extender.telemetry.calls import CALL_SECONDS
from dra_extender.telemetry.declaration import MetricGroup, counter, gauge, histogram


class ApiServerMetrics(MetricGroup):
    """See `metrics.Metrics`; with it, an Observer of the adapters in `kube`."""

    _watch_events = counter(
        "watch_events", "Watch events received, by kind of object and type of event", "kind", "type", limit=60
    )
    _lists = counter("lists", "Complete lists of a kind", "kind")
    _relists = counter("relists", "Times a kind had to be listed again", "kind")
    _watch_failures = counter("watch_failures", "Lists and watches that failed, by kind and reason", "kind", "reason")
    _unreadable = counter(
        "unreadable_objects", "Objects of the API server that could not be read and were skipped", "kind"
    )
    _watch_age = gauge("watch_age_seconds", "Seconds since the last response to the list or watch of a kind", "kind")
    _api_requests = counter(
        "api_requests",
        "Requests to the API server by verb, resource and outcome",
        "verb",
        "resource",
        "outcome",
        limit=120,
    )
    _api_durations = histogram(
        "api_request_duration_seconds",
        "Duration of requests to the API server; of a watch, until its response begins",
        "verb",
        "resource",
        buckets=CALL_SECONDS,
        limit=32,
    )
    _pod_events = counter(
        "pod_events", "Events about pods: written, repeated, limited, overflowed or failed", "outcome"
    )
    _served = gauge("field_served", "1 when the API server serves this optional field, 0 when it does not", "field")

    def watch_event(self, kind: str, event: str) -> None:
        """A watch event of a kind arrived."""
        self._watch_events.of(kind, event).inc()

    def listed(self, kind: str, objects: int, seconds: float) -> None:  # noqa: ARG002 - one counter is enough here
        """A kind was listed completely."""
        self._lists.of(kind).inc()

    def relisting(self, kind: str, reason: str) -> None:  # noqa: ARG002 - the reason is in the log
        """A kind must be listed again."""
        self._relists.of(kind).inc()

    def watch_failed(self, kind: str, reason: str) -> None:
        """A list or watch failed."""
        self._watch_failures.of(kind, reason).inc()

    def unreadable(self, kind: str) -> None:
        """An object could not be read and was skipped."""
        self._unreadable.of(kind).inc()

    def watch_age(self, kind: str, seconds: float) -> None:
        """How long the API server has been silent about a kind."""
        self._watch_age.of(kind).set(seconds)

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """A request to the API server ended with an HTTP status, or with none."""
        self._api_requests.of(verb, resource, status).inc()
        self._api_durations.of(verb, resource).observe(seconds)

    def pod_event(self, outcome: str) -> None:
        """An Event about a pod was written, or was not."""
        self._pod_events.of(outcome).inc()

    def unserved(self, field: str, unserved: bool = True) -> None:
        """Whether the API server lacks an optional field."""
        self._served.of(field).set(0 if unserved else 1)
