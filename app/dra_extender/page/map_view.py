"""The map: how many devices each driver has in which state, and a tile for each device, by node and pool."""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from dra_extender.allocator.availability import Availability
from dra_extender.inspection.devices import DevicesReport, DeviceUse, PoolUse
from dra_extender.inspection.holders import holder_text
from dra_extender.page.query import ListPart, part_of

ROWS: Final = 100
"""Pools on one page."""
MOST_TILES: Final = 512
"""Tiles in one row; the view of the node has more."""


class TileState(Enum):
    """How a device stands, for one tile: the letter in it, and the word for it.  The first that is true counts, from below."""

    USABLE = ("U", Availability.USABLE.value)
    COUNTERS = ("C", Availability.COUNTERS.value)
    GROUPS = ("B", Availability.GROUPS.value)
    UNUSABLE = ("X", Availability.UNUSABLE.value)
    ALLOCATED = ("A", "allocated")
    SHARED = ("S", "shared by claims")
    HELD = ("H", "held for a pod")
    PENDING = ("P", "being allocated")
    ORPHANED = ("O", "claim deleted")
    GONE = ("G", "allocated, not published")

    @property
    def letter(self) -> str:
        """What the tile shows beside its colour."""
        return str(self.value[0])

    @property
    def text(self) -> str:
        """What the legend and screen readers say."""
        return str(self.value[1])


class Tile(NamedTuple):
    """A device."""

    device: str
    state: TileState
    text: str


class DriverTotal(NamedTuple):
    """The devices of a driver, by state."""

    driver: str
    devices: int
    by_state: Mapping[TileState, int]


class MapRow(NamedTuple):
    """A pool; `node` is empty where several nodes reach it; `more` devices have no tile."""

    node: str
    pool: str
    tiles: tuple[Tile, ...]
    more: int


class DeviceMap(NamedTuple):
    """One page of the map.  The totals are those of all nodes and drivers."""

    totals: tuple[DriverTotal, ...]
    drivers: tuple[str, ...]
    driver: str
    nodes: str
    rows: tuple[MapRow, ...]
    part: ListPart


def device_totals(report: DevicesReport) -> tuple[DriverTotal, ...]:
    """All devices of each driver."""
    counts: dict[str, Counter[TileState]] = {}
    for pool in report.pools:
        count = counts.setdefault(pool.driver, Counter())
        count.update(map(state_of, pool.devices))
        count[TileState.GONE] += len(pool.gone)
    return tuple(DriverTotal(driver, count.total(), dict(count)) for driver, count in sorted(counts.items()))


def device_map(
    report: DevicesReport, totals: tuple[DriverTotal, ...], driver: str = "", nodes: str = "", page: int = 1
) -> DeviceMap:
    """One page of the pools of a driver (all if empty) on nodes with a text in their names.

    Raises:
        QueryError: there is no such page.
    """
    pools = [each for each in report.pools if driver in ("", each.driver) and nodes in each.node]
    part = part_of(len(pools), ROWS, page)
    return DeviceMap(
        totals=totals,
        drivers=tuple(each.driver for each in totals),
        driver=driver,
        nodes=nodes,
        rows=tuple(_row(each, report.origin.taken_at) for each in part.of(pools)),
        part=part,
    )


def state_of(device: DeviceUse) -> TileState:
    """How a published device stands."""
    holders = [each for each in device.holders if not each.admin]
    if not holders:
        return TileState[Availability(device.availability).name]
    if any(each.orphaned for each in holders):
        return TileState.ORPHANED
    if all(each.until is not None for each in holders):
        return TileState.HELD
    if any(each.pending for each in holders):
        return TileState.PENDING
    return TileState.SHARED if device.shared else TileState.ALLOCATED


def _row(pool: PoolUse, now: float) -> MapRow:
    devices = [*((each, state_of(each)) for each in pool.devices), *((each, TileState.GONE) for each in pool.gone)]
    tiles = tuple(_tile(each, state, now) for each, state in devices[:MOST_TILES])
    generation = f"generation {pool.generation}{'' if pool.complete else ', incomplete'}"
    return MapRow(pool.node, f"{pool.driver}/{pool.pool}, {generation}", tiles, len(devices) - len(tiles))


def _tile(device: DeviceUse, state: TileState, now: float) -> Tile:
    said = _said(device, now, state)
    taints = f"; taint {', '.join(device.taints)}" if device.taints else ""
    return Tile(device.name, state, said + taints)


def _said(device: DeviceUse, now: float, state: TileState) -> str:
    names = ", ".join(holder_text(each, now) for each in device.holders)
    return ": ".join(filter(None, (device.availability_text or state.text, names)))
