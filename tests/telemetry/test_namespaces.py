"""Labels that a tenant chooses stay few, at a time and over time."""

from dra_extender.telemetry.declaration import MOST_NAMESPACES, QUIET_SECONDS, CounterByNamespace
from dra_extender.telemetry.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter


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
