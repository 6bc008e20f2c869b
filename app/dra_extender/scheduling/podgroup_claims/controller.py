"""The claims of PodGroups where kube-controller-manager does not make them (its gate DRAWorkloadResourceClaims is off).

Off unless it is asked for, and never beside somebody else: nothing is made before a grace has passed in which another one would
have made it, a claim that is made is told of only a moment later, and at the first sign of another one the work ends.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from dra_extender.ledger.events import PodGroupChanged, Subscription
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriting
from dra_extender.scheduling.podgroup_claims.competing_controller import CompetingController
from dra_extender.scheduling.podgroup_claims.plan import (
    PublishClaims,
    ReconcilePlan,
    has_claims,
    is_active,
    is_kept_by_protection,
    unrecorded,
    work_for,
)
from dra_extender.scheduling.podgroup_claims.writer import GroupClaimWriting
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError, ConflictError, NotFoundError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

SETTLE_SECONDS: Final = 1.0
"""For so long a claim is there before anybody is told of it: another one that is made beside it shows within that time."""
_TICK_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = {"done": 1.0, "changed": 0.0, "failed": 5.0}
_SWEEP_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.002
_AT_ONCE: Final = 16

_LOG = structlog.get_logger(__name__)
Key = tuple[str, str]
Thing = tuple[str, ...]
"""Something that is lacking: the step that makes up for it, and what tells it from others of its kind."""
_LEFT: Final[Thing] = ("left alone",)


@dataclass(frozen=True, slots=True)
class _Job:
    """A write that makes up for something, once that has been lacking for `delay` seconds."""

    thing: Thing
    delay: float
    write: Callable[[], Awaitable[object]]


class PodGroupClaimController:
    """Makes, records and makes known the claims of PodGroups, and lets PodGroups go that are not used any more.

    Everything is decided anew from the stored objects; what is remembered is only since when something is lacking.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writing: ClaimWriting,
        metrics: Metrics,
        options: Options,
        supervisor: Supervisor,
    ) -> None:
        self._ledger = ledger
        self._groups = cluster.pod_groups
        self._clock = cluster.clock
        self.writing = GroupClaimWriting(ledger, cluster, writing)
        self._metrics = metrics
        self._supervisor = supervisor
        self._enabled = options.group_claims_enabled and options.pod_group_claims
        self._grace = options.group_claims_grace_seconds
        self._rivals = CompetingController(ledger)
        self._refusal: str | None = None
        self._at_work = False
        self._touched: set[Key] = set()
        self._subscription: Subscription | None = None
        # When each thing that a PodGroup lacks may be done, and when the first of them that can be: monotonic seconds.
        self._due: dict[Key, dict[Thing, float]] = {}
        self._next: dict[Key, float] = {}
        self._troubles: dict[Key, dict[Thing, str]] = {}
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def _refused(self) -> bool:
        return self._refusal is not None

    def notes(self) -> Mapping[str, str]:
        """What there is to know in `/readyz?verbose`; nothing while it is off or all goes well."""
        if not self._enabled:
            return {}
        if self._refusal is not None:
            return {"group-claims": self._refusal}
        if self._at_work and not self._groups.api_version:
            return {"group-claims": "on, but PodGroups are not served by this API server: nothing to do"}
        troubled = {
            key: words for key, each in self._troubles.items() if (words := next(filter(None, each.values()), ""))
        }
        if troubled:
            key, words = min(troubled.items())
            return {"group-claims": f"PodGroups that lack something: {len(troubled)}; {'/'.join(key)}: {words}"}
        return {}

    async def run(self) -> None:
        """Work until `stop`, or until there is another one at work."""
        self._metrics.group_claims_refused(refused=self._refused)
        if not self._enabled:
            return
        self.begin()
        if not self._groups.api_version:
            _LOG.info("there is nothing to do for claims of PodGroups: the API server does not serve PodGroups")
            return
        next_sweep = self._clock.monotonic()
        while not self._refused and not await self._stopped(_TICK_SECONDS):
            now = self._clock.monotonic()
            if now >= next_sweep:
                self.sweep()
                next_sweep = now + _SWEEP_SECONDS
            await self.look()
        self._unsubscribe()

    async def stop(self) -> None:
        """End `run`; returns when a write in progress has come to its end."""
        self._stopping.set()
        self._at_work = False
        await self._idle.wait()

    def sweep(self) -> None:
        """Look at every PodGroup in the next `look`, should a change not have been told of."""
        self._rivals.prune()
        self._touched.update(each.metadata.key for each in self._ledger.pod_groups.all())

    async def look(self) -> None:
        """Look at the PodGroups of which something has changed, or for which something is due."""
        now = self._clock.monotonic()
        touched = self._touched | {key for key, when in self._next.items() if now >= when}
        self._touched.clear()
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for key in sorted(touched):
            if self._refused or self._stopping.is_set():
                return
            # Should it fail, it is looked at again a little later, and the other groups before.
            self._next[key] = self._clock.monotonic() + _AGAIN_SECONDS["failed"]
            with self._supervisor.sparing(BackgroundTask.GROUP_CLAIMS, pod_group=key):
                group = self._ledger.pod_groups.get(*key)
                if group is None or not (has_claims(group) or is_kept_by_protection(group)):
                    self._forget(key)
                else:
                    await self._look_at(group)
            if loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    def begin(self) -> None:
        """A term begins: what is there counts as it is, and what appears from now on tells who else is at work."""
        self._stopping.clear()
        self._at_work = True
        self._touched.clear()
        self._due.clear()
        self._next.clear()
        self._troubles.clear()
        self._rivals.begin()
        self._unsubscribe()
        self._subscription = self._ledger.events.subscribe(PodGroupChanged, lambda event: self._touched.add(event.key))

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    async def _look_at(self, group: PodGroup) -> None:
        key = group.metadata.key
        work = work_for(group, self._ledger, self._groups.api_version)
        rival = self._rivals.evidence(group, work)
        if rival is not None:
            await self._refuse(rival)
            return
        suspicion = self._rivals.suspicion(group)
        if suspicion is not None:
            await self._leave_alone(group, suspicion)
            return
        leaving = is_kept_by_protection(group) and not any(map(is_active, self._ledger.pods.members(*key)))
        if work.is_done and not leaving:
            self._forget(key)
            return
        jobs = {each.thing: each for each in self._jobs(group, work, leaving=leaving)}
        now, before = self._clock.monotonic(), self._due.get(key, {})
        due = self._due[key] = {thing: before.get(thing, now + job.delay) for thing, job in jobs.items()}
        # A member's time runs from when it is seen, although what it is to be told is not known yet.
        due |= {
            thing: before.get(thing, now + SETTLE_SECONDS) for thing in map(_telling, work.waiting) if thing not in due
        }
        known = self._troubles.get(key, {})
        self._troubles[key] = {thing: words for thing, words in known.items() if thing in jobs}
        ready = [job for thing, job in jobs.items() if now >= due[thing]]
        self._idle.clear()
        try:
            await self._work_off(key, ready, due)
        finally:
            self._idle.set()
        self._next[key] = now if ready else min((due[thing] for thing in jobs), default=math.inf)

    def _jobs(self, group: PodGroup, work: ReconcilePlan, *, leaving: bool) -> Iterator[_Job]:
        """What can be done for the group, in order."""
        for making in work.makings:
            yield _Job(("make", making.owner.uid, making.entry), self._grace, partial(self.writing.make, making))
        if work.record:
            thing = ("record", *(text for each in sorted(work.record.items()) for text in each))
            yield _Job(thing, SETTLE_SECONDS, partial(self._record, group, work.record))
        if leaving:
            yield _Job(("let_go", group.metadata.uid), self._grace, partial(self.writing.unprotect, group))
        for telling in work.tellings:
            yield _Job(_telling(telling.pod.uid), SETTLE_SECONDS, partial(self._tell, telling))

    async def _work_off(self, key: Key, jobs: Sequence[_Job], due: dict[Thing, float]) -> None:
        """Do these; what could not be done is due again some seconds later, and so is what was done until the watch shows it."""
        for start in range(0, len(jobs), _AT_ONCE):
            if self._stopping.is_set():
                return
            some = jobs[start : start + _AT_ONCE]
            outcomes = await asyncio.gather(*(self._attempt(each.thing[0], each.write) for each in some))
            for job, (outcome, words) in zip(some, outcomes, strict=True):
                due[job.thing] = self._clock.monotonic() + _AGAIN_SECONDS[outcome]
                self._trouble(key, job.thing, words)

    def _trouble(self, key: Key, thing: Thing, words: str) -> None:
        """Remember what stands in the way of something, or that nothing does."""
        troubles = self._troubles.setdefault(key, {})
        if words and troubles.get(thing) != words:
            _LOG.warning("a PodGroup lacks something", pod_group="/".join(key), problem=words)
        troubles[thing] = words

    async def _record(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        self._rivals.recording(group, claims.values())
        await self.writing.record(group, claims)

    async def _tell(self, telling: PublishClaims) -> None:
        self._rivals.telling(telling.pod.uid)
        await self.writing.tell(telling)

    async def _attempt(self, step: str, write: Callable[[], Awaitable[object]]) -> tuple[str, str]:
        """What became of a write: done, changed (something else did meanwhile) or failed, and then why."""
        outcome, words = "done", ""
        try:
            await write()
        except (ConflictError, NotFoundError):
            outcome = "changed"
        except (ClusterError, ModelError) as problem:
            outcome, words = "failed", str(problem)
        self._metrics.group_claim(step, outcome)
        return outcome, words

    def _forget(self, key: Key) -> None:
        self._next.pop(key, None)
        self._due.pop(key, None)
        self._troubles.pop(key, None)

    async def _refuse(self, rival: str) -> None:
        """End the work for good, and take back what nobody has been told of."""
        self._refusal = (
            f"stopped, because another controller makes the claims of PodGroups: it made {rival}; "
            "scheduling.group_claims_enabled is for clusters in which nobody else does"
        )
        _LOG.error("the claims of PodGroups are left to another controller", reason=self._refusal)
        self._metrics.group_claims_refused(refused=True)
        await self._withdraw(list(self._ledger.pod_groups.all()))

    async def _leave_alone(self, group: PodGroup, suspicion: str) -> None:
        """Do nothing for a group while there is a claim that somebody else made for it, be it a controller or a user."""
        key = group.metadata.key
        self._due.pop(key, None)
        self._troubles[key] = {thing: words for thing, words in self._troubles.get(key, {}).items() if thing == _LEFT}
        self._trouble(
            key, _LEFT, f"somebody else made {suspicion}: while it is there, nothing is done for this PodGroup"
        )
        await self._withdraw([group])

    async def _withdraw(self, groups: Sequence[PodGroup]) -> None:
        """Delete the claims that we made for these groups and that nobody has been told of."""
        self._idle.clear()
        try:
            for group in groups:
                for record in unrecorded(group, self._ledger):
                    await self._attempt("withdraw", partial(self.writing.withdraw, record.claim))
        finally:
            self._idle.set()

    async def _stopped(self, seconds: float) -> bool:
        """Wait so long, at most until the stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True


def _telling(pod_uid: str) -> Thing:
    return ("tell", pod_uid)
