import asyncio
import platform
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from dra_extender.telemetry.bounded_labels import Catalogue


class BindingMetrics:
    """What is counted of binding conditions (KEP-5007); see `Metrics`."""

    def __init__(self, make: Catalogue) -> None:
        self._attempts = make.counter("bindingconditions_attempts")
        self._devices = make.counter("bindingconditions_allocations")
        self._prebind = make.histogram("bindingconditions_prebind_duration_seconds")
        self._waits = make.histogram("bindingconditions_wait_duration_seconds")
        self._waiting = make.plain_gauge("bindingconditions_waiting_pods")

    def waited(self, profile: str, drivers: Sequence[str], status: str, seconds: float) -> None:
        """A wait ended; `drivers` names the driver of each device with conditions."""
        for driver in drivers:
            self._devices.of(profile, driver, status).inc()
        for driver in sorted(set(drivers)):
            self._waits.of(profile, driver, status).observe(seconds)

    def waiting(self, pods: int) -> None:
        """How many binds wait now."""
        self._waiting.set(pods)

    def prebind(self, status: str, seconds: float, *, requires_conditions: bool) -> None:
        """A bind of a pod with claims has come to its Binding, or ended before."""
        self._prebind.of(status, "true" if requires_conditions else "false").observe(seconds)
        if requires_conditions:
            self._attempts.of(status).inc()


VERBS: Final = ("filter", "prioritize", "bind", "preempt")
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def build_version() -> str:
    """The version of the installed package, or `unknown` when it runs from a bare source tree."""
    try:
        return version("dra-extender")
    except PackageNotFoundError:
        return "unknown"


class SearchLane(StrEnum):
    """What the time of a decision is taken from."""

    SLICE = "slice"
    NAMESPACE = "namespace"
    EVERYBODY = "everybody"
    ALONE = "alone"
    WAKE_UP = "wake_up"


