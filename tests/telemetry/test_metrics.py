import asyncio
from pathlib import Path

import pytest
from dra_extender.telemetry.declaration import (
    MOST_NAMESPACES,
    PREFIX,
    QUIET_SECONDS,
    CounterByNamespace,
    MetricGroup,
    plain_counter,
)
from dra_extender.telemetry.metrics import DEFINITIONS, Metrics
from dra_extender.telemetry.upstream_metrics import UNSCHEDULABLE
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(PREFIX + name, labels)


def call_everything(metrics: Metrics) -> None:
    metrics.request("filter", "ok", 0.002)
    metrics.rejected_nodes.labels("in_use").inc(3)
    metrics.bound("bound", 0.5)
    metrics.claim_writes.labels("status", "ok").inc()
    metrics.scheduler_wakes.labels("devices").inc()
    metrics.cached_results(200)
    metrics.searched(7)
    metrics.held_claims.set(5)
    metrics.multi_node_holds.set(2)
    metrics.waiting_pods.set(4)
    metrics.waiting_pods_longest_seconds.set(90.5)
    metrics.search_stopped("team-a")
    metrics.devices({"gpu.example.com": {"usable": 3}})
    metrics.devices_counted(0.25, 1.5e9)
    metrics.orphaned_allocations.set(3)
    metrics.claims_deleted_in_use.inc()
    metrics.watch_event("pods", "ADDED")
    metrics.listed("pods", 5, 0.1)
    metrics.relisting("pods", "gone")
    metrics.watch_failed("pods", "stalled")
    metrics.unreadable("pods")
    metrics.watch_age_seconds.labels("pods").set(1.5)
    metrics.api_request("update", "resourceclaims/status", "200", 0.01)
    metrics.pod_event("written")
    metrics.stripped_fields.labels("compatibilityGroups").inc()
    metrics.set_field_served("compatibility-groups", False)
    metrics.set_field_served("device-taints", True)
    metrics.policy("taken")


def test_what_is_told_is_what_is_counted() -> None:
    metrics = Metrics()
    call_everything(metrics)
    expected = [
        ("requests_total", {"verb": "filter", "outcome": "ok"}, 1),
        ("request_duration_seconds_sum", {"verb": "filter"}, 0.002),
        ("rejected_nodes_total", {"code": "in_use"}, 3),
        ("bind_total", {"outcome": "bound"}, 1),
        ("bind_duration_seconds_count", {"outcome": "bound"}, 1),
        ("claim_writes_total", {"step": "status", "outcome": "ok"}, 1),
        ("scheduler_wakes_total", {"reason": "devices"}, 1),
        ("node_results_total", {"source": "cache"}, 200),
        ("node_results_total", {"source": "search"}, 1),
        ("search_steps_sum", {}, 7),
        ("held_claims", {}, 5),
        ("multi_node_holds", {}, 2),
        ("waiting_pods", {}, 4),
        ("waiting_pods_longest_seconds", {}, 90.5),
        ("searches_stopped_total", {}, 1),
        ("search_refusals_total", {"pod_namespace": "team-a"}, 1),
        ("devices", {"driver": "gpu.example.com", "state": "usable"}, 3),
        ("device_counts_total", {}, 1),
        ("device_count_seconds_total", {}, 0.25),
        ("devices_counted_timestamp_seconds", {}, 1.5e9),
        ("orphaned_allocations", {}, 3),
        ("claims_deleted_in_use_total", {}, 1),
        ("watch_events_total", {"kind": "pods", "type": "ADDED"}, 1),
        ("lists_total", {"kind": "pods"}, 1),
        ("relists_total", {"kind": "pods"}, 1),
        ("watch_failures_total", {"kind": "pods", "reason": "stalled"}, 1),
        ("unreadable_objects_total", {"kind": "pods"}, 1),
        ("watch_age_seconds", {"kind": "pods"}, 1.5),
        ("api_requests_total", {"verb": "update", "resource": "resourceclaims/status", "outcome": "200"}, 1),
        ("api_request_duration_seconds_count", {"verb": "update", "resource": "resourceclaims/status"}, 1),
        ("pod_events_total", {"outcome": "written"}, 1),
        ("stripped_fields_total", {"field": "compatibilityGroups"}, 1),
        ("field_served", {"field": "compatibility-groups"}, 0),
        ("field_served", {"field": "device-taints"}, 1),
    ]
    assert [(name, labels, value(metrics, name, **labels)) for name, labels, _ in expected] == expected


def test_every_defined_metric_exists_with_its_type_and_nothing_else_does() -> None:
    metrics = Metrics()
    call_everything(metrics)
    text = asyncio.run(metrics.render()).decode()
    families = {each.name: each.type for each in text_string_to_metric_families(text)}
    ours = {name: kind for name, kind in families.items() if not name.startswith("process_")}
    expected = {each.base_name: each.kind for each in DEFINITIONS}
    assert ours == expected


