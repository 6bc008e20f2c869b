"""Permit: no member of a gang is bound before `minCount` members have their devices."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.runtime.token_bucket import TokenBucket
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.claims.lookup import gang_of
from dra_extender.scheduling.gang.members import existing_members, lacking_text, take_snapshot, why_too_large
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError

_MOST_GANGS: Final = 10_000
_COUNT_SECONDS: Final = 2.0
_MIN_COUNT_SECONDS: Final = 0.25
"""The longest and the shortest time between two counts of the members that exist."""
_JUDGEMENT_SLICE_SECONDS: Final = 0.01
"""The time that the judgement of a gang may take; the next one goes on with the members that are not judged yet."""
_JUDGEMENT_SHARE: Final = 0.05
"""The share of time that the judgements of all gangs take together; if they need more, each gang is judged less often."""
_JUDGEMENT_BURST_SECONDS: Final = 0.1
_JUDGEMENT_DEBT_SECONDS: Final = 1.0


@dataclass(slots=True)
class WaitingMembers:
    """The members of a gang that wait for the permit or have it, by UID, and why they are `rejected`, if they are.

    `ready`: the members that had all they need when they were looked at last, which alone count for the quorum.  `changed` fires
    when the quorum is reached, or when the members are rejected.

    `uid`, `namespace` and `name` are the PodGroup's; `since`: when the last member arrived; `counted`: when the members that exist
    were counted; `judged`: when it was judged how many of them can be placed; `too_few_since`: since when fewer than `minCount`
    exist, None while enough exist (all monotonic).
    """

    uid: str
    namespace: str
    name: str
    since: float
    members: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    changed: Notifier = field(default_factory=Notifier)
    rejected: str = ""
    counted: float = -math.inf
    judged: float = -math.inf
    too_few_since: float | None = None


class QuorumNotReachedError(RetryableError):
    """The quorum was not reached: the member has to release its claims, because others may need the devices for theirs."""


class Permit:
    """Holds the binds of gang members, each with its claims written and its devices ready, until `minCount` members are held.

    It is open as long as a member is bound.  None of its state has to survive: after a restart the members wait again, and those of
    a gang with a bound member pass at once.  No member waits longer than `grace_seconds` for members that do not exist (any more).
    """

    def __init__(self, ledger: Ledger, clock: Clock, grace_seconds: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grace = grace_seconds
        self._count_seconds = min(_COUNT_SECONDS, max(grace_seconds, _MIN_COUNT_SECONDS))
        self._judgement_time = TokenBucket(
            _JUDGEMENT_SHARE, _JUDGEMENT_BURST_SECONDS, clock.monotonic(), debt=_JUDGEMENT_DEBT_SECONDS
        )
        self._waiting: dict[str, WaitingMembers] = {}
        # By PodGroup, the member that was bound last: the watch may not have delivered its node yet.
        self._bound_last: LruCache[str, str] = LruCache(_MOST_GANGS)

    @asynccontextmanager
    async def wait(
        self, pod: Pod, seconds: float, check: Callable[[], Awaitable[None]], recheck: Notifier
    ) -> AsyncIterator[None]:
        """Enter when the pod may be bound, directly after `check`.  Leave without an error when it is bound.

        `check` raises RetryableError if the pod cannot be bound (any more); `recheck` fires when that may be so.

        Raises:
            QuorumNotReachedError: too few members arrived within `seconds`, too few exist, or the gang was rejected.
            RetryableError: `check` raised it, or another PodGroup replaced the pod's.
        """
        group = gang_of(pod, self._ledger)
        if group is None or self.is_admitted(group):
            await check()
            yield
            return
        uid, now = group.metadata.uid, self._clock.monotonic()
        end, was_open = now + seconds, False
        waiting = self._waiting.setdefault(uid, WaitingMembers(uid, *group.metadata.key, since=now))
        waiting.since = now
        waiting.members.add(pod.uid)
        try:
            while True:
                waiting.ready.discard(pod.uid)
                await check()
                waiting.ready.add(pod.uid)
                group = gang_of(pod, self._ledger)
                if group is not None and group.metadata.uid != uid:
                    raise RetryableError(f"PodGroup {group.metadata.full_name} was replaced while pod {pod.key} waited")
                is_open = group is None or self._is_open(group, waiting)
                if is_open and was_open:
                    break
                was_open = is_open
                if group is None or is_open:
                    # In this turn every other member is checked, too: it may have lost its devices at the permit.
                    waiting.changed.fire()
                    await asyncio.sleep(0)
                    continue
                now = self._clock.monotonic()
                if end > now >= waiting.counted + self._count_seconds and not waiting.rejected:
                    self._count(group, waiting, now)
                    self._judge_next(now)
                if waiting.rejected:
                    raise QuorumNotReachedError(waiting.rejected)
                if end <= now:
                    count = f"{len(waiting.members)} of {group.min_count} members"
                    raise QuorumNotReachedError(
                        f"PodGroup {group.metadata.name}: {count} came to be bound within {seconds:g} s"
                    )
                await wait_for_any((waiting.changed, recheck), min(end - now, self._count_seconds))
            yield
            self._bound_last[uid] = pod.uid
        finally:
            waiting.ready.discard(pod.uid)
            waiting.members.discard(pod.uid)
            if not waiting.members and self._waiting.get(uid) is waiting:
                del self._waiting[uid]

    def reject(self, group: PodGroup) -> None:
        """Reject the waiting members, because the other members do not fit at present; do nothing if the gang is admitted."""
        waiting = self._waiting.get(group.metadata.uid)
        if waiting is not None and not self._is_open(group, waiting):
            self._reject(waiting, "the other members do not fit at present")

    @property
    def has_members(self) -> bool:
        """True if a member waits for its permit or has it and is not bound yet."""
        return bool(self._waiting)

    def waiting_gangs(self) -> Sequence[WaitingMembers]:
        """Return the gangs whose members wait because too few have arrived."""
        return [waiting for waiting in self._waiting.values() if not self._opens(waiting)]

    def waiting_gang(self, group_uid: str) -> WaitingMembers | None:
        waiting = self._waiting.get(group_uid)
        return None if waiting is None or self._opens(waiting) else waiting

    def evict(self, group_uid: str) -> None:
        """Reject the members of a gang if too few have arrived, because other pods need their devices."""
        waiting = self.waiting_gang(group_uid)
        if waiting is not None:
            self._reject(waiting, "too few members have come, and other pods wait for the devices")

    def _opens(self, waiting: WaitingMembers) -> bool:
        group = self._ledger.pod_groups.get(waiting.namespace, waiting.name)
        return group is None or group.metadata.uid != waiting.uid or self._is_open(group, waiting)

    def _reject(self, waiting: WaitingMembers, why: str) -> None:
        del self._waiting[waiting.uid]
        waiting.rejected = f"PodGroup {waiting.name}: {why}"
        waiting.changed.fire()

    def _count(self, group: PodGroup, waiting: WaitingMembers, now: float) -> None:
        """Reject the members if for the whole grace fewer members exist than the gang needs."""
        waiting.counted = now
        needed, count = group.min_count or 0, len(existing_members(group, self._ledger))
        if count >= needed:
            waiting.too_few_since = None
            return
        if waiting.too_few_since is None:
            waiting.too_few_since = now
        if now >= waiting.too_few_since + self._grace:
            self._reject(waiting, f"{count} of {needed} members exist for {self._grace:g} s")

    def _judge_next(self, now: float) -> None:
        """Judge the gang that was judged longest ago: reject its members if too few of those that exist can be placed."""
        waiting = min(self._waiting.values(), key=lambda gang: gang.judged, default=None)
        if waiting is None or now < waiting.judged + self._count_seconds or self._judgement_time.level(now) <= 0:
            return
        waiting.judged = now
        group = self._ledger.pod_groups.get(waiting.namespace, waiting.name)
        if group is None or self._opens(waiting) or why_too_large(group, self._ledger) is not None:
            return
        budget = CallBudget(self._clock, math.inf)
        budget.open_slice(_JUDGEMENT_SLICE_SECONDS)
        snapshot = within_slice(partial(take_snapshot, group, self._ledger, budget))
        self._judgement_time.spend(budget.lap(), now)
        if snapshot is Awaited.TIME_SLICE:
            return
        needed, count = group.min_count or 0, len(existing_members(group, self._ledger))
        lacking = [(pod, why) for pod, why in snapshot.unready if pod.uid not in waiting.members]
        if count - len(lacking) < needed <= count:
            self._reject(waiting, f"{count - len(lacking)} of {needed} members can be placed; {lacking_text(lacking)}")

    def _is_open(self, group: PodGroup, waiting: WaitingMembers) -> bool:
        return len(waiting.ready) >= (group.min_count or 0) or self.is_admitted(group)

    def is_admitted(self, group: PodGroup) -> bool:
        """Return whether a member is bound, so that the other members need not wait for each other."""
        pods, bound_last = self._ledger.pods, self._bound_last.get(group.metadata.uid, "")
        return pods.has_running_member(*group.metadata.key) or pods.is_being_bound(bound_last)
