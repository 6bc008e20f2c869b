"""How many devices of each driver are in which state: allocated, held, or what `allocator.availability` says of the others.

They are counted in the background, so that a scrape costs the same in a large cluster.

A pool is judged again when something has changed on a node that reaches it, or anywhere if that may be any node.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.availability import Availability, taken_devices
from dra_extender.allocator.state.features import Features
from dra_extender.config.service_settings import MetricsSettings
from dra_extender.inspection.free_devices import judge_steps, published_names
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.model.device import PoolId
from dra_extender.runtime.clock import Turns
from dra_extender.scheduling.extender import Extender
from dra_extender.telemetry.metrics import Metrics

ALLOCATED: Final = "allocated"
HELD: Final = "held"
NOT_JUDGED: Final = "not judged"
STATES: Final = (ALLOCATED, HELD, *(availability.value for availability in Availability), NOT_JUDGED)
MOST_REPEATED: Final = 1_000_000
"""Devices that one count looks at again because one node may have them and another may not."""
_CHECKED_TOGETHER: Final = 100
"""Pools for which it is checked in one go whether anything has changed."""


class _PoolStates(NamedTuple):
    """The devices of a pool by state, and the nodes that reached it then; None: possibly any."""

    nodes: frozenset[str] | None
    counts: Mapping[str, int]


class DeviceStates:
    """The devices by driver and state, kept by pool."""

    def __init__(
        self, ledger: Ledger, extender: Extender, features: Features, most_repeated: int = MOST_REPEATED
    ) -> None:
        self._ledger = ledger
        self._extender = extender
        self._features = features
        self._most_repeated = most_repeated
        self._pools: dict[PoolId, _PoolStates] = {}
        self._totals: Mapping[str, Mapping[str, int]] | None = None
        self._places = (0, 0, 0)

    def by_driver(self) -> Mapping[str, Mapping[str, int]]:
        """Return the numbers as they were counted last; added up anew only if a pool has changed."""
        if self._totals is None:
            totals: dict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(STATES, 0)))
            for (driver, _), states in self._pools.items():
                totals[driver].update(states.counts)
            self._totals = totals
        return self._totals

    def count_steps(self) -> Iterator[None]:
        """Count once; yields after each part of the work.

        The ledger may change between two steps: each pool is counted as it is then.  A device is allocated as soon as a claim has a
        share of it; administrative access takes nothing.
        """
        published = {published_slice.pool_id: None for published_slice in self._ledger.slices.by_name.values()}
        for gone in [pool_id for pool_id in self._pools if pool_id not in published]:
            del self._pools[gone]
            self._totals = None
        nodes, places = self._changed_nodes()
        changed: dict[frozenset[str] | None, list[PoolId]] = {}
        for number, pool_id in enumerate(published):
            reaching = self._ledger.slices.nodes_of(pool_id)
            pool_count = self._pools.get(pool_id)
            if pool_count is None or pool_count.nodes != reaching or _overlap(nodes, reaching):
                changed.setdefault(reaching, []).append(pool_id)
            if number % _CHECKED_TOGETHER == 0:
                yield None
        for reaching, pools in changed.items():
            yield from self._count_pools(reaching, pools)
        self._places = places

    def _changed_nodes(self) -> tuple[frozenset[str] | None, tuple[int, int, int]]:
        """Return the nodes about which something has changed since the last count (None: possibly any), and how far that is."""
        ledger = self._ledger
        state, held_devices, facts = map(
            NodeVersions.since, (ledger.state_versions, ledger.hold_versions, ledger.node_versions), self._places
        )
        places = state[1], held_devices[1], facts[1]
        if state[0] is None or held_devices[0] is None or facts[0] is None:
            return None, places
        return frozenset((*state[0], *held_devices[0], *facts[0])), places

    def _count_pools(self, reaching: frozenset[str] | None, pools: Sequence[PoolId]) -> Iterator[None]:
        free: dict[PoolId, dict[str, str]] = {pool_id: {} for pool_id in pools}
        for step in judge_steps(self._ledger, self._extender, self._features, pools, self._most_repeated):
            if step is not None:
                (*pool, device), verdict = step
                free[pool[0], pool[1]][device] = NOT_JUDGED if verdict is None else verdict.availability.value
            yield None
        for pool_id in pools:
            self._pools[pool_id] = _PoolStates(reaching, self._states(pool_id, free[pool_id]))
            self._totals = None
            yield None

    def _states(self, pool_id: PoolId, free: Mapping[str, str]) -> Mapping[str, int]:
        """Return how many published devices are in which state; `free` has those that were judged."""
        ledger = self._ledger
        allocated = taken_devices(ledger.claims.usage.pool(pool_id))
        held_devices = taken_devices(ledger.holds.held_usage.pool(pool_id))
        return Counter(
            free.get(name, ALLOCATED if name in allocated else HELD if name in held_devices else NOT_JUDGED)
            for name in published_names(ledger, pool_id)
        )


def _overlap(changed: frozenset[str] | None, reaching: frozenset[str] | None) -> bool:
    """Return whether any of the nodes that reach a pool has changed; None stands for possibly any node."""
    if changed is None or reaching is None:
        return changed is None or bool(changed)
    return not changed.isdisjoint(reaching)


@dataclass(eq=False)
class DeviceCountTask:
    """Counts the devices by driver and state again and again.

    The pools are counted one after the other: while devices change state, a count is not that of one moment.
    """

    states: DeviceStates
    metrics: Metrics
    settings: MetricsSettings
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time

    async def keep_counting(self) -> None:
        """Count devices until cancelled; return at once if the setting says so.

        The first count comes after one interval: a replica that starts has pods to place.
        """
        while self.settings.devices_enabled:
            await self.sleep(self.settings.devices_interval_seconds)
            await self.count()

    async def count(self) -> None:
        turns = Turns(self.sleep, self.monotonic)
        for _ in self.states.count_steps():
            if turns.over:
                await turns.pause()
        self.metrics.devices(self.states.by_driver())
        self.metrics.devices_counted(turns.worked, self.now())
