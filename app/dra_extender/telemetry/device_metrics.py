"""Metrics of devices: how many of each driver are in which state."""

from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from dra_extender.telemetry.declaration import OTHER, MetricGroup, gauge, plain_counter, plain_gauge

_MOST_DRIVERS: Final = 40
_MOST_STATES: Final = 10

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
