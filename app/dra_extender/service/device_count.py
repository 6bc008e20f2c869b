"""How many devices of each driver are in which state: allocated, held, or what `inspection.free_devices` says of the others.

They are counted in the background, so that a scrape costs the same in a large cluster.

A pool is judged again when something has changed on a node that reaches it, or anywhere if that may be any node.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.state.features import Features
from dra_extender.config.service_settings import MetricsSettings
from dra_extender.inspection.free_devices import Availability, FreeDeviceRule, published_names, taken_names
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.node_versions import NodeVersions
from dra_extender.model.device import PoolId
from dra_extender.runtime.clock import Turns
from dra_extender.scheduling.extender import Extender
from dra_extender.telemetry.metrics import Metrics

ALLOCATED: Final = "allocated"
HELD: Final = "held"
NOT_JUDGED: Final = "not judged"
STATES: Final = (ALLOCATED, HELD, *(each.value for each in Availability), NOT_JUDGED)
MOST_REPEATED: Final = 1_000_000
"""Devices that one count looks at again because one node may have them and another may not."""


class _PoolStates(NamedTuple):
    """The devices of a pool by state, and what they depended on."""

    basis: Hashable
    counts: Mapping[str, int]


class DeviceStates:
    """The devices by driver and state, kept by pool."""

    def __init__(
        self, ledger: Ledger, extender: Extender, features: Features, most_repeated: int = MOST_REPEATED
    ) -> None:
        self._ledger = ledger
        self._rule = FreeDeviceRule(ledger, extender, features)
        self._most_repeated = most_repeated
        self._pools: dict[PoolId, _PoolStates] = {}

    def by_driver(self) -> Mapping[str, Mapping[str, int]]:
        """Return the numbers as they were counted last."""
        totals: dict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(STATES, 0)))
        for (driver, _), states in self._pools.items():
            totals[driver].update(states.counts)
        return totals

    def count_steps(self) -> Iterator[None]:
        """Count once; yields after each part of the work.

        The ledger may change between two steps: each pool is counted as it is then.  A device is allocated as soon as a claim has a
        share of it; administrative access takes nothing.
        """
        published = {each.pool_id: None for each in self._ledger.slices.by_name.values()}
        self._pools = {pool_id: states for pool_id, states in self._pools.items() if pool_id in published}
        anywhere = tuple(map(_latest, (self._ledger.state, self._ledger.held, self._ledger.node_changes)))
        changed: dict[frozenset[str] | None, dict[PoolId, Hashable]] = {}
        for pool_id in published:
            nodes = self._ledger.slices.nodes_of(pool_id)
            basis = anywhere if nodes is None else self._basis(nodes)
            known = self._pools.get(pool_id)
            if known is None or known.basis != basis:
                changed.setdefault(nodes, {})[pool_id] = basis
            yield None
        for bases in changed.values():
            yield from self._count_pools(bases)

    def _count_pools(self, bases: Mapping[PoolId, Hashable]) -> Iterator[None]:
        free: dict[PoolId, dict[str, str]] = {pool_id: {} for pool_id in bases}
        for step in self._rule.steps(bases, self._most_repeated):
            if step is not None:
                (*pool, device), verdict = step
                free[pool[0], pool[1]][device] = NOT_JUDGED if verdict is None else verdict.availability.value
            yield None
        for pool_id, basis in bases.items():
            self._pools[pool_id] = _PoolStates(basis, self._states(pool_id, free[pool_id]))
            yield None

    def _states(self, pool_id: PoolId, free: Mapping[str, str]) -> Mapping[str, int]:
        """Return how many published devices are in which state; `free` has those that were judged."""
        ledger = self._ledger
        allocated = taken_names(ledger.claims.usage.pool(pool_id))
        held = taken_names(ledger.holds.overlay.pool(pool_id))
        return Counter(
            free.get(name, ALLOCATED if name in allocated else HELD if name in held else NOT_JUDGED)
            for name in published_names(ledger, pool_id)
        )

    def _basis(self, nodes: frozenset[str]) -> Hashable:
        """Return what differs after each change that a verdict about a pool of these nodes may depend on."""
        ledger = self._ledger
        return tuple(
            (ledger.state.of(name), ledger.held.of(name), ledger.member_fit.closed(name)) for name in sorted(nodes)
        )


def _latest(versions: NodeVersions) -> int:
    _, place = versions.since(0)
    return place


class DeviceCountTask:
    """Counts the devices by driver and state again and again.

    Each pool is looked at at its time: while devices change state, a count is not that of any one moment.
    """

    def __init__(
        self,
        states: DeviceStates,
        metrics: Metrics,
        settings: MetricsSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._states = states
        self._metrics = metrics
        self._settings = settings
        self._sleep = sleep
        self._monotonic = monotonic
        self._now = now

    async def run(self) -> None:
        """Count until cancelled; returns at once if the setting says so.

        The first count comes after one interval: a replica that starts has pods to place.
        """
        while self._settings.devices_enabled:
            await self._sleep(self._settings.devices_interval_seconds)
            await self.count()

    async def count(self) -> None:
        """Count once, in turns."""
        turns = Turns(self._sleep, self._monotonic)
        for _ in self._states.count_steps():
            if turns.over:
                await turns.pause()
        self._metrics.devices(self._states.by_driver())
        self._metrics.devices_counted(turns.worked, self._now())
