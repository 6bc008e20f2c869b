"""Sentences about why one device cannot be had now, given what is held and picked."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.explain.messages import (
    capacity_words,
    clash_words,
    closed_set_words,
    counter_words,
    group_words,
    node_allocatable_words,
    taint_words,
)
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.compatible_only_with import DeviceLocation, conflict_words
from dra_extender.allocator.rules.eligibility import DeviceVerdict
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, SearchState
from dra_extender.allocator.state.features import why_off
from dra_extender.model.device import CounterConsumption
from dra_extender.model.rejection import Code

STANDING_CODES: Final = {
    DeviceVerdict.TAKEN: Code.IN_USE,
    DeviceVerdict.BINDING_CONDITIONS_OFF: Code.REQUEST_UNSUPPORTED,
    DeviceVerdict.GROUPS_OFF: Code.GROUPS_OFF,
    DeviceVerdict.NODE_OPERATIONS: Code.NODE_OPERATIONS,
    DeviceVerdict.NODE_ALLOCATABLE: Code.NODE_ALLOCATABLE,
    DeviceVerdict.PARTITIONABLE_OFF: Code.REQUEST_UNSUPPORTED,
    DeviceVerdict.TAINTED: Code.TAINTED,
    DeviceVerdict.MISFIT: Code.CAPACITY,
    DeviceVerdict.EXHAUSTED: Code.CAPACITY,
}
REFUSAL_CODES: Final = {
    Exclusion.NONE: None,
    Exclusion.PICKED: Code.COMBINATION,
    Exclusion.GROUPS: Code.GROUPS,
    Exclusion.COUNTERS: Code.COUNTERS,
    Exclusion.CONSTRAINT: Code.CONSTRAINT,
    Exclusion.CAPACITY: Code.CAPACITY,
    Exclusion.NEIGHBOURS: Code.NEIGHBOURS,
}
NEAREST_MISS_FIRST: Final = (
    Code.GROUPS,
    Code.NEIGHBOURS,
    Code.COUNTERS,
    Code.CAPACITY,
    Code.CONSTRAINT,
    Code.TAINTED,
    Code.NODE_OPERATIONS,
    Code.NODE_ALLOCATABLE,
    Code.REQUEST_UNSUPPORTED,
    Code.GROUPS_OFF,
    Code.IN_USE,
    Code.SELECTOR_FAILED,
    Code.SELECTOR_INVALID,
    Code.COMBINATION,
)
"""What a device that was nearly taken failed at, the nearest miss first."""
_NEEDED: Final = {
    DeviceVerdict.BINDING_CONDITIONS_OFF: "device_binding_and_status",
    DeviceVerdict.GROUPS_OFF: "compatibility_groups",
    DeviceVerdict.PARTITIONABLE_OFF: "partitionable_devices",
}


class DeviceSlot(NamedTuple):
    """A place to be filled: the device number `picked` of a request."""

    claim: int
    request: int
    picked: int
    wanted: SearchableRequest


class DeviceReasons:
    """What speaks against single devices at the present state of an attempt."""

    __slots__ = ("_attempt", "_facts")

    def __init__(self, facts: NodeView, attempt: SearchState) -> None:
        self._facts = facts
        self._attempt = attempt

    def of(self, code: Code, place: DeviceSlot, location: int, standing: DeviceVerdict) -> str:
        """A sentence about the device at a location; empty where its name says it all."""
        pools = self._facts.pools
        device, pool = pools.devices[location], pools.views[location].pool
        match code:
            case Code.GROUPS:
                return self._group_words(location)
            case Code.NEIGHBOURS:
                return self._neighbour_words(location)
            case Code.COUNTERS:
                shortage = self._attempt.tables(pool).counters.shortage(device.consumes_counters)
                return counter_words(device, shortage) if shortage is not None else ""
            case Code.CONSTRAINT:
                return self.constraint_words(place.claim, place.wanted, location)
            case Code.CAPACITY:
                return self._capacity_words(place.wanted, location)
            case Code.TAINTED:
                return taint_words(device, place.wanted.tolerations)
            case Code.NODE_ALLOCATABLE:
                return node_allocatable_words(device)
        feature = _NEEDED.get(standing)
        return f"{device.name} needs {why_off(feature)}" if feature else ""

    def _group_words(self, location: int) -> str:
        pools = self._facts.pools
        device = pools.devices[location]
        tables = self._attempt.tables(pools.views[location].pool)
        if tables.groups is not None:
            conflict = tables.groups.refusal(device.consumes_counters)
            return "" if conflict is None else group_words(device, conflict, self._members(location, conflict[0]))
        closed = tables.grouped.closed(device.consumes_counters) if tables.grouped is not None else None
        return "" if closed is None else closed_set_words(device, closed)

    def _neighbour_words(self, location: int) -> str:
        pools = self._facts.pools
        view = pools.views[location]
        neighbours, site = self._attempt.neighbours, DeviceLocation(view.published, location - view.base)
        conflict = neighbours.refusal(view.pool, site) if neighbours is not None else None
        return "" if conflict is None else conflict_words(pools.devices[location], conflict)

    def _members(self, location: int, refused: CounterConsumption) -> Iterable[tuple[str, tuple[str, ...]]]:
        """(device, groups) of everything on the counter set: held first, then picked by this attempt."""
        pools, counter_set = self._facts.pools, refused.counter_set
        pool = pools.views[location].pool
        for name, entry in self._attempt.tables(pool).held:
            if entry.counter_set == counter_set:
                yield f"{name} (allocated)", entry.compatibility_groups
        for pick in self._attempt.picks:
            if pools.views[pick.location].pool is pool:
                device = pools.devices[pick.location]
                for entry in device.consumes_counters:
                    if entry.counter_set == counter_set:
                        yield f"{device.name} (for the same pod)", entry.compatibility_groups

    def _capacity_words(self, wanted: SearchableRequest, location: int) -> str:
        sharing, device = self._facts.sharing, self._facts.pools.devices[location]
        needed = sharing.needs(wanted, location)
        if isinstance(needed, CapacityMismatch):
            return f"{device.name} {needed.reason}"
        exhausted = sharing.exhausted(wanted, location, self._attempt.shared(location) or ())
        return "" if exhausted is None else capacity_words(device, exhausted)

    def constraint_words(self, claim: int, wanted: SearchableRequest, location: int) -> str:
        """Which constraint keeps the device out, and by which values."""
        refusing = self._attempt.refusing_constraint(claim, wanted, location)
        return "" if refusing is None else clash_words(self._facts.pools.devices[location], refusing)
