"""The gauges of devices by driver."""

from dra_extender.telemetry.metrics import Metrics


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
