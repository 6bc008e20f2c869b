"""The map of all devices, and the devices of one node."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from dra_extender.allocator.availability import Availability
from dra_extender.inspection.devices import CounterSetUse, DevicesReport, DeviceUse, PoolUse
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
    counts: dict[str, Counter[TileState]] = {}
    for pool in report.pools:
        count = counts.setdefault(pool.driver, Counter())
        count.update(map(state_of, pool.devices))
        count[TileState.GONE] += len(pool.gone)
    return tuple(DriverTotal(driver, count.total(), dict(count)) for driver, count in sorted(counts.items()))


def device_map(
    report: DevicesReport, totals: tuple[DriverTotal, ...], driver: str = "", nodes: str = "", page: int = 1
) -> DeviceMap:
    """Return one page of the pools of a driver (all if empty) on nodes with a text in their names.

    Raises:
        QueryError: there is no such page.
    """
    pools = [pool for pool in report.pools if driver in ("", pool.driver) and nodes in pool.node]
    part = part_of(len(pools), ROWS, page)
    return DeviceMap(
        totals=totals,
        drivers=tuple(total.driver for total in totals),
        driver=driver,
        nodes=nodes,
        rows=tuple(_map_row(each, report.origin.taken_at) for each in part.entries_of(pools)),
        part=part,
    )


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


def _map_row(pool: PoolUse, now: float) -> MapRow:
    devices = [
        *((device, state_of(device)) for device in pool.devices),
        *((each, TileState.GONE) for each in pool.gone),
    ]
    tiles = tuple(_tile(each, state, now) for each, state in devices[:MOST_TILES])
    generation = f"generation {pool.generation}{'' if pool.complete else ', incomplete'}"
    return MapRow(pool.node, f"{pool.driver}/{pool.pool}, {generation}", tiles, len(devices) - len(tiles))


def _tile(device: DeviceUse, state: TileState, now: float) -> Tile:
    said = _tile_text(device, now, state)
    taints = f"; taint {', '.join(device.taints)}" if device.taints else ""
    return Tile(device.name, state, said + taints)


def _tile_text(device: DeviceUse, now: float, state: TileState) -> str:
    names = ", ".join(holder_text(holder, now) for holder in device.holders)
    return ": ".join(filter(None, (device.availability_text or state.text, names)))


MOST_DEVICES: Final = 1000
"""Devices of a pool, and members of a counter set, on one page; the command prints all."""


class Member(NamedTuple):
    """A device that draws on a counter set, and who has it."""

    device: str
    holders: tuple[Holder, ...]


class CounterSetRow(NamedTuple):
    """A counter set, and the devices whose groups are in force on it."""

    use: CounterSetUse
    members: tuple[Member, ...]


class DeviceRow(NamedTuple):
    """A device, and how it stands."""

    use: DeviceUse
    state: TileState

    @property
    def published(self) -> bool:
        return self.state is not TileState.GONE


class PoolSection(NamedTuple):
    """A pool that the node can use; `more` devices are not shown."""

    use: PoolUse
    counter_sets: tuple[CounterSetRow, ...]
    devices: tuple[DeviceRow, ...]
    more: int


def pool_sections(report: DevicesReport) -> tuple[PoolSection, ...]:
    """Return the pools of a report, those that several nodes reach first."""
    return tuple(map(_section, report.pools))


def _section(pool: PoolUse) -> PoolSection:
    holders = {each.name: each.holders for each in (*pool.devices, *pool.gone)}
    published = tuple(DeviceRow(device, state_of(device)) for device in pool.devices)
    devices = (*published, *(DeviceRow(each, TileState.GONE) for each in pool.gone))
    return PoolSection(
        use=pool,
        counter_sets=tuple(_counter_sets(pool.counter_sets[:MOST_DEVICES], holders)),
        devices=devices[:MOST_DEVICES],
        more=max(0, len(devices) - MOST_DEVICES),
    )


def _counter_sets(uses: Sequence[CounterSetUse], holders: Mapping[str, tuple[Holder, ...]]) -> Iterator[CounterSetRow]:
    for use in uses:
        yield CounterSetRow(use, tuple(Member(name, holders.get(name, ())) for name in use.members[:MOST_DEVICES]))
