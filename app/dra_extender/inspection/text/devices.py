"""The devices of a cluster and who uses how much: trees of lines, tables and CSV."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from dra_extender.allocator.availability import Availability
from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices import (
    NO_NODE,
    ConditionState,
    CounterSetUse,
    DevicesReport,
    DeviceUse,
    PoolUse,
    ShareUse,
    SnapshotDifference,
)
from dra_extender.inspection.free_devices import FreeDevices
from dra_extender.inspection.holders import Holder, holder_text
from dra_extender.inspection.lines import Part, age_text, as_text, clock_text, csv_text, table_text
from dra_extender.inspection.usage import UsageReport, UsageRow
from dra_extender.model.api_json import number_of
from dra_extender.model.device import PHYSICAL_DEVICE
from dra_extender.model.metadata import time_text

_NOWHERE: Final = Holder(claim="")


_HEADER: Final = (
    *("node", "driver", "pool", "device", "state", "claim", "pods", "since"),
    *("counters", "groups", "capacity", "taints", "conditions", "notes"),
)


def devices_wide(report: DevicesReport) -> str:
    """Return the table for a terminal; times as ages when the objects were read."""
    return table_text(_HEADER, _rows(report, lambda since: age_text(max(0.0, report.origin.taken_at - since))))


def devices_csv(report: DevicesReport) -> str:
    """Return the table as CSV; times in RFC 3339."""
    return csv_text(_HEADER, _rows(report, time_text))


def _rows(report: DevicesReport, since_text: Callable[[float], str]) -> Iterator[Sequence[str]]:
    """Yield the cells for each device and claim that has it; one row for a device that no claim has.

    `since_text` writes when the claim was allocated, in seconds since the epoch.
    """
    for pool in report.pools:
        in_force = {counter_set.name: counter_set.groups for counter_set in pool.counter_sets}
        for device in pool.devices:
            for holder in device.holders or (_NOWHERE,):
                state = device.availability if holder is _NOWHERE else _state(holder)
                yield _cells(pool, device, holder, state, in_force, since_text)
        for device in pool.gone:
            for holder in device.holders:
                yield _cells(pool, device, holder, "not published", in_force, since_text)


def _cells(
    pool: PoolUse,
    device: DeviceUse,
    holder: Holder,
    state: str,
    in_force: Mapping[str, Sequence[str] | None],
    since_text: Callable[[float], str],
) -> Sequence[str]:
    draws = (" ".join([name, *_named(counters)]) for name, counters in device.draws)
    return (
        *(pool.node, pool.driver, pool.pool, device.name, state, holder.claim, ", ".join(holder.consumers)),
        "" if holder.since is None else since_text(holder.since),
        " ".join(draws),
        " ".join(_groups(device, in_force)),
        " ".join(_capacity(device, holder)),
        ", ".join(device.taints),
        ", ".join(_conditions(device, holder)),
        "; ".join(_notes(pool, device)),
    )


def _state(holder: Holder) -> str:
    if holder.admin:
        return "observed"
    if holder.orphaned:
        return "claim deleted"
    if holder.until is not None:
        return f"held until {clock_text(holder.until)}"
    return "being allocated" if holder.pending else "allocated"


def _named(amounts: Iterable[tuple[str, int]]) -> Iterator[str]:
    """E.g. `memory=10Gi`."""
    return (f"{name}={quantity_text(amount)}" for name, amount in amounts)


def _groups(device: DeviceUse, in_force: Mapping[str, Sequence[str] | None]) -> Iterator[str]:
    """Yield the groups of the device by counter set, and those in force there where they are others."""
    declared = dict(device.groups)
    for name in device.counter_sets:
        own, in_force_groups = declared.get(name, ()), in_force.get(name)
        if own or in_force_groups is not None:
            suffix = (
                ""
                if in_force_groups is None or set(in_force_groups) == set(own)
                else f" in force [{', '.join(in_force_groups)}]"
            )
            yield f"{name} [{', '.join(own)}]{suffix}"


def _capacity(device: DeviceUse, holder: Holder) -> Iterator[str]:
    """Yield what the claim takes of how much, or what all claims take where no claim has the row."""
    totals = {capacity.name: capacity for capacity in device.capacity}
    shares: list[ShareUse] = [share for share in device.shares if share.claim == holder.claim]
    amounts = [amount for share in shares for amount in share.capacity]
    if not shares:
        amounts = [(capacity.name, capacity.taken) for capacity in device.capacity]
    for name, amount in amounts:
        total = f"/{quantity_text(totals[name].total)}" if name in totals else ""
        yield f"{name}={quantity_text(amount)}{total}"


def _conditions(device: DeviceUse, holder: Holder) -> Iterator[str]:
    """Yield the binding conditions of the device, those that its claim still waits for marked."""
    waiting = [condition for condition in device.conditions if condition.claim == holder.claim]
    yield from map(condition_text, waiting)
    named = {name for condition in waiting for name in condition.conditions}
    yield from (condition for condition in device.binding_conditions if condition not in named)


def condition_text(condition: ConditionState) -> str:
    """Return for example `FabricAttached pending`, `CableFailed failed: no carrier`."""
    return f"{', '.join(condition.conditions)} {condition.state}{condition.message and f': {condition.message}'}"


def _notes(pool: PoolUse, device: DeviceUse) -> Iterator[str]:
    if device.availability and (device.holders or device.unusable_because not in ("", pool.problem)):
        yield device.availability_text
    yield from (f"bound to node {node}" for node in device.bound_to)
    if device.drift:
        yield f"drift {', '.join(device.drift)}"
    if pool.problem:
        yield pool.problem


_BAR: Final = 10
_SHARED: Final = "several nodes"


@as_text
def devices_tree(report: DevicesReport) -> Iterator[Part]:
    now = report.origin.taken_at
    if not report.pools:
        yield "no devices"
    for node, pools in groupby(report.pools, key=lambda pool: pool.node):
        yield _SHARED if node == NO_NODE else node
        for pool in pools:
            problem = f", {pool.problem}" if pool.problem else ""
            yield f"  {pool.driver}/{pool.pool}  generation {pool.generation}{problem}"
            width = max((len(device.name) for device in (*pool.devices, *pool.gone)), default=0)
            on_sets: dict[str, list[DeviceUse]] = {counter_set.name: [] for counter_set in pool.counter_sets}
            alone: list[DeviceUse] = []
            for device in pool.devices:
                on_sets.get(device.counter_sets[0] if device.counter_sets else "", alone).append(device)
            for counter_set in pool.counter_sets:
                yield f"    {_counter_set(counter_set)}"
                for device in on_sets[counter_set.name]:
                    yield from _device_lines(device, now, "      ", width)
            for device in alone:
                yield from _device_lines(device, now, "    ", width)
            for device in pool.gone:
                *lines, last = _device_lines(device, now, "    ", width)
                yield from lines
                yield f"{last}, not published any more"


def _counter_set(counter_set: CounterSetUse) -> str:
    name = counter_set.name
    if name.startswith(PHYSICAL_DEVICE):
        name = f"physical device {name.removeprefix(PHYSICAL_DEVICE)}"
    counters = "  ".join(f"{counter.name} {_bar(counter.drawn, counter.total)}" for counter in counter_set.counters)
    groups = "" if counter_set.groups is None else f"  groups [{', '.join(counter_set.groups)}]"
    return f"{name}  {counters}{groups}".rstrip()


def _bar(used: int, total: int) -> str:
    filled = _BAR * used // total if total > 0 else 0
    bar = "#" * max(0, min(filled, _BAR))
    return f"[{bar:<{_BAR}}] {quantity_text(used)}/{quantity_text(total)}"


def _device_lines(device: DeviceUse, now: float, indent: str, width: int) -> Iterator[str]:
    """Yield the device with its holders; those that have shares of it stand below, each with what it takes."""
    amounts = {share.claim: share.capacity for share in device.shares}
    parts = [f"{capacity.name} {_bar(capacity.taken, capacity.total)}" for capacity in device.capacity]
    whole_holders = [holder for holder in device.holders if holder.claim not in amounts]
    if whole_holders:
        parts.insert(0, ", ".join(holder_text(holder, now, with_claim=True) for holder in whole_holders))
    if device.availability:
        parts.insert(0, device.availability_text)
    parts += (f"{condition_text(condition)} for {condition.claim}" for condition in device.conditions)
    if len(device.counter_sets) > 1:
        parts.append(f"draws on {', '.join(device.counter_sets)}")
    parts += (f"taint {taint}" for taint in device.taints)
    parts += (f"bound to node {node}" for node in device.bound_to)
    if device.drift:
        parts.append(
            f"allocated otherwise than the slice has it now: {'; '.join(map(difference_text, device.differences))}"
        )
    yield f"{indent}{device.name:<{width}}  {'; '.join(parts)}".rstrip()
    for holder in device.holders:
        if holder.claim in amounts:
            share_text = " ".join(f"{name} {quantity_text(amount)}" for name, amount in amounts[holder.claim])
            yield f"{indent}  {holder_text(holder, now, with_claim=True)}{share_text and f'  {share_text}'}"


def difference_text(difference: SnapshotDifference) -> str:
    """E.g. `gpu-0: sm 42 at allocation, 28 now; groups mig at allocation, vgpu now`."""
    changes = [
        (
            counter.counter,
            *("none" if amount is None else quantity_text(amount) for amount in (counter.frozen, counter.published)),
        )
        for counter in difference.counters
    ]
    if difference.groups_differ:
        groups = (difference.frozen_groups, difference.published_groups)
        changes.append(("groups", *(", ".join(names) or "none" for names in groups)))
    parts = [f"{name} {then} at allocation, {now} now" for name, then, now in changes]
    if not parts:
        parts.append(f"drawn on only {difference.drawn_on}")
    return f"{difference.counter_set}: {'; '.join(parts)}"


_USAGE_HEADER: Final = (
    *("namespace", "class", "driver", "devices", "shares", "observed"),
    *("claims", "pods", "counters", "capacity"),
)
_UNKNOWN: Final = "class unknown"


def usage_csv(report: UsageReport) -> str:
    return csv_text(_USAGE_HEADER, map(_usage_cells, report.rows))


def usage_wide(report: UsageReport) -> str:
    return table_text(_USAGE_HEADER, map(_usage_cells, report.rows))


@as_text
def usage_tree(report: UsageReport) -> Iterator[Part]:
    if not (report.rows or report.drivers):
        yield "no devices"
    for namespace, group in groupby(report.rows, key=lambda row: row.namespace):
        rows = tuple(group)
        yield f"{namespace}  {_amounts_text(rows)}"
        labels = [f"{row.device_class or _UNKNOWN} ({row.driver})" for row in rows]
        width = max(map(len, labels))
        for label, row in zip(labels, rows, strict=True):
            parts = [_amounts_text((row,)), f"{number_of(row.claims, 'claim')} of {number_of(row.pods, 'pod')}"]
            parts += [f"counters {' '.join(_named(row.counters))}"] if row.counters else []
            parts += [f"capacity {' '.join(_named(row.capacity))}"] if row.capacity else []
            yield f"  {label:<{width}}  {'; '.join(parts)}"
    width = max((len(driver.driver) for driver in report.drivers), default=0)
    for driver in report.drivers:
        parts = [f"{driver.in_use} of {driver.devices} devices in use"]
        parts += [f"{driver.held} held"] if driver.held else []
        parts += [] if driver.free is None else _free_parts(driver.free)
        yield f"{driver.driver:<{width}}  {', '.join(parts)}"


def _free_parts(free: FreeDevices) -> list[str]:
    """E.g. `8 usable`, `60 blocked by counters`; nothing for what there is none of."""
    numbers = (free.usable, free.blocked_by_counters, free.blocked_by_groups, free.unusable)
    return [f"{number} {word}" for number, word in zip(numbers, Availability, strict=True) if number]


def _amounts_text(rows: Sequence[UsageRow]) -> str:
    devices, shares, observed = (sum(getattr(row, name) for row in rows) for name in ("devices", "shares", "observed"))
    parts = [number_of(devices, "device")] if devices else []
    parts += [number_of(shares, "share")] if shares else []
    parts += [f"{observed} observed"] if observed else []
    return ", ".join(parts) or "no devices"


def _usage_cells(row: UsageRow) -> Sequence[str]:
    numbers = (row.devices, row.shares, row.observed, row.claims, row.pods)
    return (
        *(row.namespace, row.device_class, row.driver, *map(str, numbers)),
        *(" ".join(_named(row.counters)), " ".join(_named(row.capacity))),
    )
