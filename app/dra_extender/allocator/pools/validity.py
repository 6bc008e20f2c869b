"""What makes a pool invalid: contradictions between its slices."""

from collections.abc import Iterable, Mapping, Sequence

from dra_extender.model.device import CounterConsumption, Device
from dra_extender.model.resource_slice import ResourceSlice

CounterTotals = Mapping[str, Mapping[str, int]]
"""Counter set -> counter -> declared total in nano-units."""


class InvalidPoolError(Exception):
    """The slices of a pool contradict each other; the message says how."""


def check_device_names(slices: Sequence[ResourceSlice]) -> None:
    """Refuse a pool in which two of these devices have one name.

    Raises:
        InvalidPoolError: names the device.
    """
    seen: set[str] = set()
    for published in slices:
        for device in published.devices:
            if device.name in seen:
                raise InvalidPoolError(f"device {device.name} is published twice")
            seen.add(device.name)


def counter_totals(slices: Iterable[ResourceSlice]) -> CounterTotals:
    """The counter sets that these slices declare.

    Raises:
        InvalidPoolError: two sets have the same name.
    """
    totals: dict[str, dict[str, int]] = {}
    for published in slices:
        for counter_set in published.counter_sets:
            if counter_set.name in totals:
                raise InvalidPoolError(f"counter set {counter_set.name} is declared twice")
            totals[counter_set.name] = dict(counter_set.counters)
    return totals


def check_consumption(devices: Iterable[Device], totals: CounterTotals) -> None:
    """Refuse a pool with a device that draws on a counter that the pool does not declare; synthetic counter sets are exempt.

    Raises:
        InvalidPoolError: names device, counter set and counter.
    """
    for device in devices:
        for entry in device.consumes_counters:
            if not entry.synthetic:
                _check_entry(device, entry, totals.get(entry.counter_set))


def _check_entry(device: Device, entry: CounterConsumption, declared: Mapping[str, int] | None) -> None:
    if declared is None:
        raise InvalidPoolError(f"device {device.name} draws on unknown counter set {entry.counter_set}")
    for counter, _ in entry.counters:
        if counter not in declared:
            raise InvalidPoolError(
                f"device {device.name} draws on unknown counter {counter} of counter set {entry.counter_set}"
            )
