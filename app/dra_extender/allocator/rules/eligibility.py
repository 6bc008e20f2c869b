"""The verdict about a device for a request option that does not depend on picks; found once per option and device of a node."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final

from dra_extender.allocator.demand.demand import ALL, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, VerdictRow
from dra_extender.allocator.pools.pools import MALFORMED, REACHABLE, SliceView
from dra_extender.allocator.rules.capacity import CapacityError, CapacityMismatch
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.reasons import Code, Rejection, SearchEndedError, time_is_up
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

_NO_EXECUTE: Final = "NoExecute"
_REPELLING: Final = frozenset({"NoSchedule", _NO_EXECUTE})
"""Effects of taints that keep claims away."""

_POLL_MASK: Final = 255
"""The deadline is polled at every 256th location."""


class Eligibility:
    """The verdicts about all devices of a node for one request option, computed on first need."""

    __slots__ = ("_exact", "_label", "_node_view", "_request", "_rows", "_sharing", "_verdicts")

    def __init__(self, request: SearchableRequest, label: str, node_view: NodeView) -> None:
        self._request = request
        self._label = label
        self._node_view = node_view
        self._sharing = node_view.sharing
        self._exact = request.count != ALL
        count = len(node_view.pools.devices)
        verdicts = None if request.equivalence_key is None else node_view.verdicts_by_key.get(request.equivalence_key)
        self._verdicts = bytearray(count) if verdicts is None else verdicts
        if request.equivalence_key is not None:
            node_view.verdicts_by_key[request.equivalence_key] = self._verdicts
        self._rows: dict[int, VerdictRow] = {}

    @property
    def devices(self) -> int:
        """How many devices the node has."""
        return len(self._verdicts)

    def verdict(self, location: int) -> int:
        """Return the verdict (a `DeviceVerdict` value) about the device at a location.

        For mode ExactCount a device that is taken is TAKEN before its selectors are evaluated; mode All evaluates them first.  The
        search ends where a selector fails, an amount of capacity cannot be computed, or the deadline passed meanwhile.
        """
        verdict = self._verdicts[location]
        if not verdict:
            verdict = self._verdicts[location] = self._judge(location)
        return verdict

    def verdicts(self) -> bytes:
        """Return the verdicts about all devices, by location; raises as `verdict` does, and goes on where it was interrupted."""
        verdicts = self._verdicts
        location = verdicts.find(0)
        while location >= 0:
            verdicts[location] = self._judge(location)
            location = verdicts.find(0, location)
        return bytes(verdicts)

    def selects(self, location: int) -> bool:
        """Return whether the request selects this device, taken or not; for explanations."""
        view = self._node_view.pools.views[location]
        return self._request.selectors.is_empty or self._selects(view, location - view.base)

    def _judge(self, location: int) -> int:
        node_view, request = self._node_view, self._request
        if location & _POLL_MASK == _POLL_MASK:
            node_view.poll_deadline(_POLL_MASK + 1)
        pools = node_view.pools
        device, view = pools.devices[location], pools.views[location]
        if node_view.hides_grouped_devices and any(entry.compatibility_groups for entry in device.consumes_counters):
            return DeviceVerdict.GROUPS_OFF
        is_taken = not request.admin and node_view.is_taken(location)
        if is_taken and self._exact:
            return DeviceVerdict.TAKEN
        if device.binding_conditions and node_view.hides_binding_conditions:
            return DeviceVerdict.BINDING_CONDITIONS_OFF
        if not request.selectors.is_empty and not self._selects(view, location - view.base):
            return DeviceVerdict.NO_MATCH
        if view.reachable is not None:
            reach = view.reachable[location - view.base]
            if reach == MALFORMED:
                raise self._failure(Code.POOL_INVALID, f"device {device.name}: malformed node selector", device)
            if reach != REACHABLE:
                return DeviceVerdict.OTHER_NODE
        if self._sharing.enabled and (device.capacity or request.capacity):
            misfit = self._judge_capacity(device, location)
            if misfit:
                return misfit
        return DeviceVerdict.TAKEN if is_taken else self._judge_free_device(device, location)

    def _judge_capacity(self, device: Device, location: int) -> DeviceVerdict | None:
        """Return MISFIT or EXHAUSTED, None if the capacity fits.  Mode All may select exhausted devices and fail on them later."""
        try:
            if isinstance(self._sharing.needs(self._request, location), CapacityMismatch):
                return DeviceVerdict.MISFIT
        except CapacityError as problem:
            raise self._failure(Code.AMOUNT_INVALID, f"device {device.name}: {problem}", device) from problem
        if (
            self._exact
            and self._node_view.holdings(location)
            and self._sharing.exhausted(self._request, location) is not None
        ):
            return DeviceVerdict.EXHAUSTED
        return None

    def _judge_free_device(self, device: Device, location: int) -> DeviceVerdict:
        """Judge a device that is selected and free: a new condition of devices for being used belongs here."""
        node_view, features = self._node_view, self._node_view.features
        if device.allow_multiple_allocations and not self._request.admin and node_view.nodes_elsewhere(location):
            return DeviceVerdict.BOUND_ELSEWHERE
        if node_view.pools.views[location].published.skip_node_operations and not node_view.skips_node_operations:
            return DeviceVerdict.NODE_OPERATIONS
        if device.node_allocatable and not node_view.release.as_upstream:
            return DeviceVerdict.NODE_ALLOCATABLE
        if not features.partitionable_devices and not all(entry.synthetic for entry in device.consumes_counters):
            return DeviceVerdict.PARTITIONABLE_OFF
        if (
            device.taints
            and features.device_taints
            and untolerated(device.taints, self._request.tolerations) is not None
        ):
            return DeviceVerdict.TAINTED
        return DeviceVerdict.ELIGIBLE

    def _selects(self, view: SliceView, position: int) -> bool:
        row = self._rows.get(view.base)
        if row is None:
            row = self._rows[view.base] = self._request.selectors.row(view.published)
        try:
            return row.matches(view.published, position, self._node_view.deadline)
        except SelectorError as problem:
            raise self._failure(problem.code, str(problem), view.published.devices[position]) from problem
        except SelectionTimeoutError as problem:
            raise time_is_up("while a selector was running") from problem

    def _failure(self, code: Code, detail: str, device: Device) -> SearchEndedError:
        request = self._request.name
        return SearchEndedError(
            Rejection(code=code, claim=self._label, request=request, device=device.name, detail=detail)
        )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return whether a toleration covers a taint: equal or no effect, equal or no key, and the operator agrees (KEP-5055)."""
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
    """Return the first taint that keeps a device or a node away; None if they all are tolerated."""
    return next(untolerated_taints(taints, tolerations), None)


def untolerated_taints(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> Iterator[DeviceTaint]:
    """Yield the taints that are not tolerated; effects other than NoSchedule and NoExecute, such as None, keep nothing away."""
    for taint in taints:
        if taint.effect in _REPELLING and not any(tolerates(toleration, taint) for toleration in tolerations):
            yield taint


def briefly_tolerated(
    taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]
) -> Iterator[tuple[DeviceTaint, int]]:
    """Yield the NoExecute taints that are tolerated for some seconds only, and the seconds."""
    for taint in (taint for taint in taints if taint.effect == _NO_EXECUTE):
        limits = [toleration.toleration_seconds for toleration in tolerations if tolerates(toleration, taint)]
        seconds = [limit for limit in limits if limit is not None]
        if seconds and len(seconds) == len(limits):
            yield taint, max(0, min(seconds))
