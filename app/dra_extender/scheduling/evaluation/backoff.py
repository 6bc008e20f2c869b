"""Devices and nodes that one pod does not get for some time, because they have just failed for it.

Everything is in memory: after a restart of the service, a pod may get the device or node at once.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.scheduling.ports.cluster import Clock

DEVICES_IN_BACKOFF: Final = Rejection(code=Code.COOLING_DOWN)
NODE_IN_BACKOFF: Final = Rejection(code=Code.NODE_BACKED_OFF)
_UNDONE_LIMIT: Final = 2
_NODE_SECONDS: Final = 60.0
_FORGET_SECONDS: Final = 600.0
_SHORTEST_SECONDS: Final = 0.001


class DeviceBackoff:
    """By pod, the devices that failed to become ready for it (KEP-5007), and in `nodes` the nodes in backoff.

    Drivers are asked to withdraw a failed device, by a taint for example, but the pod may be scheduled again before that.
    `ended` is called with the UID of a pod that may use its devices or nodes again.
    `pods_with_devices` has the UIDs of the pods for which devices may be in backoff.
    """

    def __init__(self, clock: Clock, seconds: float, ended: Callable[[str], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ended = ended
        self._until: dict[str, dict[DeviceId, float]] = {}
        self.pods_with_devices: Final = self._until.keys()
        self.nodes = NodeBackoff(clock, ended)

    def start(self, pod_uid: str, devices: Collection[DeviceId]) -> None:
        """These devices have just failed for the pod.  The caller runs in the event loop."""
        if not self._seconds:
            return
        end = self._clock.monotonic() + self._seconds
        self._until.setdefault(pod_uid, {}).update(dict.fromkeys(devices, end))
        asyncio.get_running_loop().call_later(self._seconds, self._over, pod_uid)

    def of(self, pod_uid: str) -> frozenset[DeviceId]:
        """The devices that are in backoff for the pod now."""
        found = self._until.get(pod_uid)
        if not found:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(device for device, end in found.items() if end > now)

    @property
    def active(self) -> bool:
        """Whether any device or node is in backoff for some pod."""
        return bool(self._until) or self.nodes.active

    @property
    def pods(self) -> Collection[str]:
        """UIDs of the pods for which devices or nodes may be in backoff."""
        return self.pods_with_devices | self.nodes.pods

    def forget(self, pod_uid: str) -> None:
        """The pod is bound: its backoff ends."""
        self._until.pop(pod_uid, None)
        self.nodes.forget(pod_uid)

    def _over(self, pod_uid: str) -> None:
        found = self._until.get(pod_uid)
        if found is None:
            return
        left = self.of(pod_uid)
        if len(left) == len(found):
            # The event loop's timers go by another clock and may fire a little early.
            soonest = min(found.values()) - self._clock.monotonic()
            asyncio.get_running_loop().call_later(max(soonest, _SHORTEST_SECONDS), self._over, pod_uid)
            return
        if left:
            self._until[pod_uid] = {device: found[device] for device in left}
        else:
            del self._until[pod_uid]
        self._ended(pod_uid)


@dataclass(slots=True)
class _UndoneBinds:
    """How often binds of one pod to one node undid their allocations, when last, and until when the node is in backoff."""

    count: int = 0
    last: float = 0.0
    until: float = 0.0


class NodeBackoff:
    """By pod, the nodes on which its binds undid their own allocations twice.

    Filter, bind and the check after the write apply one rule, so repeated undoing is not expected.  If it happens, the pod goes
    to other nodes instead of writing without end.  `ended` is called with the UID of a pod that may be offered a node again.
    `pods` has the UIDs of the pods for which nodes may be in backoff.
    """

    def __init__(self, clock: Clock, ended: Callable[[str], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._by_pod: dict[str, dict[str, _UndoneBinds]] = {}
        self.pods: Final = self._by_pod.keys()

    def undone(self, pod_uid: str, node: str) -> None:
        """A bind undid, or refused to write, the pod's allocation on this node.  The caller runs in the event loop."""
        now = self._clock.monotonic()
        found = self._by_pod.setdefault(pod_uid, {}).setdefault(node, _UndoneBinds())
        found.count += 1
        found.last = now
        if found.count >= _UNDONE_LIMIT:
            found.until = now + _NODE_SECONDS
            self._check_in(_NODE_SECONDS, pod_uid, node)
        else:
            self._check_in(_FORGET_SECONDS, pod_uid, node)

    def of(self, pod_uid: str) -> frozenset[str]:
        """The nodes that are in backoff for the pod now."""
        found = self._by_pod.get(pod_uid)
        if not found:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(name for name, node in found.items() if node.until > now)

    @property
    def active(self) -> bool:
        """Whether any node is in backoff for some pod."""
        return any(self.of(pod_uid) for pod_uid in self._by_pod)

    def forget(self, pod_uid: str) -> None:
        """The pod is bound: its backoff ends."""
        self._by_pod.pop(pod_uid, None)

    def _check_in(self, seconds: float, pod_uid: str, node: str) -> None:
        asyncio.get_running_loop().call_later(max(seconds, _SHORTEST_SECONDS), self.check, pod_uid, node)

    def check(self, pod_uid: str, node: str) -> None:
        """End a backoff that is over, and forget a node whose last failure is long ago; a timer calls this."""
        nodes = self._by_pod.get(pod_uid, {})
        found, now = nodes.get(node), self._clock.monotonic()
        if found is None:
            return
        if found.until > now:
            # The event loop's timers go by another clock and may fire a little early.
            self._check_in(found.until - now, pod_uid, node)
            return
        if found.until:
            found.until = 0.0
            self._check_in(found.last + _FORGET_SECONDS - now, pod_uid, node)
            self._ended(pod_uid)
        elif found.last + _FORGET_SECONDS <= now:
            del nodes[node]
            if not nodes:
                self._by_pod.pop(pod_uid, None)


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
        """See Usage."""
        base, in_backoff = self._base.pool(pool_id), self._in_backoff.get(pool_id)
        if not in_backoff:
            return base
        return {**base, **{device: (*base.get(device, ()), taken) for device, taken in in_backoff.items()}}

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        """See Usage."""
        return self._base.has_compatibility_rules(pool_id)
