"""Who uses how much, as a tree by namespace, as a table and as CSV."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices_table import aligned, csv_text
from dra_extender.inspection.free_devices import free_parts
from dra_extender.inspection.lines import number_of
from dra_extender.inspection.usage import UsageReport, UsageRow
from dra_extender.model.api_json import printable

_HEADER: Final = (
    *("namespace", "class", "driver", "devices", "shares", "observed"),
    *("claims", "pods", "counters", "capacity"),
)
_UNKNOWN: Final = "class unknown"


def usage_tree(report: UsageReport) -> str:
    """The report as text; ends with a line break."""
    return "".join(f"{printable(line)}\n" for line in _lines(report)) or "no devices\n"


def usage_csv(report: UsageReport) -> str:
    """The rows as CSV."""
    return csv_text(_HEADER, map(_cells, report.rows))


def usage_wide(report: UsageReport) -> str:
    """The rows as a table for a terminal."""
    return aligned(tuple(name.upper() for name in _HEADER), map(_cells, report.rows))


def _lines(report: UsageReport) -> Iterator[str]:
    for namespace, rows in groupby(report.rows, key=lambda each: each.namespace):
        found = tuple(rows)
        yield f"{namespace}  {_taken(found)}"
        width = max(len(_what(each)) for each in found)
        for each in found:
            yield f"  {_what(each):<{width}}  {_details(each)}"
    width = max((len(each.driver) for each in report.drivers), default=0)
    for driver in report.drivers:
        parts = [f"{driver.in_use} of {driver.devices} devices in use"]
        parts += [f"{driver.held} held"] if driver.held else []
        parts += [] if driver.free is None else free_parts(driver.free)
        yield f"{driver.driver:<{width}}  {', '.join(parts)}"


def _what(row: UsageRow) -> str:
    return f"{row.device_class or _UNKNOWN} ({row.driver})"


def _taken(rows: Sequence[UsageRow]) -> str:
    devices, shares, observed = (
        sum(getattr(each, name) for each in rows) for name in ("devices", "shares", "observed")
    )
    parts = [number_of(devices, "device")] if devices else []
    parts += [number_of(shares, "share")] if shares else []
    parts += [f"{observed} observed"] if observed else []
    return ", ".join(parts) or "no devices"


def _details(row: UsageRow) -> str:
    parts = [_taken((row,)), f"{number_of(row.claims, 'claim')} of {number_of(row.pods, 'pod')}"]
    if row.counters:
        parts.append(f"counters {_amounts(row.counters)}")
    if row.capacity:
        parts.append(f"capacity {_amounts(row.capacity)}")
    return "; ".join(parts)


def _amounts(found: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}={quantity_text(amount)}" for name, amount in found)


def _cells(row: UsageRow) -> Sequence[str]:
    numbers = (row.devices, row.shares, row.observed, row.claims, row.pods)
    return (
        *(row.namespace, row.device_class, row.driver, *map(str, numbers)),
        *(_amounts(row.counters), _amounts(row.capacity)),
    )
