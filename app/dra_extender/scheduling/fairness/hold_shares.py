"""Who may hold how much while pods of other namespaces wait for the same devices.

A hold costs its namespace nothing as long as nobody else wants the devices, or its pod is bound within the usual time.  Otherwise
it counts: devices times the seconds for which they were held and not allocated.
"""

import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dra_extender.ledger.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError

WAITING_SECONDS: Final = 60.0
"""How long a pod that holds keep out counts as waiting after it was asked about last."""
SHARE: Final = 4.0
"""Device-seconds of unused holds beyond which a namespace is offered one node at a time; beyond twice as much, none."""
REFILL: Final = 0.25
"""Device-seconds that a namespace gets back in a second."""
DEEPEST: Final = 3 * SHARE
LEAST_STALE_SECONDS: Final = 1.0
MOST_STALE_SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 30.0
_STALE_FACTOR: Final = 10
_UNMEASURED_SECONDS: Final = 0.2
_SAMPLES: Final = 63
_REMEMBERED: Final = 10_000
_MOST_WAITING: Final = 1_000
_FREE_OFFERS: Final = 2
_LOOK_SECONDS: Final = 0.25


@dataclass(slots=True)
class _Waiting:
    """A pod that would fit but for holds: its namespace, the pools in which it would, and until when it counts (monotonic)."""

    namespace: str
    pools: frozenset[PoolId]
    until: float


@dataclass(slots=True)
class _Offers:
    """How often a pod, or a gang, was offered nodes and not bound since, and before when it is not offered any (monotonic)."""

    count: int = 0
    pause_until: float = 0.0


@dataclass(slots=True)
class _Account:
    """Device-seconds of unused holds of one namespace, as of a time."""

    spent: float
    at: float


