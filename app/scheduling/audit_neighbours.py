"""Whether allocated devices that share a counter set or a physical device each find their neighbours compatible."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from app.cel import CelCompileError, CelRuntimeError, ProgramCache, prepare_device
from app.model.allocation import DeviceHolding
from app.model.device import Device
from app.model.resource_slice import ResourceSlice

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""


class Published(NamedTuple):
    """A device, and the slice that publishes it now."""

    device: Device
    where: ResourceSlice


class Stranger(NamedTuple):
    """A device whose `compatibleOnlyWith` is not true for a neighbour, and why in words."""

    device_id: DeviceId
    detail: str


def strangers(
    holdings: Iterable[DeviceHolding],
    published: Mapping[DeviceId, Published],
    sets_of: Callable[[DeviceHolding], Iterable[str]],
) -> Iterator[Stranger]:
    """Each pair of neighbours of which one has an expression that is not true for the other.

    An expression counts as frozen with the allocation; without a snapshot as the device has it now.  Attributes are those
    published now.  `sets_of` names the counter sets and physical devices that a holding is a part of.
    """
    expressions: dict[DeviceId, dict[str, None]] = {}
    members: dict[tuple[str, str, str], dict[DeviceId, None]] = {}
    for holding in holdings:
        device_id = (holding.driver, holding.pool, holding.device)
        own = expressions.setdefault(device_id, {})
        expression = _expression(holding, published.get(device_id))
        if expression is not None:
            own[expression] = None
        for counter_set in sets_of(holding):
            members.setdefault((holding.driver, holding.pool, counter_set), {})[device_id] = None
    pairs = dict.fromkeys(pair for found in members.values() for pair in permutations(found, 2))
    programs = ProgramCache()
    for one, other in pairs:
        for expression in expressions[one]:
            problem = _problem(expression, published.get(other), programs)
            if problem:
                yield Stranger(one, f"compatible only with {expression}, {problem} {other[2]}")


def by_id(slices: Sequence[ResourceSlice]) -> dict[DeviceId, Published]:
    """The devices of these slices."""
    return {
        (each.driver, each.pool, device.name): Published(device, each) for each in slices for device in each.devices
    }


def _expression(holding: DeviceHolding, found: Published | None) -> str | None:
    if holding.consumption is not None:
        return holding.compatible_only_with
    return None if found is None else found.device.compatible_only_with


def _problem(expression: str, other: Published | None, programs: ProgramCache) -> str:
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
