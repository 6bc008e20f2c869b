"""After a device failed to become ready for a pod, that pod leaves it alone for a while and tries others first (KEP-5007).

Drivers are asked to take a failed device away, by a taint for example, but the next attempt of the pod may come before that.
Cool-downs live in memory: after a restart the device may be tried again at once, as upstream does always.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.node import Node
from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.evaluation.node_backoff import NodeBackoff
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.evaluation.result_cache import NodeResult
from dra_extender.scheduling.evaluation.scoring import merits_of
from dra_extender.scheduling.ports.cluster import Clock

_SHORTEST_SECONDS: Final = 0.001
COOLING: Final = Rejection(code=Code.COOLING_DOWN)


class DeviceBackoff:
    """Which devices, and which `nodes`, each pod leaves alone for the moment.

    `ended` is called when a pod's devices or nodes may be tried again.
    """

    def __init__(self, clock: Clock, seconds: float, ended: Callable[[str], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ended = ended
        self._until: dict[str, dict[DeviceId, float]] = {}
        self.nodes = NodeBackoff(clock, ended)

    def start(self, pod_uid: str, devices: Collection[DeviceId]) -> None:
        """These devices have just failed for the pod.  To be called in the event loop."""
        if not self._seconds:
            return
        end = self._clock.monotonic() + self._seconds
        self._until.setdefault(pod_uid, {}).update(dict.fromkeys(devices, end))
        asyncio.get_running_loop().call_later(self._seconds, self._over, pod_uid)

    def of(self, pod_uid: str) -> frozenset[DeviceId]:
        """The devices that the pod leaves alone now."""
        found = self._until.get(pod_uid)
        if not found:
            return frozenset()
        now = self._clock.monotonic()
        return frozenset(device for device, end in found.items() if end > now)

    @property
    def active(self) -> bool:
        """Whether some pod leaves devices or a node alone."""
        return bool(self._until) or self.nodes.active

    @property
    def pods(self) -> Collection[str]:
        """UIDs of the pods that may leave devices or nodes alone."""
        return self._until.keys() | self.nodes.pods

    def forget(self, pod_uid: str) -> None:
        """The pod is bound: nothing has to be kept from it any more."""
        self._until.pop(pod_uid, None)
        self.nodes.forget(pod_uid)

    def _over(self, pod_uid: str) -> None:
        found = self._until.get(pod_uid)
        if found is None:
            return
        left = self.of(pod_uid)
        if len(left) == len(found):
            # Timers may come a little early: they go by another clock.
            soonest = min(found.values()) - self._clock.monotonic()
            asyncio.get_running_loop().call_later(max(soonest, _SHORTEST_SECONDS), self._over, pod_uid)
            return
        if left:
            self._until[pod_uid] = {device: found[device] for device in left}
        else:
            del self._until[pod_uid]
        self._ended(pod_uid)


class BackoffUsage:
    """A usage in which some more devices are taken, without drawing on anything else.  It is itself a `Usage`."""

    __slots__ = ("_aside", "_base")

    def __init__(self, base: Usage, devices: Collection[DeviceId]) -> None:
        self._base = base
        self._aside: dict[PoolId, dict[str, DeviceHolding]] = {}
        for driver, pool, device in devices:
            nothing = DeviceHolding(driver=driver, pool=pool, device=device, consumption=(), set_aside=True)
            self._aside.setdefault((driver, pool), {})[device] = nothing

    def pool(self, pool_id: PoolId) -> PoolUsage:
        """See Usage."""
        base, aside = self._base.pool(pool_id), self._aside.get(pool_id)
        if not aside:
            return base
        return {**base, **{device: (*base.get(device, ()), taken) for device, taken in aside.items()}}

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        """See Usage."""
        return self._base.has_compatibility_rules(pool_id)


def search_around(
    devices: frozenset[DeviceId],
    ledger: Ledger,
    ask: Callable[[Node, Usage, Hashable], Placement | Rejection],
    nodes: Sequence[str],
    max_feasible: int,
    attempt: FilterResult,
) -> None:
    """Tell `attempt` which nodes fit without these devices, `max_feasible` at most, and which would only with them.

    `ask` answers about one node; what it is given last names the usage.  Nothing is remembered: the question is one pod's alone.
    """
    usage = ledger.usage()
    without = BackoffUsage(usage, devices)
    refused: list[tuple[Node, Rejection]] = []
    for name in nodes:
        node = ledger.nodes.get(name)
        if node is None:
            attempt.refuse(name, Rejection(code=Code.NODE_UNKNOWN))
            continue
        answer = ask(node, without, devices)
        if isinstance(answer, Rejection):
            refused.append((node, answer))
            attempt.limited |= answer.code is Code.SEARCH_LIMIT
            continue
        merits = () if attempt.demand is None else merits_of(attempt.demand, answer, usage, ledger.slices)
        attempt.fits[name] = NodeResult(ledger.state.of(name), ledger.held.of(name), answer, None, "", merits)
        if len(attempt.fits) >= max_feasible:
            break
    for node, rejection in refused:
        cooling = not attempt.fits and isinstance(ask(node, usage, "all devices"), Placement)
        attempt.refuse(node.name, COOLING if cooling else rejection)