class HoldShares:
    """The shares of namespaces in contended pools, and what a pod may be offered there.

    A pool is contended for a namespace while a pod of another one waits because of holds in it.  There, a pod that was offered
    nodes and not bound is offered one node, and then none for a pause that doubles each time.  All of it lives in memory, bounded.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._waiting: LruCache[str, _Waiting] = LruCache(_MOST_WAITING, on_evict=self._stop_counting)
        # How many pods of which namespaces wait for a pool.
        self._wanted: dict[PoolId, Counter[str]] = {}
        self._next_look = 0.0
        self._offers: LruCache[str, _Offers] = LruCache(_REMEMBERED)
        self._accounts: LruCache[str, _Account] = LruCache(_REMEMBERED)
        self._usual: deque[float] = deque(maxlen=_SAMPLES)
        self._stale_after: float | None = None

    @property
    def anybody_waits(self) -> bool:
        """Whether holds may keep some pod out."""
        return bool(self._waiting)

    @property
    def stale_after(self) -> float:
        """Seconds after which a hold whose bind has not come is stale: ten times the median, between 1 and 5."""
        if self._stale_after is None:
            usual = statistics.median(self._usual) if self._usual else _UNMEASURED_SECONDS
            self._stale_after = min(max(_STALE_FACTOR * usual, LEAST_STALE_SECONDS), MOST_STALE_SECONDS)
        return self._stale_after

    def waits(self, pod: Pod, pools: Iterable[PoolId]) -> None:
        """The pod was refused, and would fit in these pools but for holds."""
        self.waits_no_more(pod.uid)
        found = _Waiting(pod.namespace, frozenset(pools), self._clock.monotonic() + WAITING_SECONDS)
        self._waiting[pod.uid] = found
        for pool_id in found.pools:
            self._wanted.setdefault(pool_id, Counter())[found.namespace] += 1

    def waits_no_more(self, pod_uid: str) -> None:
        """The pod was offered a node, or holds are not what keeps it out."""
        found = self._waiting.pop(pod_uid, None)
        if found is not None:
            self._stop_counting(pod_uid, found)

    def _stop_counting(self, _: str, found: _Waiting) -> None:
        for pool_id in found.pools:
            wanted = self._wanted[pool_id]
            wanted[found.namespace] -= 1
            if not wanted[found.namespace]:
                del wanted[found.namespace]
                if not wanted:
                    del self._wanted[pool_id]

    def is_waiting(self, pod_uid: str) -> bool:
        """Whether holds keep this pod out."""
        found = self._waiting.get(pod_uid)
        return found is not None and found.until > self._clock.monotonic()

    def contended(self, namespace: str, pools: Iterable[PoolId] | None = None) -> bool:
        """Whether a pod of another namespace waits for one of these pools (None: for any pool)."""
        if not self._waiting:
            return False
        self._forget_over()
        if pools is None:
            return any(each.namespace != namespace for each in self._waiting.values())
        return any(len(wanted) > (namespace in wanted) for pool_id in pools if (wanted := self._wanted.get(pool_id)))

    def among(
        self, pod: Pod, names: Sequence[str], pools: Callable[[str], Iterable[PoolId]], count: int
    ) -> Sequence[str]:
        """Those of these nodes, best first, that the pod may be offered, at most `count`; `pools`: where it would hold devices.

        Raises:
            RetryableError: it may be offered none at present.
        """
        if not any(self.contended(pod.namespace, pools(name)) for name in names[:count]):
            return names[:count]
        most = self._most(pod.uid, pod.namespace, count)
        if most >= count:
            return names[:count]
        free = [name for name in names if not self.contended(pod.namespace, pools(name))]
        if free:
            return free[:count]
        if not most:
            raise self._pause(pod.uid, f"pod {pod.key}")
        return names[:most]

    def check_plan(self, unit: str, namespace: str, name: str) -> None:
        """Whether a gang may be planned now.

        Raises:
            RetryableError: it was planned before and not bound, and others wait.
        """
        if self._waiting and self.contended(namespace) and not self._most(unit, namespace, _FREE_OFFERS):
            raise self._pause(unit, f"PodGroup {name}")

    def offered(self, unit: str) -> None:
        """A pod was offered nodes where devices are held for it, or a plan for a gang was made."""
        known = self._offers.get(unit)
        if known is None:
            self._offers[unit] = _Offers(count=1)
            return
        self._offers.move_to_end(unit)
        known.count += 1
        if known.count >= _FREE_OFFERS:
            pause = min(2.0 ** min(known.count - _FREE_OFFERS, 10), LONGEST_PAUSE)
            known.pause_until = self._clock.monotonic() + pause

    def revoked(self, unit: str) -> None:
        """What was held for this pod or gang was taken for another pod."""
        known = self._offers.setdefault(unit, _Offers())
        known.count = max(known.count, _FREE_OFFERS - 1)
        self.offered(unit)

    def hold_ended(self, hold: Hold, kept: Sequence[DeviceHolding], allocated: bool) -> None:
        """A hold has ended; `allocated`: it was used."""
        now = self._clock.monotonic()
        seconds = max(now - hold.since, 0.0)
        if allocated:
            if hold.unit in hold.pods:
                self._offers.pop(hold.unit, None)
            self._usual.append(seconds)
            self._stale_after = None
            if seconds <= self.stale_after:
                return
        if self._waiting and self.contended(hold.namespace, {each.pool_id for each in kept}):
            self._charge(hold.namespace, len(kept) * seconds, now)

    def spent(self, namespace: str) -> float:
        """Device-seconds that count against the namespace now, those of holds that have not ended yet included."""
        now = self._clock.monotonic()
        found = self._accounts.get(namespace)
        spent = 0.0 if found is None else _left(found, now)
        holds = self._ledger.holds
        for hold in holds.all():
            if hold.namespace == namespace and not hold.nominated and now - hold.since > self.stale_after:
                spent += len(holds.kept(hold.claim_uid)) * (now - hold.since)
        return spent

    def _most(self, unit: str, namespace: str, count: int) -> int:
        """How many contended nodes this pod or gang may be offered."""
        spent, known = self.spent(namespace), self._offers.get(unit)
        if spent > 2 * SHARE:
            return 0
        if known is None or not known.count:
            return count if spent <= SHARE else 1
        return 0 if self._clock.monotonic() < known.pause_until else 1

    def _pause(self, unit: str, what: str) -> RetryableError:
        known = self._offers.get(unit)
        count = 0 if known is None else known.count
        return RetryableError(
            f"{what} was offered nodes {count} times without being bound, or its namespace holds devices without using them,"
            " and pods of other namespaces wait for the devices"
        )

    def _charge(self, namespace: str, amount: float, now: float) -> None:
        found = self._accounts.get(namespace)
        spent = amount + (0.0 if found is None else _left(found, now))
        self._accounts[namespace] = _Account(min(spent, DEEPEST), now)

    def _forget_over(self) -> None:
        now, pods = self._clock.monotonic(), self._ledger.pods
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        for uid, each in list(self._waiting.items()):
            pod = pods.by_uid(uid)
            if each.until <= now or pods.gone(uid) or (pod is not None and (pod.node_name or pod.finished)):
                self.waits_no_more(uid)


def _left(account: _Account, now: float) -> float:
    return max(account.spent - REFILL * (now - account.at), 0.0)
