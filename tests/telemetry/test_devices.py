"""The gauges of devices by driver."""

from dra_extender.telemetry.metrics import Metrics


def shown(metrics: Metrics, name: str) -> dict[tuple[str, str], float]:
    (family,) = (each for each in metrics.registry.collect() if each.name == name)
    first, second = (
        ("driver", "state") if name.endswith("_devices") and "stranded" not in name else ("driver", "reason")
    )
    return {(each.labels[first], each.labels[second]): each.value for each in family.samples}


def test_drivers_with_fewest_devices_share_a_value_and_no_device_is_lost() -> None:
    metrics = Metrics()
    metrics.devices({f"d{index}": {"free": index + 1, "held": 1} for index in range(100)}, {})
    found = shown(metrics, "dra_extender_devices")
    assert len(found) == 82
    assert found["d99", "free"] == 100
    assert found["other", "free"] == sum(range(1, 61))
    assert sum(found.values()) == sum(range(1, 101)) + 100


def test_a_driver_without_devices_any_more_has_no_values() -> None:
    metrics = Metrics()
    metrics.devices({"gone": {"free": 1}, "here": {"free": 2}}, {"gone": {"pool": 1}})
    metrics.devices({"here": {"free": 3}}, {})
    assert shown(metrics, "dra_extender_devices") == {("here", "free"): 3}
    assert shown(metrics, "dra_extender_stranded_devices") == {}
