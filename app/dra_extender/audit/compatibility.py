"""Whether allocated devices each find their neighbours compatible; who is a neighbour is the rule of the search."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dra_extender.allocator.rules.compatible_only_with import NeighbourScope, Rule, frozen_rules, is_neighbour, scope_of
from dra_extender.cel.program_cache import ProgramCache
from dra_extender.cel.runtime.device import prepare_device
from dra_extender.cel.support.errors import CelCompileError, CelRuntimeError
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import Device, DeviceId
from dra_extender.model.resource_slice import ResourceSlice


class PublishedNow(NamedTuple):
    """A device, and the slice that publishes it now."""

    device: Device
    where: ResourceSlice


class IncompatibleNeighbour(NamedTuple):
    """A device whose `compatibleOnlyWith` is not true for a neighbour, and why in words."""

    device_id: DeviceId
    detail: str


def strangers(
    holdings: Iterable[DeviceHolding],
    published: Mapping[DeviceId, PublishedNow],
    sets_of: Callable[[DeviceHolding], Iterable[str]],
) -> Iterator[IncompatibleNeighbour]:
    """Each pair of neighbours of which one has an expression that is not true for the other.

    An expression counts as frozen with the allocation; without a snapshot as the device has it now.  Attributes are those
    published now.  `sets_of` names the counter sets and physical devices that a holding is a part of.
    """
    held: dict[DeviceId, list[DeviceHolding]] = {}
    for holding in holdings:
        held.setdefault((holding.driver, holding.pool, holding.device), []).append(holding)
    homes = _homes(published)
    rules: dict[DeviceId, tuple[Rule, ...]] = {}
    scopes: dict[DeviceId, NeighbourScope] = {}
    for device_id, found in held.items():
        live, pool_id = published.get(device_id), (device_id[0], device_id[1])
        counter_sets = frozenset(name for each in found for name in sets_of(each))
        rules[device_id] = frozen_rules(found, None if live is None else live.device)
        scopes[device_id] = (
            NeighbourScope(pool_id, homes.get(pool_id), counter_sets)
            if live is None
            else scope_of(live.where, live.device, counter_sets)
        )
    programs = ProgramCache()
    for one, rule in ((device_id, rule) for device_id, found in rules.items() for rule in found):
        for other, scope in scopes.items():
            if other != one and is_neighbour(rule.on, scopes[one], scope):
                problem = _problem(rule.expression, published.get(other), programs)
                if problem:
                    yield IncompatibleNeighbour(one, f"compatible only with {rule.expression}, {problem} {other[2]}")


def _homes(published: Mapping[DeviceId, PublishedNow]) -> Mapping[tuple[str, str], str | None]:
    """The node of each pool whose devices are all local to one: there a device was that is not published any more."""
    nodes: dict[tuple[str, str], set[str | None]] = {}
    for (driver, pool, _), found in published.items():
        nodes.setdefault((driver, pool), set()).add(found.where.node_name)
    return {pool_id: next(iter(found)) for pool_id, found in nodes.items() if len(found) == 1}


def by_id(slices: Sequence[ResourceSlice]) -> dict[DeviceId, PublishedNow]:
    """The devices of these slices."""
    return {
        (each.driver, each.pool, device.name): PublishedNow(device, each) for each in slices for device in each.devices
    }


def _problem(expression: str, other: PublishedNow | None, programs: ProgramCache) -> str:
    """Why it is not true for the other device, in words that go before its name; empty if it is."""
    if other is None:
        return "but nobody publishes"
    device = other.device
    capacity = {name: each.text for name, each in device.capacity}
    facts = prepare_device(other.where.driver, dict(device.attributes), capacity, device.allow_multiple_allocations)
    try:
        return "" if programs.compile(expression).matches(facts) else "which is false for"
    except (CelCompileError, CelRuntimeError) as problem:
        return f"which cannot be judged ({problem}) for"
