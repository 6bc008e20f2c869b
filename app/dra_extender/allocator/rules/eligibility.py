"""The verdict about a device for a request option that does not depend on picks; found once per option and device of a node."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from dra_extender.allocator.demand.demand import ALL, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, VerdictRow
from dra_extender.allocator.pools.node_match import MALFORMED, REACHABLE
from dra_extender.allocator.pools.pools import SliceView
from dra_extender.allocator.rules.capacity import CapacityError, CapacityMismatch
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.device import Device, DeviceTaint


class DeviceVerdict(IntEnum):
    """The first reason against a device, in the order of the tests; ELIGIBLE if there is none."""

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
    BOUND_ELSEWHERE = 13


VERDICT_CODES: Final = {
    DeviceVerdict.TAKEN: Code.IN_USE,
    DeviceVerdict.BINDING_CONDITIONS_OFF: Code.REQUEST_UNSUPPORTED,
    DeviceVerdict.GROUPS_OFF: Code.GROUPS_OFF,
    DeviceVerdict.BOUND_ELSEWHERE: Code.BOUND_ELSEWHERE,
    DeviceVerdict.NODE_OPERATIONS: Code.NODE_OPERATIONS,
    DeviceVerdict.NODE_ALLOCATABLE: Code.NODE_ALLOCATABLE,
    DeviceVerdict.PARTITIONABLE_OFF: Code.REQUEST_UNSUPPORTED,
    DeviceVerdict.TAINTED: Code.TAINTED,
    DeviceVerdict.MISFIT: Code.CAPACITY,
    DeviceVerdict.EXHAUSTED: Code.CAPACITY,
}
"""The codes of verdicts against devices that a request selects; the others are no reason to be listed."""

UNSELECTABLE = frozenset(
    {
        DeviceVerdict.BINDING_CONDITIONS_OFF,
        DeviceVerdict.GROUPS_OFF,
        DeviceVerdict.NO_MATCH,
        DeviceVerdict.OTHER_NODE,
        DeviceVerdict.MISFIT,
    }
)
"""Verdicts about devices that a request does not select; mode All leaves them out, any other adverse verdict makes it fail."""

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep claims away."""

_POLL_MASK: Final = 255
"""The deadline is polled at every 256th location."""


