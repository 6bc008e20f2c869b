"""Slices of one pool that contradict each other: an API server stores each of them, and no scheduler offers their devices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from dra_extender.allocator.pools.pools import (
    CounterTotals,
    InvalidPoolError,
    check_consumption,
    check_device_names,
    counter_totals,
    latest_generation,
)
from dra_extender.cel.lint.findings import LintFinding, error, warning
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.lint.codes import ManifestCode
from dra_extender.lint.read import PlacedFinding, placed
from dra_extender.manifests.documents import Position
from dra_extender.model.api_json import listed
from dra_extender.model.device import CounterConsumption, PoolId
from dra_extender.model.resource_slice import ResourceSlice

_SLIP: Final = 0.8
"""How much a group must resemble another group to be taken for a slip."""


class PlacedSlice(NamedTuple):
    """A slice, and where it is."""

    file: str
    position: Position
    slice_: ResourceSlice


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
            if len(pool) >= max(published.slice_.slice_count for published in pool):
                yield from _placed_findings(pool)
            else:
                remaining.extend(pool)
    for pool in _pools(remaining):
        yield from _placed_findings(pool)


def _pools(slices: Iterable[PlacedSlice]) -> list[list[PlacedSlice]]:
    pools: dict[PoolId, list[PlacedSlice]] = {}
    for published in {published.slice_.name: published for published in slices}.values():
        pools.setdefault(published.slice_.pool_id, []).append(published)
    groups = []
    for pool in pools.values():
        newest = {published.name for published in latest_generation([published.slice_ for published in pool])}
        groups.append([published for published in pool if published.slice_.name in newest])
    return groups


def _placed_findings(slices: Sequence[PlacedSlice]) -> Iterator[PlacedFinding]:
    places = {published.slice_.name: published for published in slices}
    for name, finding in _findings_of_generation([published.slice_ for published in slices]):
        yield placed(places[name].file, places[name].position, f"ResourceSlice {name}", finding)


def _findings_of_generation(slices: Sequence[ResourceSlice]) -> Iterator[tuple[str, LintFinding]]:
    """Yield (slice, finding) of the slices of one generation."""
    first = slices[0]
    label = f"pool {first.driver}/{first.pool}"
    counts = {published.slice_count for published in slices}
    if len(counts) > 1:
        text = f"{label}: its slices declare different numbers of slices: {', '.join(map(str, sorted(counts)))}"
        yield first.name, error(ManifestCode.POOL, 0, text)
        return
    if len(slices) != first.slice_count:
        text = (
            f"{label} has {len(slices)} of {first.slice_count} slices here; it offers no devices until it is complete"
        )
        yield first.name, warning(ManifestCode.POOL, 0, text)
    if len(slices) < first.slice_count:
        return
    try:
        check_device_names(slices)
        totals = counter_totals(slices)
        check_consumption((device for published in slices for device in published.devices), totals)
    except InvalidPoolError as problem:
        yield first.name, error(ManifestCode.POOL, 0, f"{label}: {problem}; no device of the pool is offered")
        return
    for published in slices:
        for text in _excessive_devices(published, totals):
            yield published.name, warning(ManifestCode.NEVER_FITS, 0, text)
    yield from _group_findings(slices, totals)


class _Member(NamedTuple):
    """A device of a slice, and what it draws from one counter set."""

    slice_: str
    device: str
    entry: CounterConsumption


def _group_findings(slices: Sequence[ResourceSlice], totals: CounterTotals) -> Iterator[tuple[str, LintFinding]]:
    """Yield what keeps devices of one counter set apart for ever that have or lack compatibility groups (KEP-5963)."""
    members: dict[str, list[_Member]] = {}
    for published in slices:
        for device in published.devices:
            for entry in device.consumes_counters:
                members.setdefault(entry.counter_set, []).append(_Member(published.name, device.name, entry))
    for counter_set, devices in members.items():
        grouped = [member for member in devices if member.entry.compatibility_groups]
        lacking = [member for member in devices if not member.entry.compatibility_groups]
        if grouped and lacking:
            without, with_groups = (listed([member.device for member in members]) for members in (lacking, grouped))
            text = (
                f"counter set {counter_set} has devices with compatibility groups ({with_groups}) and without ({without}): "
                "a device without groups is never beside a device with groups"
            )
            yield lacking[0].slice_, warning(ManifestCode.GROUPS, 0, text)
        yield from _unshared_groups(counter_set, grouped, totals.get(counter_set, {}))


def _unshared_groups(
    counter_set: str, grouped: Sequence[_Member], counters: Mapping[str, int]
) -> Iterator[tuple[str, LintFinding]]:
    """Yield groups that no other device has, beside groups that several have.

    Such a group resembles a shared one, or keeps away devices for which there are counters.
    """
    counts = Counter(group for member in grouped for group in member.entry.compatibility_groups)
    for member in grouped:
        own = member.entry.compatibility_groups
        shared = [group for group in counts if counts[group] > 1 and group not in own]
        for group in own:
            near = get_close_matches(group, shared, n=1, cutoff=_SLIP) if counts[group] == 1 else []
            if near:
                text = (
                    f"compatibility group {group} of {member.device} on counter set {counter_set} is of no other device"
                )
                yield member.slice_, warning(ManifestCode.GROUPS, 0, text, near[0])
        if (
            shared
            and all(counts[group] == 1 for group in own)
            and any(
                other_member is not member and _fit_together(member.entry, other_member.entry, counters)
                for other_member in grouped
            )
        ):
            text = (
                f"no device on counter set {counter_set} has a compatibility group of {member.device} ({', '.join(own)}): "
                "none is ever beside it, although there are counters for two"
            )
            yield member.slice_, warning(ManifestCode.GROUPS, 0, text)


def _fit_together(first: CounterConsumption, second: CounterConsumption, counters: Mapping[str, int]) -> bool:
    needed = Counter(dict(first.counters)) + Counter(dict(second.counters))
    return all(amount <= counters.get(counter, 0) for counter, amount in needed.items())


def _excessive_devices(published: ResourceSlice, totals: CounterTotals) -> Iterator[str]:
    """Yield devices that need more of a counter than there is of it."""
    for device in published.devices:
        for entry in device.consumes_counters:
            declared: Mapping[str, int] = totals.get(entry.counter_set, {})
            for counter, amount in entry.counters:
                available = declared.get(counter)
                if available is not None and amount > available:
                    yield (
                        f"device {device.name} needs {format_quantity(amount)} of counter {counter} of {entry.counter_set}, "
                        f"which has {format_quantity(available)}: it is never allocated"
                    )
