"""Metrics under the names that kube-scheduler and kube-controller-manager give them."""

import pytest
from dra_extender.telemetry.metrics import DEFINITIONS, Metrics
from dra_extender.telemetry.upstream import UNSCHEDULABLE
from prometheus_client.parser import text_string_to_metric_families

WAITED = ("profile", "driver", "status")


def test_what_is_upstream_s_metric_is_exposed_under_its_name_with_the_same_values() -> None:
    names = {each.full_name: (each.upstream_name, each.labels) for each in DEFINITIONS if each.upstream}
    assert names == {
        "dra_extender_bindingconditions_allocations_total": (
            "scheduler_dra_bindingconditions_allocations_total",
            WAITED,
        ),
        "dra_extender_bindingconditions_wait_duration_seconds": (
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            WAITED,
        ),
        "dra_extender_bindingconditions_prebind_duration_seconds": (
            "scheduler_dra_bindingconditions_prebind_duration_seconds",
            ("status", "requires_bindingconditions"),
        ),
    }


async def test_both_names_have_the_same_samples() -> None:
    metrics = Metrics()
    metrics.binding.waited("gpu-scheduler", ["gpu.example.com"], "success", 3.0)
    families = {each.name: each for each in text_string_to_metric_families((await metrics.render()).decode())}
    for name in ("dra_bindingconditions_allocations", "dra_bindingconditions_wait_duration_seconds"):
        theirs = families[f"scheduler_{name}"].samples
        ours = families[f"dra_extender_{name.removeprefix('dra_')}"].samples
        assert [(each.labels, each.value) for each in theirs] == [(each.labels, each.value) for each in ours]
        assert theirs
        assert {each.name.startswith("scheduler_dra_bindingconditions_") for each in theirs} == {True}


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
