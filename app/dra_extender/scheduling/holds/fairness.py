"""How much a namespace may hold while pods of other namespaces wait for the same devices.

A hold costs its namespace nothing if no other namespace waits for the devices, or if the pod is bound within the usual time.
Otherwise its device-seconds count: devices times the seconds for which they were held and not allocated.
"""

import asyncio
import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from dra_extender.ledger.events import HoldEnded
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.filter_result import NodeResult
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError

WAITING_SECONDS: Final = 60.0
"""How long a pod without room because of holds counts as waiting after its last filter call."""
ALLOWANCE: Final = 4.0
"""Device-seconds of unused holds beyond which a namespace is offered one node at a time; beyond twice as much, none."""
REFILL: Final = 0.25
"""Device-seconds that a namespace recovers in a second."""
DEEPEST: Final = 3 * ALLOWANCE
LEAST_STALE_SECONDS: Final = 1.0
MOST_STALE_SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 30.0
LONG_WAIT_SECONDS: Final = 5.0
"""When a pod has waited for so long because of holds, pods of other namespaces are offered one node at a time."""
_STALE_FACTOR: Final = 10
_UNMEASURED_SECONDS: Final = 0.2
_SAMPLES: Final = 63
_MAX_KEPT: Final = 10_000
_MOST_WAITING: Final = 1_000
_FREE_OFFERS: Final = 2
_CLEAN_UP_SECONDS: Final = 0.25
_SLACK_SECONDS: Final = 0.05


@dataclass(slots=True)
class _Waiting:
    """A pod that would fit but for holds: its namespace, the pools in which it would, and since and until when it counts.

    Times are monotonic.
    """

    namespace: str
    pools: frozenset[PoolId]
    since: float
    until: float


@dataclass(slots=True)
class _Offers:
    """The number of offers to a pod or gang without a bind, and the time until which it gets no further offer (monotonic)."""

    count: int = 0
    pause_until: float = 0.0


@dataclass(slots=True)
class _Account:
    """Device-seconds of unused holds of one namespace, as of a time."""

    spent: float
    at: float