class Metrics:
    """What the service counts, in a registry of its own.

    Methods are cheap and never raise.  Label values may be any text: each metric has a limit, beyond which they count as `other`;
    names of pods, claims and nodes do not belong in labels.  Times are in seconds.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._before: list[Callable[[], None]] = []
        make = Catalogue(self.registry)
        self._requests = make.counter("requests")
        self._durations = make.histogram("request_duration_seconds")
        self._closed_connections = make.counter("closed_connections")
        self._open_connections = make.plain_gauge("connections")
        self._in_flight = make.plain_gauge("in_flight_bytes")
        self._rejected = make.counter("rejected_nodes")
        self._bind = make.counter("bind")
        self._bind_durations = make.histogram("bind_duration_seconds")
        self._claim_writes = make.counter("claim_writes")
        self._wakes = make.counter("scheduler_wakes")
        self._reclaims = make.counter("reclaims")
        self._group_claims, self._group_trials = make.counter("group_claims"), make.counter("group_trials")
        self._group_claims_refused = make.plain_gauge("group_claims_refused")
        self.binding = BindingMetrics(make)
        self._overlaps = make.counter("allocation_overlaps")
        self._from_memory, self._from_search = map(make.counter("node_answers").of, ("memory", "search"))
        self._steps = make.plain_histogram("search_steps")
        self._searched = make.counter("search_seconds")
        self._resumed = make.plain_counter("searches_resumed")
        self._stopped = make.plain_counter("searches_stopped")
        self._held, self._unsettled = map(make.plain_gauge, ("held_claims", "unsettled_claims"))
        self._guards = make.plain_gauge("guard_claims")
        self._waiting = make.plain_gauge("waiting_pods")
        self._orphaned, self._contradicted = map(make.plain_gauge, ("orphaned_allocations", "contradicted_snapshots"))
        self._claims_kept, self._claims_short = map(make.plain_gauge, ("claims_kept_bytes", "claims_kept_short"))
        self._claims_read_again = make.counter("claims_read_again")
        self._deleted_in_use = make.plain_counter("claims_deleted_in_use")
        self._watch_events = make.counter("watch_events")
        self._lists = make.counter("lists")
        self._relists = make.counter("relists")
        self._watch_failures = make.counter("watch_failures")
        self._unreadable = make.counter("unreadable_objects")
        self._watch_age = make.gauge("watch_age_seconds")
        self._api_requests = make.counter("api_requests")
        self._api_durations = make.histogram("api_request_duration_seconds")
        self._pod_events = make.counter("pod_events")
        self._stripped = make.counter("stripped_fields")
        self._served = make.gauge("field_served")
        self._policy_reads, self._policy_current = make.counter("policy_reads"), make.plain_gauge("policy_current")
        self._leader = make.plain_gauge("leader")
        self._leader_changes = make.counter("leader_changes")
        self._background_failures = make.counter("background_failures")
        make.gauge("build_info").of(build_version(), platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)
        for verb in VERBS:
            self._requests.of(verb, "ok")
            self._durations.of(verb)

    def closed_connection(self, reason: str) -> None:
        """The service closed a caller's connection by itself."""
        self._closed_connections.of(reason).inc()

    def connections(self, count: int, in_flight: int) -> None:
        """How many connections of callers are open, and how many bytes wait in them."""
        self._open_connections.set(count)
        self._in_flight.set(in_flight)

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        """A call of kube-scheduler was answered."""
        self._requests.of(verb, outcome).inc()
        self._durations.of(verb).observe(seconds)

    def rejected(self, code: str, nodes: int) -> None:
        """Filter refused this many nodes for the reason `code`."""
        self._rejected.of(code).inc(nodes)

    def bound(self, outcome: str, seconds: float) -> None:
        """A bind call ended."""
        self._bind.of(outcome).inc()
        self._bind_durations.of(outcome).observe(seconds)

    def claim_write(self, step: str, outcome: str) -> None:
        """A ResourceClaim was written, or was not."""
        self._claim_writes.of(step, outcome).inc()

    def woke(self, reason: str) -> None:
        """kube-scheduler was told to try rejected pods again."""
        self._wakes.of(reason).inc()

    def reclaimed(self, reason: str, outcome: str) -> None:
        """Something unused was given back, or was not."""
        self._reclaims.of(reason, outcome).inc()

    def group_claim(self, step: str, outcome: str) -> None:
        """The controller of PodGroup claims did something, or could not."""
        self._group_claims.of(step, outcome).inc()

    def group_trial(self, outcome: str) -> None:
        """A pod that is reserved through its PodGroup alone has shown whether its kubelet starts it."""
        self._group_trials.of(outcome).inc()

    def group_claims_refused(self, *, refused: bool) -> None:
        """Whether that controller has stopped because of another one."""
        self._group_claims_refused.set(1 if refused else 0)

    def overlap(self, kind: str, outcome: str, writer: str) -> None:
        """The same is allocated to two claims, the other one by this writer (see `Overlap`)."""
        self._overlaps.of(kind, outcome, writer).inc()

    def search(self, cached: bool, steps: int) -> None:
        """`cached`: this many results of nodes were cached; else one node was searched in this many steps."""
        if cached:
            self._from_memory.inc(steps)
        else:
            self._from_search.inc()
            self._steps.observe(steps)

    def searched(self, lane: SearchLane, seconds: float) -> None:
        """So much time of a call was taken out of this lane."""
        self._searched.of(lane).inc(seconds)

    def search_resumed(self) -> None:
        """A paused search goes on."""
        self._resumed.inc()

    def search_stopped(self) -> None:
        """A call was denied a further slice."""
        self._stopped.inc()

    def held(self, claims: int, unsettled: int) -> None:
        """How many claims devices are held for now, and how many of these may still land on one of several nodes."""
        self._held.set(claims)
        self._unsettled.set(unsettled)

    def claims_kept(self, size: int, short: int) -> None:
        """How many bytes are kept of claims, and of how many claims the specs are not."""
        self._claims_kept.set(size)
        self._claims_short.set(short)

    def claim_read_again(self, outcome: str) -> None:
        """A claim of which the spec is not kept was read, or could not be."""
        self._claims_read_again.of(outcome).inc()

    def guarded(self, claims: int) -> None:
        """How many guard claims there are."""
        self._guards.set(claims)

    def orphaned(self, allocations: int) -> None:
        """How many allocations of deleted claims are counted because pods still use their devices."""
        self._orphaned.set(allocations)

    def contradicted(self, claims: int) -> None:
        """How many claims are allocated whose two snapshots of groups differ."""
        self._contradicted.set(claims)

    def claim_deleted_in_use(self) -> None:
        """A claim was deleted while pods use its devices."""
        self._deleted_in_use.inc()

    def waiting(self, pods: int) -> None:
        """How many pods were refused on every node and not placed since."""
        self._waiting.set(pods)

    def watch_event(self, kind: str, type: str) -> None:  # noqa: A002 - the API's word
        """A watch event arrived."""
        self._watch_events.of(kind, type).inc()

    def listed(self, kind: str) -> None:
        """A kind was listed completely."""
        self._lists.of(kind).inc()

    def relist(self, kind: str) -> None:
        """A kind must be listed again."""
        self._relists.of(kind).inc()

    def watch_failed(self, kind: str, reason: str) -> None:
        """A list or watch failed."""
        self._watch_failures.of(kind, reason).inc()

    def unreadable(self, kind: str) -> None:
        """An object could not be read."""
        self._unreadable.of(kind).inc()

    def watch_age(self, kind: str, seconds: float) -> None:
        """How long the API server has been silent about a kind."""
        self._watch_age.of(kind).set(seconds)

    def api_request(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """A request to the API server ended."""
        self._api_requests.of(verb, resource, outcome).inc()
        self._api_durations.of(verb, resource).observe(seconds)

    def pod_event(self, outcome: str) -> None:
        """What became of an Event about a pod."""
        self._pod_events.of(outcome).inc()

    def stripped(self, field: str) -> None:
        """The API server did not keep a field that was written."""
        self._stripped.of(field).inc()

    def unserved(self, field: str, unserved: bool = True) -> None:
        """Whether the API server lacks an optional field."""
        self._served.of(field).set(0 if unserved else 1)

    def policy(self, outcome: str) -> None:
        """The policy file was read anew: taken, refused or missing."""
        self._policy_reads.of(outcome).inc()
        self._policy_current.set(1 if outcome == "taken" else 0)

    def leader(self, acts: bool) -> None:
        """Whether this replica may act now."""
        self._leader.set(1 if acts else 0)

    def term(self, change: str) -> None:
        """A term of this replica as leader was won or lost."""
        self._leader_changes.of(change).inc()

    def background_failed(self, task: str) -> None:
        """Something failed in the background."""
        self._background_failures.of(task).inc()

    def before_render(self, refresh: Callable[[], None]) -> None:
        """Have `refresh` called before each rendering, for gauges that are read rather than told."""
        self._before.append(refresh)

    async def render(self) -> bytes:
        """The exposition in the text format 0.0.4; other tasks run between the metrics, because all of them take milliseconds."""
        for refresh in self._before:
            refresh()
        parts: list[bytes] = []
        for metric in self.registry.collect():
            parts.append(generate_latest(_One(metric)))
            await asyncio.sleep(0)
        return b"".join(parts)


class _One(Collector):
    """A registry of one metric, without the samples that tell when each series began."""

    def __init__(self, metric: Metric) -> None:
        metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