def test_histograms_stay_few_whatever_is_counted() -> None:
    """Rendering blocks the event loop for about a tenth of a millisecond for each of them."""
    metrics = Metrics()
    for number in range(500):
        odd = f"value-{number}"
        metrics.request(odd, odd, 1)
        metrics.bound(odd, 1)
        metrics.api_request(odd, odd, odd, 1)
    text = asyncio.run(metrics.render()).decode()
    counts = [
        sample
        for family in text_string_to_metric_families(text)
        if family.type == "histogram"
        for sample in family.samples
        if sample.name.endswith("_count")
    ]
    assert len(counts) < 50


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), st.integers(0, 100)), max_size=400))
def test_label_values_beyond_the_limit_are_counted_together(calls: list[tuple[str, str, int]]) -> None:
    """Nothing is lost: the sum over all label values is what was told."""
    metrics = Metrics()
    for code, _, nodes in calls:
        metrics.rejected_nodes.labels(code).inc(nodes)
    (family,) = (each for each in metrics.registry.collect() if each.name == PREFIX + "rejected_nodes")
    totals = [sample.value for sample in family.samples if sample.name.endswith("_total")]
    assert sum(totals) == sum(nodes for _, _, nodes in calls)
    assert len(totals) <= 61


def test_two_metrics_of_one_attribute_are_refused() -> None:
    class One(MetricGroup):
        _count = plain_counter("")

    class Both(One):
        _count = plain_counter("")

    with pytest.raises(TypeError, match="two metrics of Both have the attribute _count"):
        Both(CollectorRegistry())


def test_two_sets_of_metrics_do_not_share_anything() -> None:
    one, two = Metrics(), Metrics()
    one.waiting_pods.set(3)
    assert value(two, "waiting_pods") == 0


async def test_gauges_that_are_read_are_fresh_in_each_rendering() -> None:
    metrics = Metrics()
    ages = iter([1.0, 2.0])
    metrics.before_render(lambda: metrics.watch_age_seconds.labels("pods").set(next(ages)))
    assert b'watch_age_seconds{kind="pods"} 1.0' in await metrics.render()
    assert b'watch_age_seconds{kind="pods"} 2.0' in await metrics.render()


async def test_rendering_lets_others_run() -> None:
    metrics = Metrics()
    call_everything(metrics)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await metrics.render()
    other.cancel()
    assert turns >= len(DEFINITIONS)


async def test_no_series_tells_when_it_began() -> None:
    """Those would double the size of a scrape."""
    assert b"_created" not in await Metrics().render()


@pytest.mark.parametrize(
    ("report", "name", "labels"),
    [
        (lambda metrics: metrics.watch_event("pods", "ADDED"), "watch_events_total", {"kind": "pods", "type": "ADDED"}),
        (lambda metrics: metrics.listed("pods", 5, 0.1), "lists_total", {"kind": "pods"}),
        (lambda metrics: metrics.relisting("pods", "gone"), "relists_total", {"kind": "pods"}),
        (
            lambda metrics: metrics.watch_failed("pods", "410"),
            "watch_failures_total",
            {"kind": "pods", "reason": "410"},
        ),
        (lambda metrics: metrics.unreadable("pods"), "unreadable_objects_total", {"kind": "pods"}),
        (
            lambda metrics: metrics.api_request("get", "pods", "none", 1.0),
            "api_requests_total",
            {"verb": "get", "resource": "pods", "outcome": "none"},
        ),
        (lambda metrics: metrics.pod_event("limited"), "pod_events_total", {"outcome": "limited"}),
        (lambda metrics: metrics.leads(True), "leader_changes_total", {"change": "won"}),
        (lambda metrics: metrics.leads(False), "leader_changes_total", {"change": "lost"}),
    ],
)
def test_reports_of_the_adapters_are_counted(report: object, name: str, labels: dict[str, str]) -> None:
    metrics = Metrics()
    assert callable(report)
    report(metrics)
    assert value(metrics, name, **labels) == 1


def shown(metrics: Metrics) -> dict[tuple[str, str], float]:
    (family,) = (each for each in metrics.registry.collect() if each.name == "dra_extender_devices")
    return {(each.labels["driver"], each.labels["state"]): each.value for each in family.samples}


def test_drivers_with_fewest_devices_share_a_value_and_no_device_is_lost() -> None:
    metrics = Metrics()
    metrics.devices({f"d{index}": {"usable": index + 1, "held": 1} for index in range(100)})
    found = shown(metrics)
    assert len(found) == 82
    assert found["d99", "usable"] == 100
    assert found["other", "usable"] == sum(range(1, 61))
    assert sum(found.values()) == sum(range(1, 101)) + 100


