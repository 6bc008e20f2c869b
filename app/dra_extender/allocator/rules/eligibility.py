"""What decides about a device without looking at the picks of this attempt; asked once per request option and device of a node."""

from enum import IntEnum
from typing import Final

from dra_extender.allocator.demand.demand import ALL, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, VerdictRow
from dra_extender.allocator.pools.node_match import MALFORMED, REACHABLE
from dra_extender.allocator.pools.pools import SliceView
from dra_extender.allocator.rules.capacity import CapacityError, CapacityMismatch
from dra_extender.allocator.rules.node_view import NodeView as NodeFacts
from dra_extender.allocator.rules.taints import untolerated
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.device import Device
from dra_extender.model.rejection import Code, Rejection


class DeviceVerdict(IntEnum):
    """The first thing that speaks against a device, in the order of the tests; ELIGIBLE if nothing does."""

    UNKNOWN = 0
    ELIGIBLE = 1
    TAKEN = 2
    BINDING_CONDITIONS_OFF = 3
    NO_MATCH = 4
    OTHER_NODE = 5
    NODE_OPERATIONS = 6
    NODE_ALLOCATABLE = 7
    PARTITIONABLE_OFF = 8
    TAINTED = 9
    MISFIT = 10
    EXHAUSTED = 11
    GROUPS_OFF = 12


UNSELECTABLE = frozenset(
    {
        DeviceVerdict.BINDING_CONDITIONS_OFF,
        DeviceVerdict.GROUPS_OFF,
        DeviceVerdict.NO_MATCH,
        DeviceVerdict.OTHER_NODE,
        DeviceVerdict.MISFIT,
    }
)
"""Standings of devices that a request does not mean at all; mode All leaves them out, while any other bad standing makes
it fail."""

_LOOKS: Final = 255
"""Devices are counted in groups of one more."""


class Eligibility:
    """The standings of all devices of a node for one request option, found out on first need."""

    __slots__ = ("_exact", "_facts", "_label", "_rows", "_sharing", "_standings", "_wanted")

    def __init__(self, wanted: SearchableRequest, label: str, facts: NodeFacts) -> None:
        self._wanted = wanted
        self._label = label
        self._facts = facts
        self._sharing = facts.sharing
        self._exact = wanted.count != ALL
        count = len(facts.pools.devices)
        known = None if wanted.look is None else facts.standings.get(wanted.look)
        self._standings = bytearray(count) if known is None else known
        if wanted.look is not None:
            facts.standings[wanted.look] = self._standings
        self._rows: dict[int, VerdictRow] = {}

    def of(self, location: int) -> int:
        """The standing (a `DeviceVerdict` value) of the device at a location.

        Mode ExactCount looks first whether the device is taken, so that selectors are not evaluated on taken devices; mode All
        looks later.

        Raises:
            Fatal: a selector does not compile or fails on this device, an amount of capacity cannot be computed, or the
                deadline passed meanwhile.
        """
        standing = self._standings[location]
        if not standing:
            standing = self._standings[location] = self._find(location)
        return standing

    def all(self) -> bytes:
        """The standings of all devices, by location; raises as `of` does, and goes on where it was interrupted."""
        standings = self._standings
        location = standings.find(0)
        while location >= 0:
            standings[location] = self._find(location)
            location = standings.find(0, location)
        return bytes(standings)

    def means(self, location: int) -> bool:
        """Whether the request means this device, taken or not; for explanations.

        Raises:
            Fatal: a selector does not compile or fails on the device, or the deadline passed meanwhile.
        """
        view = self._facts.pools.views[location]
        return self._wanted.selectors.always or self._selected(view, location - view.base)

    def told(self, location: int) -> DeviceVerdict:
        """As `of`, for explanations: UNKNOWN where a selector fails."""
        try:
            return DeviceVerdict(self.of(location))
        except SearchEndedError:
            return DeviceVerdict.UNKNOWN

    def _find(self, location: int) -> int:
        facts, wanted = self._facts, self._wanted
        if location & _LOOKS == _LOOKS:
            facts.look(_LOOKS + 1)
        pools = facts.pools
        device, view = pools.devices[location], pools.views[location]
        if facts.groups_hide and any(each.compatibility_groups for each in device.consumes_counters):
            return DeviceVerdict.GROUPS_OFF
        taken = not wanted.admin and facts.is_taken(location)
        if taken and self._exact:
            return DeviceVerdict.TAKEN
        if device.binding_conditions and facts.conditions_hide:
            return DeviceVerdict.BINDING_CONDITIONS_OFF
        if not wanted.selectors.always and not self._selected(view, location - view.base):
            return DeviceVerdict.NO_MATCH
        if view.reachable is not None and not self._reachable(device, view.reachable[location - view.base]):
            return DeviceVerdict.OTHER_NODE
        if self._sharing.on and (device.capacity or wanted.capacity):
            lacking = self._lacking(location)
            if lacking:
                return lacking
        if taken:
            return DeviceVerdict.TAKEN
        return self._usable(location)

    def _selected(self, view: SliceView, position: int) -> bool:
        row = self._rows.get(view.base)
        if row is None:
            row = self._rows[view.base] = self._wanted.selectors.row(view.published)
        try:
            return row.matches(view.published, position, self._facts.deadline)
        except SelectorError as problem:
            device = view.published.devices[position].name
            where = {"claim": self._label, "request": self._wanted.name, "device": device}
            raise SearchEndedError(Rejection(code=problem.code, detail=str(problem), **where)) from problem
        except SelectionTimeoutError as problem:
            rejection = Rejection(code=Code.SEARCH_LIMIT, detail="time was up while a selector was running")
            raise SearchEndedError(rejection) from problem

    def _lacking(self, location: int) -> DeviceVerdict | None:
        """What is wrong with the capacity of the device; what is given already counts later for mode All, as it makes it fail."""
        try:
            if isinstance(self._sharing.needs(self._wanted, location), CapacityMismatch):
                return DeviceVerdict.MISFIT
        except CapacityError as problem:
            device = self._facts.pools.devices[location].name
            where = {"claim": self._label, "request": self._wanted.name, "device": device}
            raise SearchEndedError(
                Rejection(code=Code.AMOUNT_INVALID, detail=f"device {device}: {problem}", **where)
            ) from problem
        if (
            (self._exact or not self._facts.rules.all_needs_used_up_devices)
            and self._facts.holdings(location)
            and self._sharing.exhausted(self._wanted, location) is not None
        ):
            return DeviceVerdict.EXHAUSTED
        return None

    def _reachable(self, device: Device, reach: int) -> bool:
        if reach == MALFORMED:
            where = {"claim": self._label, "request": self._wanted.name, "device": device.name}
            raise SearchEndedError(
                Rejection(code=Code.POOL_INVALID, detail=f"device {device.name}: malformed node selector", **where)
            )
        return reach == REACHABLE

    def _usable(self, location: int) -> int:
        facts = self._facts
        device = facts.pools.devices[location]
        if facts.pools.views[location].published.skip_node_operations and not facts.operations:
            return DeviceVerdict.NODE_OPERATIONS
        if device.node_allocatable and not facts.rules.unaccounted_devices:
            return DeviceVerdict.NODE_ALLOCATABLE
        partitionable = facts.features.partitionable_devices
        if not partitionable and not all(each.synthetic for each in device.consumes_counters):
            return DeviceVerdict.PARTITIONABLE_OFF
        tainted = device.taints and facts.features.device_taints
        if tainted and untolerated(device.taints, self._wanted.tolerations) is not None:
            return DeviceVerdict.TAINTED
        return DeviceVerdict.ELIGIBLE
