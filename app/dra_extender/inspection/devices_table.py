"""The devices of a cluster as a table, one row for each device and claim that has it: aligned for a terminal, or CSV.

Tenants choose many of the texts.  Control characters are escaped, and a spreadsheet does not take a cell for a formula.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices import ConditionState, DevicesReport, DeviceUse, PoolUse, ShareUse
from dra_extender.inspection.holders import Holder
from dra_extender.inspection.lines import age_text, clock_text
from dra_extender.model.api_json import printable
from dra_extender.model.metadata import time_text

_GAP: Final = "  "
_FORMULA: Final = re.compile(r"(^|[;,])(\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a cell, or what a spreadsheet of another locale takes for one, begins as a formula does."""
_NOWHERE: Final = Holder(claim="")


class HeldDeviceRow(NamedTuple):
    """The cells; `since` is when the claim was allocated, seconds since the epoch."""

    node: str
    driver: str
    pool: str
    device: str
    state: str
    claim: str
    consumers: str
    since: float | None
    counters: str
    groups: str
    capacity: str
    taints: str
    conditions: str
    notes: str


_COLUMNS: Final = ("node", "driver", "pool", "device", "state", "claim", "pods", "since")
_FURTHER: Final = ("counters", "groups", "capacity", "taints", "conditions", "notes")
_HEADER: Final = (*_COLUMNS, *_FURTHER)


def devices_wide(report: DevicesReport, now: float) -> str:
    """The table for a terminal; `now`: when the objects were read, seconds since the epoch."""
    header = tuple(name.upper() for name in _HEADER)
    return aligned(header, (_cells(row, _age(row.since, now)) for row in device_rows(report)))


def devices_csv(report: DevicesReport) -> str:
    """The table as CSV; times in RFC 3339."""
    return csv_text(_HEADER, (_cells(row, _time(row.since)) for row in device_rows(report)))


def device_rows(report: DevicesReport) -> Iterator[HeldDeviceRow]:
    """A row for each device and claim that has it; one for a device that no claim has."""
    for pool in report.pools:
        in_force = {each.name: each.groups for each in pool.counter_sets}
        for device in pool.devices:
            for holder in device.holders or (_NOWHERE,):
                yield _row(
                    pool, device, holder, in_force, device.availability if holder is _NOWHERE else _state(holder)
                )
        for device in pool.gone:
            for holder in device.holders:
                yield _row(pool, device, holder, in_force, "not published")


def _row(
    pool: PoolUse, device: DeviceUse, holder: Holder, in_force: Mapping[str, Sequence[str] | None], state: str
) -> HeldDeviceRow:
    return HeldDeviceRow(
        node=pool.node,
        driver=pool.driver,
        pool=pool.pool,
        device=device.name,
        state=state,
        claim=holder.claim,
        consumers=", ".join(holder.consumers),
        since=holder.since,
        counters=" ".join(_draws(device)),
        groups=" ".join(_groups(device, in_force)),
        capacity=" ".join(_capacity(device, holder)),
        taints=", ".join(device.taints),
        conditions=", ".join(_conditions(device, holder)),
        notes="; ".join(_notes(pool, device)),
    )


def _state(holder: Holder) -> str:
    if holder.admin:
        return "observed"
    if holder.orphaned:
        return "claim deleted"
    if holder.until is not None:
        return f"held until {clock_text(holder.until)}"
    return "being allocated" if holder.pending else "allocated"


def _draws(device: DeviceUse) -> Iterator[str]:
    for counter_set, counters in device.draws:
        yield " ".join([counter_set, *(f"{name}={quantity_text(amount)}" for name, amount in counters)])


def _groups(device: DeviceUse, in_force: Mapping[str, Sequence[str] | None]) -> Iterator[str]:
    """The groups of the device by counter set, and those in force there where they are others."""
    declared = dict(device.groups)
    for name in device.counter_sets:
        own, others = declared.get(name, ()), in_force.get(name)
        if own or others is not None:
            beside = "" if others is None or set(others) == set(own) else f" in force [{', '.join(others)}]"
            yield f"{name} [{', '.join(own)}]{beside}"


def _capacity(device: DeviceUse, holder: Holder) -> Iterator[str]:
    """What the claim takes of how much, or what all claims take where no claim has the row."""
    totals = {each.name: each for each in device.capacity}
    shares: list[ShareUse] = [each for each in device.shares if each.claim == holder.claim]
    taken = [amount for each in shares for amount in each.capacity]
    if not shares:
        taken = [(each.name, each.taken) for each in device.capacity]
    for name, amount in taken:
        total = f"/{quantity_text(totals[name].total)}" if name in totals else ""
        yield f"{name}={quantity_text(amount)}{total}"


def _conditions(device: DeviceUse, holder: Holder) -> Iterator[str]:
    """The binding conditions of the device, those that its claim still waits for marked."""
    waiting = [each for each in device.conditions if each.claim == holder.claim]
    yield from map(condition_text, waiting)
    named = {name for each in waiting for name in each.conditions}
    yield from (each for each in device.binding_conditions if each not in named)


def condition_text(found: ConditionState) -> str:
    """E.g. `FabricAttached pending`, `CableFailed failed: no carrier`."""
    return f"{', '.join(found.conditions)} {found.state}{found.message and f': {found.message}'}"


def _notes(pool: PoolUse, device: DeviceUse) -> Iterator[str]:
    if device.availability and (device.holders or device.unusable_because not in ("", pool.problem)):
        yield device.availability_text
    yield from (f"bound to node {each}" for each in device.bound_to)
    if device.drift:
        yield f"drift {', '.join(device.drift)}"
    if pool.problem:
        yield pool.problem


def _cells(row: HeldDeviceRow, since: str) -> Sequence[str]:
    return (*row[:7], since, *row[8:])


def _age(since: float | None, now: float) -> str:
    return "" if since is None else age_text(max(0.0, now - since))


def _time(since: float | None) -> str:
    return "" if since is None else time_text(since)


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows below their header in columns as wide as their widest cells; an empty cell is a minus sign."""
    cells = [[printable(text) or "-" for text in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join(
        _GAP.join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells
    )


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows below their header as RFC 4180 has them, every cell in quotes; an apostrophe is before what looks like a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    # Most cells are equal to one above them.
    safe: dict[str, str] = {}
    for row in (header, *rows):
        for text in row:
            if text not in safe:
                safe[text] = _FORMULA.sub(r"\1'\2", printable(text))
        writer.writerow([safe[text] for text in row])
    return buffer.getvalue()
