"""The one rule for what may be allocated beside what is allocated: a device, its capacity, its counter sets.

The members of a counter set are the devices that are held and draw on it, with the amounts and groups that were frozen when they
were allocated (`held_consumption`).  The verdict about an addition depends on what it adds:

    whole device     no other claim may have any of the device
    share            no claim may have the device whole; all shares together may take no more of a capacity than there is; a
                     device that binds to its node has no share on another node (`node_binding`)
    new member       the first holding of a device: the counters on which it draws must suffice, and the members of each of its
                     counter sets must all have no groups, or all have one group in common (KEP-5963)
    further share    no new member: only the capacity counts, neither groups nor counters (KEP-4815)
    admin access     nothing

So an addition is refused only for what it breaks itself.  `contradictions` finds what the usage breaks without it; such a counter
set admits no new member.  The search applies the same rule incrementally (`compatibility`, `counters`, `shared_capacity`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.rules.compatibility import are_compatible
from dra_extender.allocator.rules.held_consumption import held_consumption
from dra_extender.allocator.rules.node_binding import shares_apart
from dra_extender.allocator.state.release_rules import OWN, Rules
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

_PART: Final = 1_000
"""Devices of a pool that `contradiction_steps` looks up at a time."""
_Drawn = Sequence[tuple[str, CounterConsumption]]


class Violation(NamedTuple):
    """A rule that is broken: the kind, the device or counter set, and a half sentence with the amounts or groups."""

    kind: str
    name: str
    detail: str = ""


def published_pool(pool_id: PoolId, slices: Iterable[ResourceSlice]) -> Pool:
    """The pool as the newest of these slices publish it, for all nodes; of two counter sets with one name the last counts."""
    found = tuple(slices)
    newest = max((each.generation for each in found), default=0)
    current = tuple(each for each in found if each.generation == newest)
    totals = {each.name: dict(each.counters) for published in current for each in published.counter_sets}
    return Pool(pool_id=pool_id, published=current, totals=totals)


def verdict(pool: Pool, usage: PoolUsage, addition: Iterable[DeviceHolding], rules: Rules = OWN) -> Violation | None:
    """The first thing that the addition breaks beside the usage, both of this pool; None if it may be allocated.

    The addition counts as a whole.  Counters that the pool does not declare are without limit.
    """
    joining: dict[str, tuple[DeviceHolding, ...]] = {}
    further: list[DeviceHolding] = []
    for device, holdings in _by_device(addition).items():
        others = _without_admin_access(usage.get(device, ()))
        if others:
            further += holdings
        else:
            joining[device] = holdings
        found = _device_violation(_named(pool, device), device, (*others, *holdings), holdings)
        found = found or _node_violation(pool, device, (*others, *holdings), holdings, rules)
        if found is not None:
            return found
    entries = list(held_consumption(pool.published, joining))
    rejoining = [] if rules.shares_keep_snapshot else [entry for each in further for entry in each.consumption or ()]
    return _set_violation(pool, usage, entries, rejoining)


def _set_violation(
    pool: Pool, usage: PoolUsage, joining: _Drawn, rejoining: Sequence[CounterConsumption]
) -> Violation | None:
    """The first counter set that `joining` breaks; of `rejoining`, which draws nothing more, only the groups count."""
    asked = [*(entry for _, entry in joining), *rejoining]
    if not asked:
        return None
    sets = {entry.counter_set for entry in asked}
    members = [each for each in held_consumption(pool.published, usage) if each[1].counter_set in sets]
    return _group_violation([*members, *(("", entry) for entry in asked)]) or _overdrawn(
        pool, [*members, *joining], _amounts(joining)
    )


def contradictions(pool: Pool, usage: PoolUsage) -> Iterator[Violation]:
    """Every rule that the usage of this pool breaks, in whatever order its holdings were allocated."""
    return (each for each in contradiction_steps(pool, usage) if each is not None)


def contradiction_steps(pool: Pool, usage: PoolUsage) -> Iterator[Violation | None]:
    """As `contradictions`, with None after each device and counter set; the usage may change meanwhile, and counts as it was."""
    held = dict(usage)
    named: dict[str, list[Device]] = {}
    for published in pool.published:
        for device in published.devices:
            if device.name in held:
                named.setdefault(device.name, []).append(device)
        yield None
    for name, found in held.items():
        holdings = _without_admin_access(found)
        yield _device_violation(named.get(name, ()), name, holdings, holdings)
        yield _node_violation(pool, name, holdings, holdings)
    members: dict[str, list[tuple[str, CounterConsumption]]] = {}
    for names in _parts(tuple(held)):
        for name, entry in held_consumption(pool.published, {name: held[name] for name in names}):
            members.setdefault(entry.counter_set, []).append((name, entry))
            yield None
        yield None
    for drawn in members.values():
        yield _overdrawn(pool, drawn, _amounts(drawn))
        yield _group_violation(drawn)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _PART] for start in range(0, len(names), _PART))


def _by_device(holdings: Iterable[DeviceHolding]) -> dict[str, tuple[DeviceHolding, ...]]:
    found: dict[str, list[DeviceHolding]] = {}
    for each in holdings:
        if not each.admin:
            found.setdefault(each.device, []).append(each)
    return {device: tuple(held) for device, held in found.items()}


def _without_admin_access(holdings: Iterable[DeviceHolding]) -> tuple[DeviceHolding, ...]:
    return tuple(each for each in holdings if not each.admin)


def _named(pool: Pool, name: str) -> Iterator[Device]:
    """The devices of this name; the slices of several nodes may give it to different ones."""
    return (each for published in pool.published for each in published.devices if each.name == name)


def _device_violation(
    named: Iterable[Device], device: str, holdings: Sequence[DeviceHolding], added: Sequence[DeviceHolding]
) -> Violation | None:
    """A violation if one holding is the whole device beside others, or if a capacity that `added` takes is exceeded.

    `named` are the published devices of this name; each of them must be exceeded.
    """
    if len(holdings) > 1 and any(each.share_id is None for each in holdings):
        return Violation(DEVICE, device)
    asked = {name for each in added for name, amount in each.consumed_capacity if amount > 0}
    if not asked:
        return None
    totals: dict[str, int] = {}
    for each in holdings:
        for name, amount in each.consumed_capacity:
            totals[name] = totals.get(name, 0) + amount
    taken = {name: totals[name] for name in asked}
    details = [
        next((f"{name}: {amount_text(taken[name], text)} of {text} taken" for name, text in _exceeded(each, taken)), "")
        for each in named
    ]
    return Violation(CAPACITY, device, details[0]) if details and all(details) else None


def _node_violation(
    pool: Pool, name: str, holdings: Sequence[DeviceHolding], added: Sequence[DeviceHolding], rules: Rules = OWN
) -> Violation | None:
    apart = shares_apart(pool.published, name, holdings, added) if rules.devices_stay_on_node else None
    if apart is None:
        return None
    return Violation(NODE, name, f"bound to {', '.join(apart.bound)}, with shares on {', '.join(apart.nodes)}")


def _exceeded(device: Device, taken: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(capacity, its published text) of every capacity that is exceeded."""
    return ((name, known.text) for name, known in device.capacity if name in taken and taken[name] > known.value)


