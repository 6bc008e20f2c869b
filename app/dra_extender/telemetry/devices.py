"""Metrics of the devices of each driver."""

from collections.abc import Mapping
from enum import StrEnum
from heapq import nlargest
from typing import Final

from dra_extender.telemetry.declaration import OTHER, MetricGroup, gauge, plain_counter, plain_gauge

_MOST_DRIVERS: Final = 40


class DeviceState(StrEnum):
    """What may become of a published device."""

    ALLOCATED = "allocated"
    HELD = "held"
    STRANDED = "stranded"
    FREE = "free"


class Stranding(StrEnum):
    """Why nobody can have a device that nobody has."""

    COUNTERS = "counters"
    GROUPS = "groups"
    POOL = "pool"


ByDriver = Mapping[str, Mapping[str, int]]
"""Driver -> state or reason -> number of devices."""


class DeviceMetrics(MetricGroup):
    """See `metrics.Metrics`."""

    _devices = gauge(
        "devices",
        "Published devices by driver and state (docs/metrics.md): allocated, held, stranded, free; each counts once",
        "driver",
        "state",
        limit=(_MOST_DRIVERS + 1) * len(DeviceState),
    )
    _stranded = gauge(
        "stranded_devices",
        "Devices in the state stranded by driver and reason: counters (too little is left of one), groups (those of an allocated "
        "device), pool (it is incomplete or contradicts itself)",
        "driver",
        "reason",
        limit=(_MOST_DRIVERS + 1) * len(Stranding),
    )
    _device_counts = plain_counter("device_counts", "Times that the devices were counted")
    _count_seconds = plain_counter("device_count_seconds", "Seconds of work of counting the devices, without pauses")
    _counted = plain_gauge("devices_counted_timestamp_seconds", "When the devices were counted last, since the epoch")

    def devices(self, by_state: ByDriver, by_reason: ByDriver) -> None:
        """All devices by state, and the stranded ones by reason; drivers with fewest devices share a value."""
        most = nlargest(_MOST_DRIVERS, by_state, key=lambda driver: (sum(by_state[driver].values()), driver))
        for metric, counts in ((self._devices, by_state), (self._stranded, by_reason)):
            shown: dict[tuple[str, str], int] = {}
            for driver, numbers in counts.items():
                for value, number in numbers.items():
                    key = (driver if driver in most else OTHER, value)
                    shown[key] = shown.get(key, 0) + number
            metric.keep(shown)
            for key, number in shown.items():
                metric.of(*key).set(number)

    def devices_counted(self, work: float, now: float) -> None:
        """The devices have been counted, with so many seconds of work, at this time (seconds since the epoch)."""
        self._device_counts.inc()
        self._count_seconds.inc(work)
        self._counted.set(now)
