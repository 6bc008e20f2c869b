"""The devices of a cluster as a tree of lines: node, pool, counter set with a bar for each counter, device, holders."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices import (
    NO_NODE,
    CapacityUse,
    CounterSetUse,
    CounterUse,
    DevicesReport,
    DeviceUse,
    PoolUse,
)
from dra_extender.inspection.holders import holder_text, printable

_BAR: Final = 10
_SHARED: Final = "several nodes"


def devices_tree(report: DevicesReport, now: float) -> str:
    """The report as text; `now` is when the objects were read, seconds since the epoch.  Ends with a line break."""
    return "".join(f"{printable(line)}\n" for line in _lines(report, now)) or "no devices\n"


def _lines(report: DevicesReport, now: float) -> Iterator[str]:
    for node, pools in groupby(report.pools, key=lambda each: each.node):
        yield _SHARED if node == NO_NODE else node
        for pool in pools:
            yield from _pool(pool, now)


def _pool(pool: PoolUse, now: float) -> Iterator[str]:
    incomplete = "" if pool.complete else ", incomplete"
    yield f"  {pool.driver}/{pool.pool}  generation {pool.generation}{incomplete}"
    for each in pool.counter_sets:
        yield f"    {_counter_set(each)}"
    width = max((len(each.name) for each in (*pool.devices, *pool.gone)), default=0)
    for device in pool.devices:
        yield f"    {device.name:<{width}}  {_device(device, now)}"
    for device in pool.gone:
        yield f"    {device.name:<{width}}  {_device(device, now)}, not published any more"


def _counter_set(found: CounterSetUse) -> str:
    counters = "  ".join(map(_counter, found.counters))
    groups = "" if found.groups is None else f"  groups [{', '.join(found.groups)}]"
    return f"{found.name}  {counters}{groups}".rstrip()


def _counter(counter: CounterUse) -> str:
    filled = _BAR * counter.drawn // counter.total if counter.total > 0 else 0
    bar = "#" * min(filled, _BAR)
    return f"{counter.name} [{bar:<{_BAR}}] {quantity_text(counter.drawn)}/{quantity_text(counter.total)}"


def _device(device: DeviceUse, now: float) -> str:
    parts = ["free" if not device.holders else ", ".join(holder_text(each, now) for each in device.holders)]
    parts += map(_capacity, device.capacity)
    parts += (f"taint {each}" for each in device.taints)
    if device.drift:
        parts.append(f"allocated with other groups or amounts than the slice has now: {', '.join(device.drift)}")
    return "; ".join(parts)


def _capacity(capacity: CapacityUse) -> str:
    return f"{capacity.name} {quantity_text(capacity.taken)}/{quantity_text(capacity.total)}"
