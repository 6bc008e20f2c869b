"""In which state each published device is: allocated, held, stranded or free.

A device is stranded if nobody has it and the allocator's rules refuse it to every claim: because of what is allocated or held
beside it (a counter of its counter set has too little left, a member of the set has no compatibility group in common with it), or
because its pool is incomplete or contradicts itself.  What depends on the claim does not count: selectors, tolerations of taints,
nodes, and rules about neighbours.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.compatibility import CompatibilityTable, GroupedSets
from dra_extender.allocator.rules.counters import CounterTable
from dra_extender.allocator.rules.held_consumption import held_consumption
from dra_extender.allocator.rules.verdict import published_pool
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.audit.inventory import slice_finding
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.device import Device, PoolId
from dra_extender.telemetry.devices import DeviceState, Stranding


class DeviceInState(NamedTuple):
    """A published device of a driver and its state; a stranded one with the reason."""

    driver: str
    device: str
    state: DeviceState
    reason: Stranding | None = None


def device_states(ledger: Ledger, features: Features) -> Iterator[DeviceInState | None]:
    """Every device of the newest generation of each pool, and None after what takes long beside that.

    The ledger may change between two steps: each pool is looked at as it is then.  A device is allocated
    as soon as a claim has a share of it; administrative access takes nothing.
    """
    for pool_id in {each.pool_id: None for each in ledger.slices.by_name.values()}:
        yield from _of_pool(pool_id, ledger, features)
        yield None


def _of_pool(pool_id: PoolId, ledger: Ledger, features: Features) -> Iterator[DeviceInState | None]:
    published = ledger.slices.of_pool(pool_id)
    pool = published_pool(pool_id, published)
    allocated = _taken(ledger.claims.usage.pool(pool_id))
    held = _taken(ledger.holds.overlay.pool(pool_id))
    beside = _Beside(pool, ledger.usage().pool(pool_id), features)
    unusable = Stranding.POOL if slice_finding(pool_id, published) is not None else None
    yield None
    seen: set[str] = set()
    for device in (device for part in pool.published for device in part.devices):
        if device.name in seen:
            continue
        seen.add(device.name)
        if device.name in allocated:
            yield DeviceInState(pool_id[0], device.name, DeviceState.ALLOCATED)
        elif device.name in held:
            yield DeviceInState(pool_id[0], device.name, DeviceState.HELD)
        else:
            reason = unusable or beside.refusal(device)
            state = DeviceState.FREE if reason is None else DeviceState.STRANDED
            yield DeviceInState(pool_id[0], device.name, state, reason)


def _taken(usage: PoolUsage) -> frozenset[str]:
    return frozenset(name for name, holdings in usage.items() if any(not each.admin for each in holdings))


class _Beside:
    """What is allocated and held in a pool, as the allocator's tables of counters and groups."""

    def __init__(self, pool: Pool, usage: PoolUsage, features: Features) -> None:
        members = tuple(held_consumption(pool.published, usage))
        self._counters = CounterTable(pool.totals, members)
        enforced = features.compatibility_groups
        self._groups = CompatibilityTable(members) if enforced else None
        self._grouped = None if enforced else GroupedSets(members)

    def refusal(self, device: Device) -> Stranding | None:
        """Why no claim can have a device of a pool that is complete and valid; None if some claim can."""
        consumption = device.consumes_counters
        if not consumption:
            return None
        if self._counters.shortage(consumption) is not None:
            return Stranding.COUNTERS
        if self._groups is not None:
            return None if self._groups.conflict(consumption) is None else Stranding.GROUPS
        return None if self._grouped is None or self._grouped.closed(consumption) is None else Stranding.GROUPS