class Eligibility:
    """The verdicts about all devices of a node for one request option, computed on first need."""

    __slots__ = ("_exact", "_label", "_node_view", "_rows", "_sharing", "_verdicts", "_wanted")

    def __init__(self, wanted: SearchableRequest, label: str, node_view: NodeView) -> None:
        self._wanted = wanted
        self._label = label
        self._node_view = node_view
        self._sharing = node_view.sharing
        self._exact = wanted.count != ALL
        count = len(node_view.pools.devices)
        known = None if wanted.equivalence_key is None else node_view.verdicts_by_key.get(wanted.equivalence_key)
        self._verdicts = bytearray(count) if known is None else known
        if wanted.equivalence_key is not None:
            node_view.verdicts_by_key[wanted.equivalence_key] = self._verdicts
        self._rows: dict[int, VerdictRow] = {}

    def of(self, location: int) -> int:
        """The verdict (a `DeviceVerdict` value) about the device at a location.

        For mode ExactCount a device that is taken is TAKEN before its selectors are evaluated; mode All evaluates them first.

        Raises:
            SearchEndedError: a selector does not compile or fails on this device, an amount of capacity cannot be computed, or the
                deadline passed meanwhile.
        """
        verdict = self._verdicts[location]
        if not verdict:
            verdict = self._verdicts[location] = self._find(location)
        return verdict

    def all(self) -> bytes:
        """The verdicts about all devices, by location; raises as `of` does, and goes on where it was interrupted."""
        verdicts = self._verdicts
        location = verdicts.find(0)
        while location >= 0:
            verdicts[location] = self._find(location)
            location = verdicts.find(0, location)
        return bytes(verdicts)

    def selects(self, location: int) -> bool:
        """Whether the request selects this device, taken or not; for explanations.

        Raises:
            SearchEndedError: a selector does not compile or fails on the device, or the deadline passed meanwhile.
        """
        view = self._node_view.pools.views[location]
        return self._wanted.selectors.is_empty or self._selected(view, location - view.base)

    def verdict_or_unknown(self, location: int) -> DeviceVerdict:
        """As `of`, for explanations: UNKNOWN where a selector fails."""
        try:
            return DeviceVerdict(self.of(location))
        except SearchEndedError:
            return DeviceVerdict.UNKNOWN

    def _find(self, location: int) -> int:
        node_view, wanted = self._node_view, self._wanted
        if location & _POLL_MASK == _POLL_MASK:
            node_view.poll_deadline(_POLL_MASK + 1)
        pools = node_view.pools
        device, view = pools.devices[location], pools.views[location]
        if node_view.hides_grouped_devices and any(each.compatibility_groups for each in device.consumes_counters):
            return DeviceVerdict.GROUPS_OFF
        taken = not wanted.admin and node_view.is_taken(location)
        if taken and self._exact:
            return DeviceVerdict.TAKEN
        if device.binding_conditions and node_view.hides_binding_conditions:
            return DeviceVerdict.BINDING_CONDITIONS_OFF
        if not wanted.selectors.is_empty and not self._selected(view, location - view.base):
            return DeviceVerdict.NO_MATCH
        if view.reachable is not None and not self._reachable(device, view.reachable[location - view.base]):
            return DeviceVerdict.OTHER_NODE
        if self._sharing.enabled and (device.capacity or wanted.capacity):
            capacity_verdict = self._capacity_verdict(location)
            if capacity_verdict:
                return capacity_verdict
        if taken:
            return DeviceVerdict.TAKEN
        return self._usable(location)

    def _selected(self, view: SliceView, position: int) -> bool:
        row = self._rows.get(view.base)
        if row is None:
            row = self._rows[view.base] = self._wanted.selectors.row(view.published)
        try:
            return row.matches(view.published, position, self._node_view.deadline)
        except SelectorError as problem:
            device = view.published.devices[position].name
            where = {"claim": self._label, "request": self._wanted.name, "device": device}
            raise SearchEndedError(Rejection(code=problem.code, detail=str(problem), **where)) from problem
        except SelectionTimeoutError as problem:
            rejection = Rejection(code=Code.SEARCH_LIMIT, detail="time was up while a selector was running")
            raise SearchEndedError(rejection) from problem

    def _capacity_verdict(self, location: int) -> DeviceVerdict | None:
        """MISFIT or EXHAUSTED; None if the capacity fits.  Mode All may select exhausted devices, and fails on them later."""
        try:
            if isinstance(self._sharing.needs(self._wanted, location), CapacityMismatch):
                return DeviceVerdict.MISFIT
        except CapacityError as problem:
            device = self._node_view.pools.devices[location].name
            where = {"claim": self._label, "request": self._wanted.name, "device": device}
            raise SearchEndedError(
                Rejection(code=Code.AMOUNT_INVALID, detail=f"device {device}: {problem}", **where)
            ) from problem
        if (
            (self._exact or not self._node_view.rules.all_needs_used_up_devices)
            and self._node_view.holdings(location)
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
        node_view = self._node_view
        device = node_view.pools.devices[location]
        if device.allow_multiple_allocations and not self._wanted.admin and node_view.nodes_elsewhere(location):
            return DeviceVerdict.BOUND_ELSEWHERE
        if node_view.pools.views[location].published.skip_node_operations and not node_view.skips_node_operations:
            return DeviceVerdict.NODE_OPERATIONS
        if device.node_allocatable and not node_view.rules.unaccounted_devices:
            return DeviceVerdict.NODE_ALLOCATABLE
        partitionable = node_view.features.partitionable_devices
        if not partitionable and not all(each.synthetic for each in device.consumes_counters):
            return DeviceVerdict.PARTITIONABLE_OFF
        tainted = device.taints and node_view.features.device_taints
        if tainted and untolerated(device.taints, self._wanted.tolerations) is not None:
            return DeviceVerdict.TAINTED
        return DeviceVerdict.ELIGIBLE


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration covers a taint: equal or no effect, equal or no key, and the operator agrees (KEP-5055)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.value or "") == taint.value
    return False


def untolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that keeps the device away; effects other than NoSchedule and NoExecute, such as None, never do."""
    for taint in taints:
        if taint.effect in _REPELLING and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