def _amounts(drawn: _Drawn) -> Mapping[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for _, entry in drawn:
        for counter, amount in entry.counters:
            key = (entry.counter_set, counter)
            sums[key] = sums.get(key, 0) + amount
    return sums


def _overdrawn(pool: Pool, members: _Drawn, asked: Mapping[tuple[str, str], int]) -> Violation | None:
    """The first counter with an asked amount that the members overdraw."""
    sums = _amounts(members)
    for key, amount in asked.items():
        total = pool.totals.get(key[0], {}).get(key[1])
        if total is not None and amount > 0 and sums[key] > total:
            names = ", ".join(sorted({device for device, entry in members if entry.counter_set == key[0]}))
            size = counter_text(total)
            return Violation(COUNTERS, key[0], f"{key[1]}: {amount_text(sums[key], size)} of {size} drawn by {names}")
    return None


def _group_violation(members: _Drawn) -> Violation | None:
    """The first counter set whose members have no group in common, unless none has any."""
    by_set: dict[str, list[tuple[str, CounterConsumption]]] = {}
    for each in members:
        by_set.setdefault(each[1].counter_set, []).append(each)
    for counter_set, found in by_set.items():
        if not are_compatible(entry.compatibility_groups for _, entry in found):
            listed = sorted(f"{device} [{', '.join(sorted(entry.compatibility_groups))}]" for device, entry in found)
            return Violation(GROUPS, counter_set, "; ".join(listed))
    return None