def test_a_driver_without_devices_any_more_has_no_values() -> None:
    metrics = Metrics()
    metrics.devices({"gone": {"usable": 1}, "here": {"usable": 2}})
    metrics.devices({"here": {"usable": 3}})
    assert shown(metrics) == {("here", "usable"): 3}


class Counted:
    """A counter by namespace with a clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.registry = CollectorRegistry()
        counter = Counter("refusals", "", ["pod_namespace"], registry=self.registry)
        self.counter = CounterByNamespace(counter, lambda: self.time)

    def values(self) -> dict[str, float]:
        (family,) = self.registry.collect()
        return {each.labels["pod_namespace"]: each.value for each in family.samples if each.name == "refusals_total"}


def test_namespaces_beyond_the_most_count_together() -> None:
    counted = Counted()
    for index in range(MOST_NAMESPACES + 7):
        counted.counter.inc(f"n{index}")
    assert len(counted.values()) == MOST_NAMESPACES + 1
    assert counted.values()["other"] == 7


def test_a_namespace_that_goes_on_keeps_its_value_whatever_others_are_made() -> None:
    counted = Counted()
    counted.counter.inc("steady")
    for index in range(10_000):
        counted.time += 60
        counted.counter.inc(f"n{index}")
        counted.counter.inc("steady")
    assert counted.values()["steady"] == 10_001


def test_new_series_in_an_hour_are_bounded_whatever_namespaces_are_made() -> None:
    """Prometheus keeps what it has seen once."""
    counted, seen = Counted(), set[str]()
    for index in range(100_000):
        counted.time = index * QUIET_SECONDS / 100_000
        counted.counter.inc(f"n{index}")
        if index % 1000 == 0:
            seen.update(counted.values())
    assert len(seen | counted.values().keys()) <= MOST_NAMESPACES + 1


def test_a_quiet_namespace_gives_its_place_away() -> None:
    counted = Counted()
    for index in range(MOST_NAMESPACES):
        counted.counter.inc(f"n{index}")
    counted.time = QUIET_SECONDS - 1
    counted.counter.inc("n0")
    counted.time = QUIET_SECONDS
    counted.counter.inc("late")
    found = counted.values()
    assert "late" in found
    assert "n0" in found
    assert "n1" not in found


@given(st.lists(st.tuples(st.integers(0, 120), st.floats(0, QUIET_SECONDS)), max_size=300))
def test_no_count_is_lost_while_nothing_is_dropped(calls: list[tuple[int, float]]) -> None:
    counted = Counted()
    for namespace, _ in calls:
        counted.counter.inc(str(namespace))
    assert sum(counted.values().values()) == len(calls)
    assert len(counted.values()) <= MOST_NAMESPACES + 1


def test_refusals_count_in_all_and_by_namespace() -> None:
    metrics = Metrics()
    metrics.search_stopped("team-a")
    metrics.search_stopped("team-b")
    value = metrics.registry.get_sample_value
    assert value("dra_extender_searches_stopped_total") == 2
    assert value("dra_extender_search_refusals_total", {"pod_namespace": "team-a"}) == 1


def test_pods_wait_by_scheduler_and_those_with_fewest_share_a_value() -> None:
    """Who creates a pod chooses the name of its scheduler."""
    metrics = Metrics()
    metrics.upstream.unschedulable({f"s{index}": index + 1 for index in range(30)})
    metrics.upstream.unschedulable({f"s{index}": index + 1 for index in range(10, 40)})
    (family,) = (each for each in metrics.registry.collect() if each.name == "scheduler_unschedulable_pods")
    found = {each.labels["profile"]: each.value for each in family.samples}
    assert {each.labels["plugin"] for each in family.samples} == {"DynamicResources"}
    assert len(found) == 21
    assert found["s39"] == 40
    assert found["other"] == sum(range(11, 21))


def test_a_scheduler_without_pods_that_wait_has_no_value() -> None:
    metrics = Metrics()
    metrics.upstream.unschedulable({"gpu-scheduler": 2})
    metrics.upstream.unschedulable({})
    assert (
        metrics.registry.get_sample_value(
            "scheduler_unschedulable_pods", {"plugin": "DynamicResources", "profile": "gpu-scheduler"}
        )
        is None
    )


def test_an_execution_ends_as_success_as_what_it_says_or_as_error() -> None:
    metrics = Metrics()
    with metrics.upstream.execution("Filter"):
        pass
    with metrics.upstream.execution("Filter") as execution:
        execution.status = UNSCHEDULABLE
    with pytest.raises(OSError, match="broken"), metrics.upstream.execution("Filter"):
        raise OSError("broken")
    for status in ("Success", "Unschedulable", "Error"):
        labels = {"plugin": "DynamicResources", "extension_point": "Filter", "status": status}
        name = "scheduler_plugin_execution_duration_seconds_count"
        assert metrics.registry.get_sample_value(name, labels) == 1
