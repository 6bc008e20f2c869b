"""Slices of one pool that contradict each other: an API server stores each of them, and no scheduler offers their devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dra_extender.allocator.pools.pools import (
    CounterTotals,
    InvalidPoolError,
    check_consumption,
    check_device_names,
    counter_totals,
    latest_generation,
)
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.manifests.documents import Position
from dra_extender.model.device import PoolId
from dra_extender.model.resource_slice import ResourceSlice


class PlacedSlice(NamedTuple):
    """A slice, and where it is."""

    file: str
    position: Position
    slice_: ResourceSlice


class PlacedFinding(NamedTuple):
    """A finding about an object as a whole, or about a field of a policy."""

    file: str
    position: Position
    object: str
    finding: LintFinding
    field: str = ""


def pool_findings(slices: Iterable[PlacedSlice]) -> Iterator[PlacedFinding]:
    """Yield what is wrong with the pools that these slices make; of two slices of one name in a file the later counts.

    A pool that is complete in one file is looked at alone, because a folder may hold several clusters; what remains is looked at
    together.
    """
    files: dict[str, list[PlacedSlice]] = {}
    for published in slices:
        files.setdefault(published.file, []).append(published)
    remaining: list[PlacedSlice] = []
    for slices_of_file in files.values():
        for pool in _pools(slices_of_file):
            if _is_whole(pool):
                yield from _placed(pool)
            else:
                remaining.extend(pool)
    for pool in _pools(remaining):
        yield from _placed(pool)


def _pools(slices: Iterable[PlacedSlice]) -> list[list[PlacedSlice]]:
    """Return the slices of each pool in its newest generation."""
    pools: dict[PoolId, list[PlacedSlice]] = {}
    for published in {published.slice_.name: published for published in slices}.values():
        pools.setdefault(published.slice_.pool_id, []).append(published)
    return [_newest(pool) for pool in pools.values()]


def _newest(slices: Sequence[PlacedSlice]) -> list[PlacedSlice]:
    names = {published.name for published in latest_generation([published.slice_ for published in slices])}
    return [published for published in slices if published.slice_.name in names]


def _is_whole(slices: Sequence[PlacedSlice]) -> bool:
    return len(slices) >= max(published.slice_.slice_count for published in slices)


def _placed(slices: Sequence[PlacedSlice]) -> Iterator[PlacedFinding]:
    places = {published.slice_.name: published for published in slices}
    for name, finding in _of_pool([published.slice_ for published in slices]):
        yield PlacedFinding(places[name].file, places[name].position, f"ResourceSlice {name}", finding)


def _of_pool(slices: Sequence[ResourceSlice]) -> Iterator[tuple[str, LintFinding]]:
    """Yield (slice, finding) of the slices of one generation."""
    first = slices[0]
    label = f"pool {first.driver}/{first.pool}"
    counts = {published.slice_count for published in slices}
    if len(counts) > 1:
        text = f"{label}: its slices declare different numbers of slices: {', '.join(map(str, sorted(counts)))}"
        yield first.name, error(LintCode.POOL, 0, text)
        return
    if len(slices) != first.slice_count:
        text = (
            f"{label} has {len(slices)} of {first.slice_count} slices here; it offers no devices until it is complete"
        )
        yield first.name, warning(LintCode.POOL, 0, text)
    if len(slices) < first.slice_count:
        return
    try:
        check_device_names(slices)
        totals = counter_totals(slices)
        check_consumption((device for published in slices for device in published.devices), totals)
    except InvalidPoolError as problem:
        yield first.name, error(LintCode.POOL, 0, f"{label}: {problem}; no device of the pool is offered")
        return
    for published in slices:
        for text in _never_fitting(published, totals):
            yield published.name, warning(LintCode.NEVER_FITS, 0, text)


def _never_fitting(published: ResourceSlice, totals: CounterTotals) -> Iterator[str]:
    """Yield devices that need more of a counter than there is of it."""
    for device in published.devices:
        for entry in device.consumes_counters:
            declared: Mapping[str, int] = totals.get(entry.counter_set, {})
            for counter, wanted in entry.counters:
                there = declared.get(counter)
                if there is not None and wanted > there:
                    yield (
                        f"device {device.name} needs {format_quantity(wanted)} of counter {counter} of {entry.counter_set}, "
                        f"which has {format_quantity(there)}: it is never allocated"
                    )
