"""One node: its pools with counter sets, groups in force and whose they are, and each device with its holders."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.inspection.devices import CounterSetUse, DevicesReport, DeviceUse, PoolUse
from dra_extender.inspection.holders import Holder
from dra_extender.page.map_view import TileState, state_of

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
        """Whether the pool still has it."""
        return self.state is not TileState.GONE


class PoolSection(NamedTuple):
    """A pool that the node can use; `more` devices are not shown."""

    use: PoolUse
    counter_sets: tuple[CounterSetRow, ...]
    devices: tuple[DeviceRow, ...]
    more: int


def pool_sections(report: DevicesReport) -> tuple[PoolSection, ...]:
    """The pools of a report, those that several nodes reach first."""
    return tuple(map(_section, report.pools))


def _section(pool: PoolUse) -> PoolSection:
    holders = {each.name: each.holders for each in (*pool.devices, *pool.gone)}
    published = tuple(DeviceRow(each, state_of(each)) for each in pool.devices)
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
