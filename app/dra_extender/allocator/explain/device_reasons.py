"""Why one device cannot be picked beside what is held and picked: codes of exclusions, and sentences."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.explain.messages import (
    bound_message,
    capacity_message,
    closed_set_message,
    constraint_message,
    counter_message,
    groups_message,
    node_allocatable_message,
    taint_message,
)
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.compatible_only_with import DeviceLocation, conflict_message
from dra_extender.allocator.rules.eligibility import DeviceVerdict
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import Exclusion, SearchState
from dra_extender.allocator.state.features import why_off
from dra_extender.allocator.state.rejection import Code
from dra_extender.model.device import CounterConsumption

EXCLUSION_CODES: Final = {
    Exclusion.NONE: None,
    Exclusion.PICKED: Code.COMBINATION,
    Exclusion.GROUPS: Code.GROUPS,
    Exclusion.COUNTERS: Code.COUNTERS,
    Exclusion.CONSTRAINT: Code.CONSTRAINT,
    Exclusion.CAPACITY: Code.CAPACITY,
    Exclusion.NEIGHBOURS: Code.NEIGHBOURS,
}
_NEEDED: Final = {
    DeviceVerdict.BINDING_CONDITIONS_OFF: "device_binding_and_status",
    DeviceVerdict.GROUPS_OFF: "compatibility_groups",
    DeviceVerdict.PARTITIONABLE_OFF: "partitionable_devices",
}


class DeviceSlot(NamedTuple):
    """A slot to be filled: the device number `picked` of a request."""

    claim: int
    request: int
    picked: int
    wanted: SearchableRequest


class DeviceReasons:
    """The reasons against single devices in the present state of a search."""

    __slots__ = ("_node_view", "_state")

    def __init__(self, node_view: NodeView, state: SearchState) -> None:
        self._node_view = node_view
        self._state = state

    def of(self, code: Code, place: DeviceSlot, location: int, verdict: DeviceVerdict) -> str:
        """A sentence about the device at a location; empty if code and name suffice."""
        pools = self._node_view.pools
        device, pool = pools.devices[location], pools.views[location].pool
        match code:
            case Code.GROUPS:
                return self._groups_message(place.wanted, location)
            case Code.NEIGHBOURS:
                return self._neighbour_message(location)
            case Code.COUNTERS:
                shortage = self._state.tables(pool).counters.shortage(device.consumes_counters)
                return counter_message(device, shortage) if shortage is not None else ""
            case Code.CONSTRAINT:
                return self.constraint_message_for(place.claim, place.wanted, location)
            case Code.CAPACITY:
                return self._capacity_message(place.wanted, location)
            case Code.TAINTED:
                return taint_message(device, place.wanted.tolerations)
            case Code.BOUND_ELSEWHERE | Code.NODE_ALLOCATABLE:
                elsewhere = self._node_view.nodes_elsewhere(location)
                return bound_message(device, elsewhere) if elsewhere else node_allocatable_message(device)
        feature = _NEEDED.get(verdict)
        return f"{device.name} needs {why_off(feature)}" if feature else ""

    def _groups_message(self, wanted: SearchableRequest, location: int) -> str:
        pools, admin = self._node_view.pools, wanted.admin
        device = pools.devices[location]
        tables = self._state.tables(pools.views[location].pool)
        if tables.groups is not None:
            conflict = tables.groups.conflict(device.consumes_counters, admin=admin)
            if conflict is None:
                return ""
            return groups_message(device, conflict, self._members(location, conflict[0], admin=admin))
        closed = tables.grouped.closed(device.consumes_counters, admin=admin) if tables.grouped is not None else None
        return "" if closed is None else closed_set_message(device, closed)

    def _neighbour_message(self, location: int) -> str:
        pools = self._node_view.pools
        view = pools.views[location]
        neighbours, device_location = self._state.neighbours, DeviceLocation(view.published, location - view.base)
        conflict = neighbours.conflict(view.pool, device_location) if neighbours is not None else None
        return "" if conflict is None else conflict_message(pools.devices[location], conflict)

    def _members(
        self, location: int, refused: CounterConsumption, *, admin: bool
    ) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Yield (device, groups) of the members of the counter set that count for the request: held devices first, then picks."""
        pools, counter_set = self._node_view.pools, refused.counter_set
        pool = pools.views[location].pool
        for name, entry in self._state.tables(pool).held:
            if entry.counter_set == counter_set and not (admin and entry.grouped_by_policy):
                yield f"{name} (allocated)", entry.compatibility_groups
        for pick in self._state.picks:
            if pools.views[pick.location].pool is pool:
                device = pools.devices[pick.location]
                for entry in device.consumes_counters:
                    by_policy = entry.grouped_by_policy and (admin or pick.wanted.admin)
                    if entry.counter_set == counter_set and not by_policy:
                        yield f"{device.name} (for the same pod)", entry.compatibility_groups

    def _capacity_message(self, wanted: SearchableRequest, location: int) -> str:
        sharing, device = self._node_view.sharing, self._node_view.pools.devices[location]
        needed = sharing.needs(wanted, location)
        if isinstance(needed, CapacityMismatch):
            return f"{device.name} {needed.reason}"
        exhausted = sharing.exhausted(wanted, location, self._state.shared(location) or ())
        return "" if exhausted is None else capacity_message(device, exhausted)

    def constraint_message_for(self, claim: int, wanted: SearchableRequest, location: int) -> str:
        """Which constraint excludes the device, and by which values."""
        refusing = self._state.refusing_constraint(claim, wanted, location)
        return "" if refusing is None else constraint_message(self._node_view.pools.devices[location], refusing)
