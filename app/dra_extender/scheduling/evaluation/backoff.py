"""Devices and nodes that one pod does not get for some time, because they have just failed for it.

Everything is in memory: after a restart of the service, a pod may get the device or node at once.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.scheduling.ports.cluster import Clock

DEVICES_IN_BACKOFF: Final = Rejection(code=Code.DEVICES_IN_BACKOFF)
NODE_IN_BACKOFF: Final = Rejection(code=Code.NODE_IN_BACKOFF)
_UNDONE_LIMIT: Final = 2
_NODE_SECONDS: Final = 60.0
_FORGET_SECONDS: Final = 600.0
_SHORTEST_SECONDS: Final = 0.001


@dataclass(slots=True)
class _UndoneBinds:
    """How often binds of one pod to one node undid their allocations, when last, and until when the node is in backoff."""

    count: int = 0
    last: float = 0.0
    until: float = 0.0


class DeviceBackoff:
    """By pod, devices that failed to become ready for it (KEP-5007), and nodes where its binds undid their allocations twice.

    Drivers are asked to withdraw a failed device, by a taint for example, but the pod may be scheduled again before that.
    Filter, bind and the check after the write apply one rule, so repeated undoing on a node is not expected.  If it happens,
    the pod goes to other nodes instead of writing without end.
    `ended` is called with the UID of a pod that may use its devices or a node again.
    """

    def __init__(self, clock: Clock, seconds: float, ended: Callable[[str], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ended = ended
        self._devices: dict[str, dict[DeviceId, float]] = {}
        self._undone: dict[str, dict[str, _UndoneBinds]] = {}

    def start(self, pod_uid: str, devices: Collection[DeviceId]) -> None:
        """Begin the backoff of devices that have just failed for the pod.  The caller runs in the event loop."""
        if self._seconds:
            end = self._clock.monotonic() + self._seconds
            self._devices.setdefault(pod_uid, {}).update(dict.fromkeys(devices, end))
            _call_in(self._seconds, self._check_devices, pod_uid)

    def bind_undone(self, pod_uid: str, node: str) -> None:
        """Count a bind that undid, or refused to write, the pod's allocation on the node.  The caller runs in the event loop."""
        binds = self._undone.setdefault(pod_uid, {}).setdefault(node, _UndoneBinds())
        binds.count += 1
        binds.last = self._clock.monotonic()
        if binds.count >= _UNDONE_LIMIT:
            binds.until = binds.last + _NODE_SECONDS
        _call_in(_NODE_SECONDS if binds.until else _FORGET_SECONDS, self.check_node, pod_uid, node)

    def devices_of(self, pod_uid: str) -> frozenset[DeviceId]:
        devices = self._devices.get(pod_uid)
        if not devices:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(device for device, end in devices.items() if end > now)

    def nodes_of(self, pod_uid: str) -> frozenset[str]:
        nodes = self._undone.get(pod_uid)
        if not nodes:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(name for name, binds in nodes.items() if binds.until > now)

    @property
    def pods(self) -> Collection[str]:
        """UIDs of the pods for which devices or nodes may be in backoff."""
        return self._devices.keys() | self._undone.keys()

    def forget(self, pod_uid: str) -> None:
        """End the backoff of a pod that is bound."""
        self._devices.pop(pod_uid, None)
        self._undone.pop(pod_uid, None)

    def _check_devices(self, pod_uid: str) -> None:
        devices = self._devices.get(pod_uid)
        if devices is None:
            return
        remaining = self.devices_of(pod_uid)
        if len(remaining) == len(devices):
            # The event loop's timers go by another clock and may fire a little early.
            _call_in(min(devices.values()) - self._clock.monotonic(), self._check_devices, pod_uid)
            return
        if remaining:
            self._devices[pod_uid] = {device: devices[device] for device in remaining}
        else:
            del self._devices[pod_uid]
        self._ended(pod_uid)

    def check_node(self, pod_uid: str, node: str) -> None:
        """End a node's backoff that is over, and forget a node whose last failure is long ago; a timer calls this."""
        nodes = self._undone.get(pod_uid, {})
        binds, now = nodes.get(node), self._clock.monotonic()
        if binds is None:
            return
        if binds.until > now:
            # The event loop's timers go by another clock and may fire a little early.
            _call_in(binds.until - now, self.check_node, pod_uid, node)
        elif binds.until:
            binds.until = 0.0
            _call_in(binds.last + _FORGET_SECONDS - now, self.check_node, pod_uid, node)
            self._ended(pod_uid)
        elif binds.last + _FORGET_SECONDS <= now:
            del nodes[node]
            if not nodes:
                del self._undone[pod_uid]


def _call_in(seconds: float, check: Callable[..., None], *about: str) -> None:
    asyncio.get_running_loop().call_later(max(seconds, _SHORTEST_SECONDS), check, *about)


class BackoffUsage:
    """A usage in which the devices in backoff are taken, too, without drawing on anything else.  It is itself a `Usage`."""

    __slots__ = ("_base", "_in_backoff")

    def __init__(self, base: Usage, devices: Collection[DeviceId]) -> None:
        self._base = base
        self._in_backoff: dict[PoolId, dict[str, DeviceHolding]] = {}
        for driver, pool, device in devices:
            nothing = DeviceHolding(driver=driver, pool=pool, device=device, consumption=(), in_backoff=True)
            self._in_backoff.setdefault((driver, pool), {})[device] = nothing

    def pool(self, pool_id: PoolId) -> PoolUsage:
        """Return what is in use in the pool, devices in backoff included."""
        base, in_backoff = self._base.pool(pool_id), self._in_backoff.get(pool_id)
        if not in_backoff:
            return base
        return {**base, **{device: (*base.get(device, ()), holdings) for device, holdings in in_backoff.items()}}

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        return self._base.has_compatibility_rules(pool_id)
