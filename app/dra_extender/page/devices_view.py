"""The map of all devices, and the devices of one node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from dra_extender.allocator.availability import Availability
from dra_extender.inspection.devices import DevicesReport, DeviceUse, PoolUse
from dra_extender.inspection.holders import Holder, holder_text
from dra_extender.page.rendering import ListPart, part_of

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
        return str(self.value[0])

    @property
    def text(self) -> str:
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


class PoolTiles(NamedTuple):
    """A pool with the tiles of its devices; `more` devices have no tile."""

    pool: PoolUse
    tiles: tuple[Tile, ...]
    more: int


def device_totals(report: DevicesReport) -> tuple[DriverTotal, ...]:
    counts: dict[str, Counter[TileState]] = {}
    for pool in report.pools:
        count = counts.setdefault(pool.driver, Counter())
        count.update(map(state_of, pool.devices))
        count[TileState.GONE] += len(pool.gone)
    return tuple(DriverTotal(driver, count.total(), dict(count)) for driver, count in sorted(counts.items()))


def pool_tiles(
    report: DevicesReport, driver: str = "", nodes: str = "", page: int = 1
) -> tuple[Sequence[PoolTiles], ListPart]:
    """Return one page of the pools of a driver (all if empty) on nodes with a text in their names, and which part of them it is.

    Raises:
        QueryError: there is no such page.
    """
    pools = [pool for pool in report.pools if driver in ("", pool.driver) and nodes in pool.node]
    part = part_of(len(pools), ROWS, page)
    return [_tiles(pool, report.origin.taken_at) for pool in part.entries_of(pools)], part


def state_of(device: DeviceUse) -> TileState:
    holders = [holder for holder in device.holders if not holder.admin]
    if not holders:
        return TileState[Availability(device.availability).name]
    if any(holder.orphaned for holder in holders):
        return TileState.ORPHANED
    if all(holder.until is not None for holder in holders):
        return TileState.HELD
    if any(holder.pending for holder in holders):
        return TileState.PENDING
    return TileState.SHARED if device.shared else TileState.ALLOCATED


def _tiles(pool: PoolUse, now: float) -> PoolTiles:
    devices = with_states(pool)
    tiles = tuple(Tile(device.name, state, _tile_text(device, state, now)) for device, state in devices[:MOST_TILES])
    return PoolTiles(pool, tiles, len(devices) - len(tiles))


def with_states(pool: PoolUse) -> Sequence[tuple[DeviceUse, TileState]]:
    """Return the devices of a pool, those that are not published any more last, and how each stands."""
    return [
        *((device, state_of(device)) for device in pool.devices),
        *((device, TileState.GONE) for device in pool.gone),
    ]


def _tile_text(device: DeviceUse, state: TileState, now: float) -> str:
    names = ", ".join(holder_text(holder, now) for holder in device.holders)
    taints = f"; taint {', '.join(device.taints)}" if device.taints else ""
    return ": ".join(filter(None, (device.availability_text or state.text, names))) + taints


MOST_DEVICES: Final = 1000
"""Devices of a pool, and members of a counter set, on one page; the command prints all."""


class PoolSection(NamedTuple):
    """A pool that the node can use, with its devices, how each stands, and the holders of each by its name.

    `more` devices are not shown.
    """

    pool: PoolUse
    devices: Sequence[tuple[DeviceUse, TileState]]
    more: int
    holders: Mapping[str, tuple[Holder, ...]]


def pool_sections(report: DevicesReport) -> list[PoolSection]:
    """Return the pools of a report, those that several nodes reach first."""
    sections = []
    for pool in report.pools:
        devices = with_states(pool)
        holders = {device.name: device.holders for device, _ in devices}
        sections.append(PoolSection(pool, devices[:MOST_DEVICES], max(0, len(devices) - MOST_DEVICES), holders))
    return sections
