"""The gate before the Bindings of a gang: nobody is bound before enough members have all that they need."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.permit.members import existing_members, gang_of
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError

_REMEMBERED: Final = 10_000
_COUNT_SECONDS: Final = 2.0
_MIN_COUNT_SECONDS: Final = 0.25
"""The longest and the shortest time between two counts of the members that exist."""


@dataclass(slots=True)
class WaitingMembers:
    """Members that stand at the gate or go through it, by UID, and the signal that enough are here, or that it is `broken` up.

    `uid`, `namespace` and `name` are the PodGroup's; `since`: when the last member came; `counted`: when the members that exist
    were counted; `short`: since when these are too few, None while they are enough (all monotonic).
    """

    uid: str
    namespace: str
    name: str
    since: float
    members: set[str] = field(default_factory=set)
    changed: Notifier = field(default_factory=Notifier)
    broken: str = ""
    counted: float = -math.inf
    short: float | None = None


class QuorumNotReachedError(RetryableError):
    """The gang did not come together: what the member has it must give back, for others may need it to come together."""


class Permit:
    """Where the binds of gang members meet: each comes when its claims are written and its devices are ready.

    It opens when `minCount` members are here, and stays open as long as a member is bound.  Nothing of it has to survive: after a
    restart members meet again, and a gang of which a member is bound passes at once.  Nobody waits longer than `grace_seconds` for
    members that do not exist (any more).
    """

    def __init__(self, ledger: Ledger, clock: Clock, grace_seconds: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grace = grace_seconds
        self._count_seconds = min(_COUNT_SECONDS, max(grace_seconds, _MIN_COUNT_SECONDS))
        self._meetings: dict[str, WaitingMembers] = {}
        self._admitted: LruCache[str, set[str]] = LruCache(_REMEMBERED)

    @asynccontextmanager
    async def passing(
        self, pod: Pod, seconds: float, check: Callable[[], None], nudge: Notifier
    ) -> AsyncIterator[None]:
        """Enter when the pod may be bound; at once if it is no member of a gang.  Leaving without an error says that it is bound.

        `check` raises TryAgain if waiting makes no sense any more; `nudge` fires when it may have something new to say.

        Raises:
            NotTogether: too few members came within `seconds`, too few exist, or the meeting was broken up.
            TryAgain: `check` raised it.
        """
        group = gang_of(pod, self._ledger)
        if group is None or self.is_admitted(group):
            yield
            return
        uid = group.metadata.uid
        now = self._clock.monotonic()
        meeting = self._meetings.setdefault(uid, WaitingMembers(uid, *group.metadata.key, since=now))
        meeting.since = now
        meeting.members.add(pod.uid)
        if self._is_open(group, meeting):
            meeting.changed.fire()
        try:
            await self._opened(pod, meeting, seconds, check, nudge)
            yield
            self._admit(uid, pod.uid)
        finally:
            meeting.members.discard(pod.uid)
            if not meeting.members and self._meetings.get(uid) is meeting:
                del self._meetings[uid]

    def break_up(self, group: PodGroup) -> None:
        """The gang cannot come together as things are: send away the members that wait, unless it has been admitted."""
        meeting = self._meetings.get(group.metadata.uid)
        if meeting is not None and not self._is_open(group, meeting):
            self._break(meeting, "the other members do not fit at present")

    @property
    def has_members(self) -> bool:
        """Whether somebody is at the gate."""
        return bool(self._meetings)

    def meetings(self) -> Sequence[WaitingMembers]:
        """Gangs whose members wait because too few have come."""
        return [each for each in self._meetings.values() if not self._opens(each)]

    def meeting(self, group_uid: str) -> WaitingMembers | None:
        """The members of this gang that wait, if some do."""
        found = self._meetings.get(group_uid)
        return None if found is None or self._opens(found) else found

    def send_away(self, meeting: WaitingMembers) -> None:
        """Other pods need the devices of these members, of which too few have come; no effect on a gang that has come together."""
        if self._meetings.get(meeting.uid) is meeting and not self._opens(meeting):
            self._break(meeting, "too few members have come, and other pods wait for the devices")

    def _opens(self, meeting: WaitingMembers) -> bool:
        group = self._ledger.pod_groups.get(meeting.namespace, meeting.name)
        return group is None or group.metadata.uid != meeting.uid or self._is_open(group, meeting)

    def _break(self, meeting: WaitingMembers, why: str) -> None:
        del self._meetings[meeting.uid]
        meeting.broken = f"PodGroup {meeting.name}: {why}"
        meeting.changed.fire()

    async def _opened(
        self, pod: Pod, meeting: WaitingMembers, seconds: float, check: Callable[[], None], nudge: Notifier
    ) -> None:
        end = self._clock.monotonic() + seconds
        while (group := gang_of(pod, self._ledger)) is not None and not self._is_open(group, meeting):
            check()
            if meeting.broken:
                raise QuorumNotReachedError(meeting.broken)
            left = end - self._clock.monotonic()
            if left <= 0:
                count = f"{len(meeting.members)} of {group.min_count} members"
                raise QuorumNotReachedError(
                    f"PodGroup {group.metadata.name}: {count} came to be bound within {seconds:g} s"
                )
            self._count(group, meeting)
            await wait_for_any((meeting.changed, nudge), min(left, self._count_seconds))

    def _count(self, group: PodGroup, meeting: WaitingMembers) -> None:
        """End the meeting if for the whole grace fewer members exist than are needed.

        Raises:
            NotTogether: it is so.
        """
        now, needed = self._clock.monotonic(), group.min_count or 0
        if now < meeting.counted + self._count_seconds:
            return
        meeting.counted = now
        count = sum(1 for _ in existing_members(group, self._ledger))
        if count >= needed:
            meeting.short = None
            return
        meeting.short = now if meeting.short is None else meeting.short
        if now >= meeting.short + self._grace:
            self._break(meeting, f"{count} of {needed} members exist for {self._grace:g} s")
            raise QuorumNotReachedError(meeting.broken)

    def _is_open(self, group: PodGroup, meeting: WaitingMembers) -> bool:
        return len(meeting.members) >= (group.min_count or 0) or self.is_admitted(group)

    def is_admitted(self, group: PodGroup) -> bool:
        """Whether a member is bound; then those that follow need not wait for each other."""
        if self._ledger.pods.group_runs(*group.metadata.key):
            return True
        just_bound = self._admitted.get(group.metadata.uid)
        if just_bound is None:
            return False
        just_bound -= {uid for uid in just_bound if self._is_over(uid)}
        if not just_bound:
            del self._admitted[group.metadata.uid]
        return bool(just_bound)

    def _is_over(self, pod_uid: str) -> bool:
        """Whether a pod that was bound runs no more; as long as the watch has not told of the Binding, it is on the way."""
        pod = self._ledger.pods.by_uid(pod_uid)
        return self._ledger.pods.gone(pod_uid) or (pod is not None and (bool(pod.node_name) or pod.finished))

    def _admit(self, group_uid: str, pod_uid: str) -> None:
        just_bound = self._admitted.get(group_uid, ())
        self._admitted[group_uid] = {pod_uid, *(uid for uid in just_bound if not self._is_over(uid))}