class HoldFairness:
    """Counts what namespaces hold in contended pools, and selects the nodes that a pod may be offered.

    A pool is contended for a namespace while a pod of another namespace waits because of holds in it.  A pod that was offered
    nodes there and was not bound is offered one node, and then none for a pause that doubles each time.  A pod that waits is
    reconsidered when the holds in its way are stale.  Everything is in bounded memory.
    """

    def __init__(self, ledger: Ledger, clock: Clock, reconsider: Callable[[str], None]) -> None:
        """`reconsider` is called with the UID of a pod that may fit by now."""
        self._ledger = ledger
        self._clock = clock
        self._reconsider = reconsider
        self._timers: set[str] = set()
        # Pods that may wait because of holds, by UID.
        self.waiting: LruCache[str, _Waiting] = LruCache(_MOST_WAITING, on_evict=self._stop_counting)
        # By pool, how many pods wait for it, by namespace.
        self._waiting_namespaces: dict[PoolId, Counter[str]] = {}
        self._next_clean_up = 0.0
        self._offers: LruCache[str, _Offers] = LruCache(_MAX_KEPT)
        self._accounts: LruCache[str, _Account] = LruCache(_MAX_KEPT)
        self._bind_seconds: deque[float] = deque(maxlen=_SAMPLES)
        self._stale_after: float | None = None
        ledger.events.subscribe(HoldEnded, lambda event: self.hold_ended(*event))

    @property
    def stale_after(self) -> float:
        """Seconds after which a hold whose bind has not come is stale: ten times the median, between 1 and 5."""
        if self._stale_after is None:
            seconds = statistics.median(self._bind_seconds) if self._bind_seconds else _UNMEASURED_SECONDS
            self._stale_after = min(max(_STALE_FACTOR * seconds, LEAST_STALE_SECONDS), MOST_STALE_SECONDS)
        return self._stale_after

    def record_rejection(self, pod: Pod, placements: Collection[ClaimPlacement]) -> None:
        """Count the rejected pod as waiting if there is something that it would get without holds."""
        if not placements:
            self.end_waiting(pod.uid)
            return
        pools = frozenset(holding.pool_id for placement in placements for holding in placement.holdings)
        now, earlier = self._clock.monotonic(), self.waiting.get(pod.uid)
        self.end_waiting(pod.uid)
        since = now if earlier is None or earlier.until <= now else earlier.since
        self.waiting[pod.uid] = waiting = _Waiting(pod.namespace, pools, since, now + WAITING_SECONDS)
        for pool_id in waiting.pools:
            self._waiting_namespaces.setdefault(pool_id, Counter())[waiting.namespace] += 1
        if pod.uid not in self._timers:
            self._recheck_later(pod.uid)

    def end_waiting(self, pod_uid: str) -> None:
        """Forget that the pod waits: it was offered a node, or does not fit for other reasons than holds."""
        waiting = self.waiting.pop(pod_uid, None)
        if waiting is not None:
            self._stop_counting(pod_uid, waiting)

    def _stop_counting(self, _: str, waiting: _Waiting) -> None:
        for pool_id in waiting.pools:
            namespaces = self._waiting_namespaces[pool_id]
            namespaces[waiting.namespace] -= 1
            if not namespaces[waiting.namespace]:
                del namespaces[waiting.namespace]
                if not namespaces:
                    del self._waiting_namespaces[pool_id]

    def _recheck_later(self, pod_uid: str) -> None:
        self._timers.add(pod_uid)
        asyncio.get_running_loop().call_later(self.stale_after + _SLACK_SECONDS, self._recheck, pod_uid)

    def _recheck(self, pod_uid: str) -> None:
        self._timers.discard(pod_uid)
        waiting = self.waiting.get(pod_uid)
        if waiting is not None and waiting.until > self._clock.monotonic():
            self._reconsider(pod_uid)
            self._recheck_later(pod_uid)

    def contended(self, namespace: str, pools: Iterable[PoolId]) -> bool:
        """Return whether a pod of another namespace waits for one of these pools."""
        if not self.waiting:
            return False
        self._forget_resolved()
        return any(
            len(namespaces) > (namespace in namespaces)
            for pool_id in pools
            if (namespaces := self._waiting_namespaces.get(pool_id))
        )

    def select(self, pod: Pod, names: Sequence[str], fits: Mapping[str, NodeResult], count: int) -> Sequence[str]:
        """Return the nodes that the pod may be offered, at most `count` of `names`, in their order (best first)."""
        best = names[:count]
        if not self.waiting:
            return best
        pools = {pool_id for name in best for pool_id in _pools(fits[name])}
        if not self.contended(pod.namespace, pools):
            return best
        node_limit = self._node_limit(pod.uid, pod.namespace, count)
        # A pod of another namespace that has waited for long goes before.
        if node_limit >= count and not self._has_long_waiting(pod.namespace, pools):
            return best
        free = [name for name in names if not self.contended(pod.namespace, _pools(fits[name]))]
        if free:
            return free[:count]
        if not node_limit:
            raise self._refusal(pod.uid, f"pod {pod.key}")
        return names[: min(node_limit, 1)]

    def _has_long_waiting(self, namespace: str, pools: AbstractSet[PoolId]) -> bool:
        """Return whether a pod of another namespace has waited for one of these pools for LONG_WAIT_SECONDS."""
        latest = self._clock.monotonic() - LONG_WAIT_SECONDS
        return any(
            waiting.namespace != namespace and waiting.since <= latest and not waiting.pools.isdisjoint(pools)
            for waiting in self.waiting.values()
        )

    def check_plan(self, unit: str, namespace: str, name: str) -> None:
        """Raise RetryableError if the gang gets no plan now, because pods of other namespaces wait."""
        if not self.waiting:
            return
        self._forget_resolved()
        others_wait = any(waiting.namespace != namespace for waiting in self.waiting.values())
        if others_wait and not self._node_limit(unit, namespace, _FREE_OFFERS):
            raise self._refusal(unit, f"PodGroup {name}")

    def offered(self, unit: str) -> None:
        """Count an offer: a pod was offered nodes on which devices are held for it, or a gang was planned."""
        offers = self._offers.get(unit)
        if offers is None:
            self._offers[unit] = _Offers(count=1)
            return
        self._offers.move_to_end(unit)
        offers.count += 1
        if offers.count >= _FREE_OFFERS:
            pause = min(2.0 ** min(offers.count - _FREE_OFFERS, 10), LONGEST_PAUSE)
            offers.pause_until = self._clock.monotonic() + pause

    def revoked(self, unit: str) -> None:
        """Count the revocation of this pod's or gang's holds as an offer that failed."""
        offers = self._offers.setdefault(unit, _Offers())
        offers.count = max(offers.count, _FREE_OFFERS - 1)
        self.offered(unit)

    def hold_ended(self, hold: Hold, holdings: Sequence[DeviceHolding], allocated: bool) -> None:
        """Charge the namespace for a hold that has ended; `allocated`: its claim has the devices now."""
        now = self._clock.monotonic()
        seconds = max(now - hold.since, 0.0)
        if allocated:
            if hold.unit in hold.pods:
                self._offers.pop(hold.unit, None)
            self._bind_seconds.append(seconds)
            self._stale_after = None
            if seconds <= self.stale_after:
                return
        if self.waiting and self.contended(hold.namespace, {holding.pool_id for holding in holdings}):
            spent = self._unrecovered(hold.namespace, now) + len(holdings) * seconds
            self._accounts[hold.namespace] = _Account(min(spent, DEEPEST), now)

    def spent(self, namespace: str) -> float:
        """Return the device-seconds that count against the namespace now, including those of present holds."""
        now = self._clock.monotonic()
        spent = self._unrecovered(namespace, now)
        holds = self._ledger.holds
        for hold in holds.all():
            if hold.namespace == namespace and not hold.nominated and now - hold.since > self.stale_after:
                spent += len(holds.holdings(hold.claim_uid)) * (now - hold.since)
        return spent

    def _unrecovered(self, namespace: str, now: float) -> float:
        """Return the charges to the namespace from which it has not recovered yet."""
        account = self._accounts.get(namespace)
        return 0.0 if account is None else max(account.spent - REFILL * (now - account.at), 0.0)

    def _node_limit(self, unit: str, namespace: str, count: int) -> int:
        """Return how many contended nodes this pod or gang may be offered."""
        spent, offers = self.spent(namespace), self._offers.get(unit)
        if spent > 2 * ALLOWANCE:
            return 0
        if offers is None or not offers.count:
            return count if spent <= ALLOWANCE else 1
        return 0 if self._clock.monotonic() < offers.pause_until else 1

    def _refusal(self, unit: str, what: str) -> RetryableError:
        offers = self._offers.get(unit)
        count = 0 if offers is None else offers.count
        return RetryableError(
            f"{what} was offered nodes {count} times without being bound, or its namespace holds devices without using them,"
            " and pods of other namespaces wait for the devices"
        )

    def _forget_resolved(self) -> None:
        now, pods = self._clock.monotonic(), self._ledger.pods
        if now < self._next_clean_up:
            return
        self._next_clean_up = now + _CLEAN_UP_SECONDS
        for uid, waiting in list(self.waiting.items()):
            if waiting.until <= now or pods.is_resolved(uid):
                self.end_waiting(uid)


def _pools(result: NodeResult) -> set[PoolId]:
    """Return the pools of a node in which the pod would hold devices."""
    placement = result.placement
    claims = () if placement is None else placement.claims
    return {holding.pool_id for claim in claims for holding in claim.holdings}
