"""The devices of a cluster as a tree of lines: node, pool, counter set with a bar for each counter, device, holders."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.devices import NO_NODE, CounterSetUse, DevicesReport, DeviceUse, PoolUse
from dra_extender.inspection.devices_table import condition_text
from dra_extender.inspection.holders import holder_text
from dra_extender.inspection.snapshot_differences import difference_text
from dra_extender.model.api_json import printable
from dra_extender.model.device import PHYSICAL_DEVICE

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
    problem = f", {pool.problem}" if pool.problem else ""
    yield f"  {pool.driver}/{pool.pool}  generation {pool.generation}{problem}"
    width = max((len(each.name) for each in (*pool.devices, *pool.gone)), default=0)
    on_sets: dict[str, list[DeviceUse]] = {each.name: [] for each in pool.counter_sets}
    alone: list[DeviceUse] = []
    for device in pool.devices:
        on_sets.get(device.counter_sets[0] if device.counter_sets else "", alone).append(device)
    for counter_set in pool.counter_sets:
        yield f"    {_counter_set(counter_set)}"
        for device in on_sets[counter_set.name]:
            yield from _device(device, now, "      ", width)
    for device in alone:
        yield from _device(device, now, "    ", width)
    for device in pool.gone:
        *lines, last = _device(device, now, "    ", width)
        yield from lines
        yield f"{last}, not published any more"


def _counter_set(found: CounterSetUse) -> str:
    name = found.name
    if name.startswith(PHYSICAL_DEVICE):
        name = f"physical device {name.removeprefix(PHYSICAL_DEVICE)}"
    counters = "  ".join(f"{each.name} {_bar(each.drawn, each.total)}" for each in found.counters)
    groups = "" if found.groups is None else f"  groups [{', '.join(found.groups)}]"
    return f"{name}  {counters}{groups}".rstrip()


def _bar(taken: int, total: int) -> str:
    filled = _BAR * taken // total if total > 0 else 0
    bar = "#" * max(0, min(filled, _BAR))
    return f"[{bar:<{_BAR}}] {quantity_text(taken)}/{quantity_text(total)}"


def _device(device: DeviceUse, now: float, indent: str, width: int) -> Iterator[str]:
    """The device with its holders; those that have shares of it stand below, each with what it takes."""
    amounts = {each.claim: each.capacity for each in device.shares}
    parts = [f"{each.name} {_bar(each.taken, each.total)}" for each in device.capacity]
    whole = [each for each in device.holders if each.claim not in amounts]
    if whole:
        parts.insert(0, ", ".join(holder_text(each, now, with_claim=True) for each in whole))
    if device.availability:
        parts.insert(0, device.availability_text)
    parts += (f"{condition_text(each)} for {each.claim}" for each in device.conditions)
    if len(device.counter_sets) > 1:
        parts.append(f"draws on {', '.join(device.counter_sets)}")
    parts += (f"taint {each}" for each in device.taints)
    parts += (f"bound to node {each}" for each in device.bound_to)
    if device.drift:
        parts.append(
            f"allocated otherwise than the slice has it now: {'; '.join(map(difference_text, device.differences))}"
        )
    yield f"{indent}{device.name:<{width}}  {'; '.join(parts)}".rstrip()
    for holder in device.holders:
        if holder.claim in amounts:
            taken = " ".join(f"{name} {quantity_text(amount)}" for name, amount in amounts[holder.claim])
            yield f"{indent}  {holder_text(holder, now, with_claim=True)}{taken and f'  {taken}'}"
