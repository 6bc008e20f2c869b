"""The one rule for what may be allocated beside what is allocated: a device, its capacity, its counter sets.

The members of a counter set are the devices that are held and draw on it, with the amounts and groups that were frozen when they
were allocated (`held_devices`).  What an addition may break depends on what it adds:

    whole device     no other claim may have any of the device
    share            no claim may have the device whole; all shares together may take no more of a capacity than there is; a
                     device that binds to its node has no share on another node (`held_devices`)
    new member       the first holding of a device: the counters on which it draws must suffice, and the members of each of its
                     counter sets must all have no groups, or all have one group in common (KEP-5963)
    further share    no new member: only the capacity counts, neither groups nor counters (KEP-4815)
    admin access     nothing

So an addition is refused only for what it breaks itself.  `usage_violations` finds what the usage breaks without it; such a
counter set admits no new member.  The search applies the same rule incrementally (`counter_sets`, `capacity`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.pools.pools import Pool, latest_generation
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.rules.compatibility_groups import are_compatible
from dra_extender.allocator.rules.counter_sets import CounterKey, amounts_drawn
from dra_extender.allocator.rules.held_devices import held_consumption, shares_apart
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.values.quantity import counter_text
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption, Device, PoolId
from dra_extender.model.resource_slice import ResourceSlice

DEVICE: Final = "device"
CAPACITY: Final = "capacity"
GROUPS: Final = "groups"
NODE: Final = "node"
COUNTERS: Final = "counters"

_CHUNK: Final = 1_000
"""Devices of a pool that `usage_violations` looks up at a time."""
_Drawn = Sequence[tuple[str, CounterConsumption]]


class Violation(NamedTuple):
    """A rule that is broken: the kind, the device or counter set, and a half sentence with the amounts or groups."""

    kind: str
    name: str
    detail: str = ""


def published_pool(pool_id: PoolId, slices: Iterable[ResourceSlice]) -> Pool:
    """Return the pool as its newest slices publish it, for all nodes; of two counter sets with one name the last counts."""
    listed = tuple(slices)
    current = tuple(latest_generation(listed)) if listed else ()
    counter_sets = (counter_set for published in current for counter_set in published.counter_sets)
    totals = {counter_set.name: dict(counter_set.counters) for counter_set in counter_sets}
    return Pool(pool_id=pool_id, published=current, totals=totals)


def pool_violation(pool: Pool, usage: PoolUsage, addition: Iterable[DeviceHolding]) -> Violation | None:
    """Return the first thing that the addition breaks beside the usage, both of this pool; None if it may be allocated.

    The addition counts as a whole.  Counters that the pool does not declare are without limit.
    """
    added: dict[str, list[DeviceHolding]] = {}
    for holding in addition:
        if not holding.admin:
            added.setdefault(holding.device, []).append(holding)
    joining: dict[str, tuple[DeviceHolding, ...]] = {}
    for name, holdings in added.items():
        current = _without_admin_access(usage.get(name, ()))
        if not current:
            joining[name] = tuple(holdings)
        named = (device for published in pool.published for device in published.devices if device.name == name)
        violation = _device_violation(named, name, (*current, *holdings), holdings)
        violation = violation or _node_violation(pool, name, (*current, *holdings), holdings)
        if violation is not None:
            return violation
    drawn = list(held_consumption(pool.published, joining))
    if not drawn:
        return None
    sets = {entry.counter_set for _, entry in drawn}
    members = [member for member in held_consumption(pool.published, usage) if member[1].counter_set in sets]
    return _group_violation([*members, *(("", entry) for _, entry in drawn)]) or _overdrawn(
        pool, [*members, *drawn], _amounts(drawn)
    )


def usage_violations(pool: Pool, usage: PoolUsage) -> Iterator[Violation | None]:
    """Yield every rule that the usage of this pool breaks, in whatever order its holdings were allocated.

    Yields None after each chunk of the work; the usage may change meanwhile, and counts as it was.
    """
    holdings_by_device = dict(usage)
    named: dict[str, list[Device]] = {}
    for published in pool.published:
        for device in published.devices:
            if device.name in holdings_by_device:
                named.setdefault(device.name, []).append(device)
        yield None
    for name, all_holdings in holdings_by_device.items():
        holdings = _without_admin_access(all_holdings)
        yield _device_violation(named.get(name, ()), name, holdings, holdings)
        yield _node_violation(pool, name, holdings, holdings)
    members: dict[str, list[tuple[str, CounterConsumption]]] = {}
    names = tuple(holdings_by_device)
    for start in range(0, len(names), _CHUNK):
        chunk = {name: holdings_by_device[name] for name in names[start : start + _CHUNK]}
        for name, entry in held_consumption(pool.published, chunk):
            members.setdefault(entry.counter_set, []).append((name, entry))
            yield None
        yield None
    for drawn in members.values():
        yield _overdrawn(pool, drawn, _amounts(drawn))
        yield _group_violation(drawn)


def _without_admin_access(holdings: Iterable[DeviceHolding]) -> tuple[DeviceHolding, ...]:
    return tuple(holding for holding in holdings if not holding.admin)


def _device_violation(
    named: Iterable[Device], device: str, holdings: Sequence[DeviceHolding], added: Sequence[DeviceHolding]
) -> Violation | None:
    """Return a violation if one holding is the whole device beside others, or if a capacity that `added` takes is exceeded.

    `named` are the published devices of this name; each of them must be exceeded.
    """
    if len(holdings) > 1 and any(holding.share_id is None for holding in holdings):
        return Violation(DEVICE, device)
    taken_capacities = {name for holding in added for name, amount in holding.consumed_capacity if amount > 0}
    if not taken_capacities:
        return None
    totals: dict[str, int] = {}
    for holding in holdings:
        for name, amount in holding.consumed_capacity:
            totals[name] = totals.get(name, 0) + amount
    details = []
    for published in named:
        exceeded = (
            f"{name}: {amount_text(totals[name], capacity.text)} of {capacity.text} taken"
            for name, capacity in published.capacity
            if name in taken_capacities and totals[name] > capacity.value
        )
        details.append(next(exceeded, ""))
    return Violation(CAPACITY, device, details[0]) if details and all(details) else None


def _node_violation(
    pool: Pool, name: str, holdings: Sequence[DeviceHolding], added: Sequence[DeviceHolding]
) -> Violation | None:
    apart = shares_apart(pool.published, name, holdings, added)
    if apart is None:
        return None
    return Violation(NODE, name, f"bound to {', '.join(apart.bound)}, with shares on {', '.join(apart.nodes)}")


def _amounts(members: _Drawn) -> Mapping[CounterKey, int]:
    return dict(amounts_drawn([entry for _, entry in members]))


def _overdrawn(pool: Pool, members: _Drawn, requested: Mapping[CounterKey, int]) -> Violation | None:
    """Return the first counter with an asked amount that the members overdraw."""
    sums = _amounts(members)
    for key, amount in requested.items():
        total = pool.totals.get(key[0], {}).get(key[1])
        if total is not None and amount > 0 and sums[key] > total:
            names = ", ".join(sorted({device for device, entry in members if entry.counter_set == key[0]}))
            size = counter_text(total)
            return Violation(COUNTERS, key[0], f"{key[1]}: {amount_text(sums[key], size)} of {size} drawn by {names}")
    return None


def _group_violation(members: _Drawn) -> Violation | None:
    """Return the first counter set whose members have no group in common, unless none has any."""
    by_set: dict[str, list[tuple[str, CounterConsumption]]] = {}
    for member in members:
        by_set.setdefault(member[1].counter_set, []).append(member)
    for counter_set, drawn in by_set.items():
        if not are_compatible(entry.compatibility_groups for _, entry in drawn):
            listed = sorted(f"{device} [{', '.join(sorted(entry.compatibility_groups))}]" for device, entry in drawn)
            return Violation(GROUPS, counter_set, "; ".join(listed))
    return None
