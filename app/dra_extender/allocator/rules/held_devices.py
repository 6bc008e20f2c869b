"""Held devices: their consumption of counters, and the nodes to which they are bound.

A held device counts with the consumption that was frozen when it was allocated: amounts and groups (KEP-5963).  Without a snapshot
it counts with the slice as published now, as upstream counts every device.

`bindsToNode` of a device (KEP-5007) means that it is attached to the node of the allocation.  Upstream keeps each allocation on its
node, but gives further shares of the device to other nodes.  Here the device itself stays: while a share of it is allocated on a
node, no other node gets one.  A device that is local to a node cannot move, and administrative access attaches nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption, Device
from dra_extender.model.resource_slice import ResourceSlice


class FrozenView(NamedTuple):
    """A held device as it was when it was allocated; the fields are those of a `DeviceHolding`."""

    consumption: tuple[CounterConsumption, ...]
    compatible_only_with: str | None
    neighbours_on: str
    sources: tuple[tuple[str, str], ...]


def frozen_view(holdings: Iterable[DeviceHolding], live: Device) -> FrozenView:
    """Return the merged snapshots of one device's holdings; without any, `live`, the device as it is published now.

    A further share of the device copies it.  Snapshots that differ are merged as in `held_consumption`; of several expressions
    the first in alphabetical order counts.
    """
    snapshots = [holding for holding in holdings if holding.is_frozen and not holding.admin]
    if not snapshots:
        return FrozenView(live.consumes_counters, live.compatible_only_with, live.neighbours_on, live.sources)
    if len(snapshots) == 1:
        only = snapshots[0]
        return FrozenView(only.drawn(live), only.compatible_only_with, only.neighbours_on, only.sources)
    consumption = _frozen(snapshots, live) or ()
    rules = sorted(
        (snapshot.compatible_only_with, snapshot.neighbours_on)
        for snapshot in snapshots
        if snapshot.compatible_only_with is not None
    )
    expression, on = rules[0] if rules else (None, "")
    sources = dict.fromkeys(source for snapshot in snapshots for source in snapshot.sources)
    return FrozenView(consumption, expression, on, tuple(sources))


def with_current_snapshot(holding: DeviceHolding, pool: Pool, usage: PoolUsage) -> DeviceHolding:
    """Return a share with the snapshot of the shares in this usage; without any, with that of the device as published now.

    A hold counts as a share in a search, but its own pod may never be bound, and the slice may have changed since.
    """
    devices = chain.from_iterable(published.devices for published in pool.published)
    live = next((device for device in devices if device.name == holding.device), None)
    if holding.share_id is None or live is None:
        return holding
    snapshot = frozen_view(usage.get(holding.device, ()), live)
    return msgspec.structs.replace(holding, **snapshot._asdict())


def held_consumption(slices: Iterable[ResourceSlice], usage: PoolUsage) -> Iterator[tuple[str, CounterConsumption]]:
    """Yield (device, entry of what it draws) for every held device: published ones in the given order, then vanished ones by name.

    Several holdings of one device draw once.  Should their snapshots differ (the slice changed between two shares), every group
    list counts and of each counter the highest amount.  A name that the slices of several nodes give to different devices counts
    for each of them, as in upstream's allocator, unless a snapshot has what was allocated.
    """
    holders = {
        device: shares
        for device, holdings in usage.items()
        if (shares := [holding for holding in holdings if not holding.admin])
    }
    if not holders:
        return
    vanished = set(holders)
    searched = dict(holders)
    for device in chain.from_iterable(published.devices for published in slices):
        holdings = searched.get(device.name)
        if holdings is None:
            continue
        vanished.discard(device.name)
        frozen = _frozen(holdings, device)
        for entry in device.consumes_counters if frozen is None else _with_physical_device(frozen, device):
            yield device.name, entry
        # Of the devices with one name only the first counts, if a snapshot has what was allocated.
        if any(holding.consumption is not None for holding in holdings):
            del searched[device.name]
            if not searched:
                break
    for name in sorted(vanished):
        for entry in _frozen(holders[name], None) or ():
            yield name, entry


def _with_physical_device(frozen: tuple[CounterConsumption, ...], device: Device) -> Iterator[CounterConsumption]:
    """Yield the snapshot, and an entry for each physical device that the policy names by now and the snapshot does not.

    That entry has the groups that were frozen for a physical device, or none: the device stays held under its new name.
    """
    yield from frozen
    physical = [entry for entry in device.consumes_counters if entry.synthetic]
    if not physical:
        return
    sets = {entry.counter_set for entry in frozen}
    lists = dict.fromkeys(entry.compatibility_groups for entry in frozen if entry.synthetic) or {(): None}
    for entry in physical:
        if entry.counter_set not in sets:
            for groups in lists:
                yield CounterConsumption(counter_set=entry.counter_set, compatibility_groups=groups)


def _frozen(holders: Sequence[DeviceHolding], live: Device | None) -> tuple[CounterConsumption, ...] | None:
    """Return the merged snapshots of a device, `live` as published now; None without any."""
    drawn = [holder.drawn(live) for holder in holders if holder.is_frozen]
    if not drawn:
        return None
    snapshots = drawn if len(drawn) == 1 else list(dict.fromkeys(drawn))
    return snapshots[0] if len(snapshots) == 1 else tuple(_merged(snapshots))


def _merged(snapshots: list[tuple[CounterConsumption, ...]]) -> Iterator[CounterConsumption]:
    """Yield an entry for each distinct group list of each set; the amounts are on the first entry of a set, zero on the others."""
    highest: dict[str, dict[str, int]] = {}
    groups: dict[str, dict[tuple[tuple[str, ...], bool], None]] = {}
    for snapshot in snapshots:
        for entry in snapshot:
            amounts = highest.setdefault(entry.counter_set, {})
            for counter, amount in entry.counters:
                amounts[counter] = max(amount, amounts.get(counter, amount))
            groups.setdefault(entry.counter_set, {})[entry.compatibility_groups, entry.groups_supplied] = None
    for counter_set, lists in groups.items():
        amounts = highest[counter_set]
        for declared, supplied in lists:
            yield CounterConsumption(
                counter_set=counter_set,
                counters=tuple(amounts.items()),
                compatibility_groups=declared,
                groups_supplied=supplied,
            )
            amounts = {}


class SharesApart(NamedTuple):
    """A device that is bound to nodes (`bound`) and has shares on further ones: `nodes` are all of them, sorted by name."""

    bound: tuple[str, ...]
    nodes: tuple[str, ...]


def can_move(published: ResourceSlice, device: Device) -> bool:
    """Return whether nodes share the device: neither slice nor device names the one that has it."""
    return not (published.node_name or device.node_name)


def binds_to_node_now(published: ResourceSlice, device: Device) -> bool:
    """Return whether an allocation of the device binds it to a node, as it is published now."""
    return device.binds_to_node and can_move(published, device)


def bound_nodes(published: ResourceSlice, device: Device, holdings: Iterable[DeviceHolding]) -> frozenset[str]:
    if not can_move(published, device):
        return frozenset()
    return _nodes_of(holdings, device_binds=device.binds_to_node)


def shares_apart(
    slices: Iterable[ResourceSlice], name: str, holdings: Sequence[DeviceHolding], added: Iterable[DeviceHolding]
) -> SharesApart | None:
    """Return where the shares of a device are if one of `added` names another node than one to which the device is bound.

    `holdings` are all of the device, `slices` those of its pool.
    """
    nodes = {holding.node for holding in holdings if holding.node is not None}
    if len(nodes) <= 1:
        return None
    places = [(published, device) for published in slices for device in published.devices if device.name == name]
    if places and not any(can_move(*place) for place in places):
        return None
    bound = _nodes_of(holdings, device_binds=any(binds_to_node_now(*place) for place in places))
    if not any(bound - {holding.node} for holding in added if holding.node is not None):
        return None
    return SharesApart(tuple(sorted(bound)), tuple(sorted(nodes)))


def _nodes_of(holdings: Iterable[DeviceHolding], *, device_binds: bool) -> frozenset[str]:
    """Return the nodes of the shares that bind the device: of all if it binds now, otherwise of those that were bound before."""
    return frozenset(
        holding.node for holding in holdings if holding.node is not None and (device_binds or holding.binds_to_node)
    )
