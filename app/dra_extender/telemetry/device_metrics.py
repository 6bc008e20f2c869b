"""Metrics of devices: how many of each driver are in which state, and the waits for their binding conditions (KEP-5007)."""

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Final

from dra_extender.telemetry.declaration import OTHER, MetricGroup, counter, gauge, histogram, plain_counter, plain_gauge

_MOST_DRIVERS: Final = 40
_MOST_STATES: Final = 10
_CONDITION_SECONDS: Final = tuple(0.1 * 2**power for power in range(14))
_PREBIND_SECONDS: Final = (0.005, 0.01, *_CONDITION_SECONDS)

ByDriver = Mapping[str, Mapping[str, int]]
"""Driver -> state -> number of devices."""


class DeviceMetrics(MetricGroup):
    """Devices by state."""

    _devices = gauge(
        "Published devices by driver and state (docs/reference/metrics.md): allocated, held, usable, blocked by counters, blocked "
        "by groups, unusable, not judged; each counts once",
        "driver",
        "state",
        limit=(_MOST_DRIVERS + 1) * _MOST_STATES,
    )
    _device_counts = plain_counter("Times that the devices were counted")
    _device_count_seconds = plain_counter("Seconds of work of counting the devices, without pauses")
    _devices_counted_timestamp_seconds = plain_gauge("When the devices were counted last, since the epoch")

    def devices(self, by_state: ByDriver) -> None:
        """Set the numbers of all devices by state; drivers with fewest devices share a value."""
        shown_drivers = nlargest(_MOST_DRIVERS, by_state, key=lambda driver: (sum(by_state[driver].values()), driver))
        shown: dict[tuple[str, str], int] = {}
        for driver, numbers in by_state.items():
            for state, number in numbers.items():
                key = (driver if driver in shown_drivers else OTHER, state)
                shown[key] = shown.get(key, 0) + number
        self._devices.keep(shown)
        for key, number in shown.items():
            self._devices.labels(*key).set(number)

    def devices_counted(self, work: float, now: float) -> None:
        """Count a count of the devices, with its seconds of work, at this time (seconds since the epoch)."""
        self._device_counts.inc()
        self._device_count_seconds.inc(work)
        self._devices_counted_timestamp_seconds.set(now)


class BindingMetrics(MetricGroup):
    """Waits for binding conditions."""

    _scheduler_dra_bindingconditions_allocations = counter(
        "Devices with binding conditions that a bind waited for, by scheduler (`profile`), driver and status: success, failed, "
        "timeout, error (ended otherwise); KEP-5007",
        "profile",
        "driver",
        "status",
        limit=120,
        prefix="",
    )
    _scheduler_dra_bindingconditions_wait_duration_seconds = histogram(
        "Duration of waits for binding conditions, one count per driver of the pod's devices; KEP-5007",
        "profile",
        "driver",
        "status",
        buckets=_CONDITION_SECONDS,
        limit=120,
        prefix="",
    )
    _bindingconditions_attempts = counter(
        "Binds of pods whose devices have binding conditions, by status: success, timeout, failure (also one that ended for "
        "another reason); each bind counts once, as KEP-5007 describes `scheduler_dra_bindingconditions_allocations_total`",
        "status",
    )
    _scheduler_dra_bindingconditions_prebind_duration_seconds = histogram(
        "Time from the decision to the Binding for all pods with claims, waiting for a gang left out, by status and by whether a "
        "device has binding conditions; KEP-5007",
        "status",
        "requires_bindingconditions",
        buckets=_PREBIND_SECONDS,
        prefix="",
    )
    bindingconditions_waiting_pods = plain_gauge("Pods whose bind waits for binding conditions now")

    def waited(self, profile: str, drivers: Sequence[str], status: str, seconds: float) -> None:
        """Count a wait that ended; `drivers` names the driver of each device with conditions."""
        for driver in drivers:
            self._scheduler_dra_bindingconditions_allocations.labels(profile, driver, status).inc()
        for driver in sorted(set(drivers)):
            self._scheduler_dra_bindingconditions_wait_duration_seconds.labels(profile, driver, status).observe(seconds)

    def prebind(self, status: str, seconds: float, *, requires_conditions: bool) -> None:
        """Count a bind of a pod with claims that has come to its Binding, or ended before."""
        self._scheduler_dra_bindingconditions_prebind_duration_seconds.labels(
            status, "true" if requires_conditions else "false"
        ).observe(seconds)
        if requires_conditions:
            self._bindingconditions_attempts.labels(status).inc()
