"""Sentences about single devices, in the terms of the API: why one cannot be picked beside what is held and picked."""

from collections.abc import Iterable, Iterator
from typing import Final

from dra_extender.allocator.demand.constraints import ValueSet, value_set
from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.rules.capacity import CapacityMismatch, amount_text
from dra_extender.allocator.rules.compatible_only_with import SlicePosition, conflict_message
from dra_extender.allocator.rules.counter_sets import CounterBalance
from dra_extender.allocator.rules.eligibility import DeviceVerdict, untolerated_taints
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import DeviceSlot, Pick, SearchState
from dra_extender.allocator.state.features import why_off
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import listed
from dra_extender.model.device import CounterConsumption, Device, DeviceTaint

_NEEDED_FEATURES: Final = {
    DeviceVerdict.BINDING_CONDITIONS_OFF: "device_binding_and_status",
    DeviceVerdict.GROUPS_OFF: "compatibility_groups",
    DeviceVerdict.PARTITIONABLE_OFF: "partitionable_devices",
}
_SHOWN: Final = 3


class DeviceMessages:
    """Sentences about devices in the present state of a search."""

    __slots__ = ("_node_view", "_state")

    def __init__(self, node_view: NodeView, state: SearchState) -> None:
        self._node_view = node_view
        self._state = state

    def message(self, code: Code, slot: DeviceSlot, location: int, verdict: DeviceVerdict) -> str:
        """Return a sentence about the device at a location; empty if code and name suffice."""
        device = self._node_view.pools.devices[location]
        match code:
            case Code.GROUPS:
                return self._groups(slot, location)
            case Code.NEIGHBOURS if self._state.neighbours is not None:
                view = self._node_view.pools.views[location]
                slice_position = SlicePosition(view.published, location - view.base)
                conflict = self._state.neighbours.conflict(view.pool, slice_position)
                return "" if conflict is None else conflict_message(device, conflict)
            case Code.COUNTERS:
                return self._counters(slot, location)
            case Code.CONSTRAINT:
                return self.constraint(slot.claim, slot.option, location)
            case Code.CAPACITY:
                return self._capacity(slot, location)
            case Code.TAINTED:
                taints = [*map(taint_text, untolerated_taints(device.taints, slot.option.tolerations))]
                return f"{device.name} has taint {listed(taints)}" if taints else device.name
            case Code.BOUND_ELSEWHERE | Code.NODE_ALLOCATABLE:
                nodes = sorted(self._node_view.nodes_elsewhere(location))
                if not nodes:
                    return node_allocatable_message(device)
                where = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {listed(nodes, _SHOWN)}"
                return f"{device.name} is bound to {where} as long as a claim has a share of it there"
        feature = _NEEDED_FEATURES.get(verdict)
        return f"{device.name} needs {why_off(feature)}" if feature else ""

    def constraint(self, claim: int, option: SearchableRequest, location: int) -> str:
        """Return for example `gpu-1 does not satisfy matchAttribute example.com/numa: it has 1, the others have 0`."""
        conflict = self._state.refusing_constraint(claim, option, location)
        if conflict is None:
            return ""
        text = f"{self._node_view.pools.devices[location].name} does not satisfy {conflict.constraint.text()}"
        if conflict.attribute is None:
            return f"{text}, which it does not have"
        values, joined_values = (
            value_set(conflict.attribute),
            frozenset[tuple[str, object]]().union(*conflict.joined_values),
        )
        if not values:
            return f"{text}, which has no value"
        if not conflict.constraint.distinct:
            return f"{text}: it has {_values(values)}, the others have {_values(joined_values)}"
        return f"{text}: another one has {_values(values.intersection(joined_values))} too"

    def _groups(self, slot: DeviceSlot, location: int) -> str:
        """Return for example `vgpu-0 declares [vgpu] on counter set gpu-0; mig-0 (in use) has [mig]`."""
        pools, admin = self._node_view.pools, slot.option.admin
        device, tables = pools.devices[location], self._state.tables(pools.views[location].pool)
        conflict = tables.groups.conflict(device.consumes_counters, admin=admin)
        if conflict is None:
            return ""
        entry, state = conflict
        if not self._node_view.features.compatibility_groups:
            reason = "where compatibility groups are declared, and CompatibilityGroups is off"
            return f"{device.name} draws on counter set {entry.counter_set}, {reason}"
        members = self._members(slot, location, entry, admin=admin)
        clauses = [f"{name} has {groups_text(groups)}" for name, groups in members]
        if state is not None and not state:
            clauses.append("they contradict each other, so that nothing may join them")
        elif len(clauses) > 1 and state is not None:
            clauses.append(f"together they leave {groups_text(sorted(state))}")
        if len(clauses) > _SHOWN + 1:
            clauses = [*clauses[:_SHOWN], f"{len(clauses) - _SHOWN - 1} more", clauses[-1]]
        declared = groups_text(entry.compatibility_groups)
        return f"{device.name} declares {declared} on counter set {entry.counter_set}; {'; '.join(clauses)}"

    def _members(
        self, slot: DeviceSlot, location: int, refused: CounterConsumption, *, admin: bool
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield (device, groups) of the members of the counter set that count for the request: held devices first, then picks."""
        pools, counter_set = self._node_view.pools, refused.counter_set
        pool = pools.views[location].pool
        for name, entry in self._state.tables(pool).held_entries:
            if entry.counter_set == counter_set and not (admin and entry.grouped_by_policy):
                yield f"{name} (in use)", entry.compatibility_groups
        for pick in self._state.picks:
            if pools.views[pick.location].pool is pool:
                device = pools.devices[pick.location]
                for entry in device.consumes_counters:
                    by_policy = entry.grouped_by_policy and (admin or pick.option.admin)
                    if entry.counter_set == counter_set and not by_policy:
                        taker = taker_text(self._state.demand, pick, slot)
                        yield f"{device.name} (for {taker})", entry.compatibility_groups

    def _counters(self, slot: DeviceSlot, location: int) -> str:
        """Return for example `gpu-0-mig-1g-2 needs 20 of multiprocessors in counter set gpu-0-counters, 10 remain`."""
        pools = self._node_view.pools
        device, tables = pools.devices[location], self._state.tables(pools.views[location].pool)
        shortage = tables.counters.shortage(device.consumes_counters)
        if shortage is None:
            return ""
        remaining = format_quantity(shortage.remaining)
        where = f"{shortage.counter} in counter set {shortage.counter_set}"
        if shortage.requested == 0:
            return f"{device.name} draws on a pool whose counter {where} is overdrawn ({remaining} remain)"
        takers = self._takers(slot, [pick for pick in self._state.picks if self._draws(pick, location, shortage)])
        return f"{device.name} needs {format_quantity(shortage.requested)} of {where}, {remaining} remain{takers}"

    def _draws(self, pick: Pick, location: int, shortage: CounterBalance) -> bool:
        """Return whether a pick takes of what is short for the device at a location."""
        pools = self._node_view.pools
        return pools.views[pick.location].pool is pools.views[location].pool and any(
            entry.counter_set == shortage.counter_set and any(name == shortage.counter for name, _ in entry.counters)
            for entry in pools.devices[pick.location].consumes_counters
        )

    def _takers(self, slot: DeviceSlot, picks: Iterable[Pick]) -> str:
        """Return the part of a sentence that names for whom the search took what is short; empty without picks."""
        takers = dict.fromkeys(taker_text(self._state.demand, pick, slot) for pick in picks)
        return f" beside what {listed(list(takers))} {'takes' if len(takers) == 1 else 'take'}" if takers else ""

    def _capacity(self, slot: DeviceSlot, location: int) -> str:
        """Return for example `gpu-0 has 2Gi of memory left, 4Gi would be needed`."""
        sharing, device = self._node_view.sharing, self._node_view.pools.devices[location]
        needs = sharing.needs(slot.option, location)
        if isinstance(needs, CapacityMismatch):
            return f"{device.name} {needs.reason}"
        shortage = sharing.exhausted(slot.option, location, self._state.shares.get(location, ()))
        if shortage is None:
            return ""
        like = dict(device.capacity)[shortage.name].text
        remaining, needed = amount_text(shortage.remaining, like), amount_text(shortage.requested, like)
        takers = self._takers(slot, [pick for pick in self._state.picks if pick.location == location])
        return f"{device.name} has {remaining} of {shortage.name} left{takers}, {needed} would be needed"


def taker_text(demand: Demand, pick: Pick, slot: DeviceSlot) -> str:
    """Return for whom a device is picked, as seen from another slot: `the same request`, `request a`, `claim b, request a`."""
    request = f"request {pick.option.name}"
    if pick.claim != slot.claim:
        return f"claim {demand.claims[pick.claim].label}, {request}"
    return "the same request" if pick.option is slot.option else request


def _values(values: ValueSet) -> str:
    return listed(
        [
            f'"{value}"' if kind == "str" else str(value).lower() if kind == "boo" else str(value)
            for kind, value in sorted(values)
        ]
    )


def taint_text(taint: DeviceTaint) -> str:
    """Return for example `example.com/broken=yes:NoSchedule`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def toleration_text(toleration: DeviceToleration) -> str:
    """Return for example `example.com/broken=yes:NoSchedule`; without `=`, or without an effect, all are tolerated."""
    value = "" if toleration.operator == "Exists" else f"={toleration.value or ''}"
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"{toleration.key}{value}{effect}"


def node_allocatable_message(device: Device) -> str:
    """Return for example `cpu-0 counts against cpu, memory of its node (nodeAllocatableResources)`."""
    return f"{device.name} counts against {listed(device.node_allocatable)} of its node (nodeAllocatableResources)"


def groups_text(groups: Iterable[str]) -> str:
    """Return a group list as `[a, b]`, or `no groups`."""
    text = ", ".join(groups)
    return f"[{text}]" if text else "no groups"
