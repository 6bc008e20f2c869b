"""What makes a pool usable: its slices of the latest generation are complete, and do not contradict each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dra_extender.model.device import CounterConsumption, Device
from dra_extender.model.resource_slice import ResourceSlice

CounterTotals = Mapping[str, Mapping[str, int]]
"""Counter set -> counter -> declared total in nano-units."""


class InvalidPoolError(Exception):
    """The slices of a pool contradict each other; the message says how."""


@dataclass(frozen=True, slots=True)
class KnownSlices:
    """The slices of one pool in its current generation, as seen from one node.

    `relevant` are usable from the node (sorted by name).  `elsewhere` are the others, known only when the relevant ones
    alone are not the whole pool.  An incomplete pool offers nothing; `published` of `expected` slices were found, and `ignored`
    are the names of those that do not count.
    """

    relevant: tuple[ResourceSlice, ...]
    elsewhere: tuple[ResourceSlice, ...] = ()
    complete: bool = True
    published: int = 0
    expected: int = 0
    ignored: tuple[str, ...] = ()


def latest_generation(relevant: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Of the relevant slices of one pool, those with the highest generation, in the given order."""
    newest = max(each.generation for each in relevant)
    return [each for each in relevant if each.generation == newest]


def complete(
    relevant: Sequence[ResourceSlice],
    whole_pool: Callable[[], Iterable[ResourceSlice]],
    counts: Callable[[ResourceSlice], bool],
) -> KnownSlices | None:
    """Return the pool from its relevant slices of one generation and, if needed, from all its slices on any node.

    The first relevant slice declares the number of slices, which must match exactly: the relevant slices alone, or else all slices
    of that generation for which `counts` holds.  None if the relevant slices alone are incomplete and a newer generation exists
    elsewhere: the pool is then ignored.
    """
    generation, expected = relevant[0].generation, relevant[0].slice_count
    in_order = tuple(sorted(relevant, key=lambda each: each.name))
    if len(relevant) == expected:
        return KnownSlices(relevant=in_order, published=expected, expected=expected)
    pool = tuple(whole_pool())
    if any(each.generation > generation for each in pool):
        return None
    current = [each for each in pool if each.generation == generation]
    same = [each for each in current if counts(each)]
    names = {each.name for each in relevant}
    return KnownSlices(
        relevant=in_order,
        elsewhere=tuple(each for each in same if each.name not in names),
        complete=len(same) == expected,
        published=len(same),
        expected=expected,
        ignored=tuple(each.name for each in current if not counts(each)),
    )


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
    """Return the counter sets that these slices declare.

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
