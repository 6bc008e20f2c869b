"""The claims of PodGroups where kube-controller-manager does not make them (its gate DRAWorkloadResourceClaims is off).

Off unless it is asked for, and never beside somebody else: nothing is made before a grace has passed in which another one would
have made it, a claim that is made is told of only a moment later, and at the first sign of another one the work ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import structlog

from app.ledger.ledger import Ledger
from app.model.base import ModelError
from app.model.pod_group import PodGroup
from app.scheduling.claim_writing import ClaimWriting
from app.scheduling.group_claim_rivals import Rivals
from app.scheduling.group_claim_rules import (
    Making,
    Telling,
    Work,
    has_templates,
    is_active,
    is_kept_by_protection,
    unrecorded,
    work_for,
)
from app.scheduling.group_claim_writing import GroupClaimWriting
from app.scheduling.options import Options
from app.scheduling.ports import Cluster, ClusterError, Conflict, NotFound
from app.telemetry.metrics import Metrics

SETTLE_SECONDS: Final = 1.0
"""For so long a claim is there before anybody is told of it: another one that is made beside it shows within that time."""
_TICK_SECONDS: Final = 0.25
_SWEEP_SECONDS: Final = 5.0
_TURN_SECONDS: Final = 0.002
_AT_ONCE: Final = 16

_LOG = structlog.get_logger(__name__)
Key = tuple[str, str]
Thing = tuple[str, ...]


class GroupClaims:
    """Makes, records and makes known the claims of PodGroups, and lets PodGroups go that are not used any more.

    Everything is decided anew from the stored objects; what is remembered is only since when something is lacking.
    """

    def __init__(
        self, ledger: Ledger, cluster: Cluster, writing: ClaimWriting, metrics: Metrics, options: Options
    ) -> None:
        self._ledger = ledger
        self._groups = cluster.pod_groups
        self._clock = cluster.clock
        self.writing = GroupClaimWriting(ledger, cluster, writing)
        self._metrics = metrics
        self._enabled = options.group_claims_enabled
        self._grace = options.group_claims_grace_seconds
        self._rivals = Rivals(ledger)
        self._refusal: str | None = None
        self._at_work = False
        self._touched: set[Key] = set()
        self._open: set[Key] = set()
        self._since: dict[Key, dict[Thing, float]] = {}
        self._troubles: dict[Key, str] = {}
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ends_reservations(self) -> bool:
        """Whether it is on us to end reservations of PodGroups that are gone."""
        return self._at_work and self._refusal is None

    def notes(self) -> Mapping[str, str]:
        """What there is to know in `/readyz?verbose`; nothing while it is off or all goes well."""
        if not self._enabled:
            return {}
        if self._refusal is not None:
            return {"group-claims": self._refusal}
        if self._at_work and not self._groups.api_version:
            return {"group-claims": "on, but PodGroups are not served by this API server: nothing to do"}
        if self._troubles:
            key, trouble = min(self._troubles.items())
            return {"group-claims": f"{len(self._troubles)} PodGroups lack claims; {'/'.join(key)}: {trouble}"}
        return {}

    async def run(self) -> None:
        """Work until `stop`, or until there is another one at work."""
        self._metrics.group_claims_refused(refused=self._refusal is not None)
        if not self._enabled:
            return
        self.begin()
        if not self._groups.api_version:
            _LOG.info("there is nothing to do for claims of PodGroups: the API server does not serve PodGroups")
            return
        next_sweep = self._clock.monotonic()
        while self._refusal is None and not await self._stopped(_TICK_SECONDS):
            try:
                now = self._clock.monotonic()
                if now >= next_sweep:
                    self.sweep()
                    next_sweep = now + _SWEEP_SECONDS
                await self.look()
            except Exception:  # noqa: BLE001 - the loop must outlive whatever one PodGroup does to it
                _LOG.exception("the claims of PodGroups could not be looked through")
        self._ledger.on_group_touched = None

    async def stop(self) -> None:
        """End `run`; returns when a write in progress has come to its end."""
        self._stopping.set()
        self._at_work = False
        await self._idle.wait()

    def sweep(self) -> None:
        """Look at every PodGroup in the next `look`."""
        self._rivals.prune()
        self._touched.update(each.metadata.key for each in self._ledger.pod_groups.all())
        self._open.clear()

    async def look(self) -> None:
        """Look at the PodGroups of which something has changed or something is lacking."""
        touched, self._touched = self._touched | self._open, set()
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for key in sorted(touched):
            group = self._ledger.pod_groups.get(*key)
            if group is None or not (has_templates(group) or is_kept_by_protection(group)):
                self._forget(key)
            else:
                await self._look_at(group)
            if self._refusal is not None or self._stopping.is_set():
                return
            if loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    def begin(self) -> None:
        """A term begins: what is there counts as it is, and what appears from now on tells who else is at work."""
        self._stopping.clear()
        self._at_work = True
        self._open.clear()
        self._touched.clear()
        self._since.clear()
        self._troubles.clear()
        self._rivals.begin()
        self._ledger.on_group_touched = self._touched.add

    async def _look_at(self, group: PodGroup) -> None:
        key = group.metadata.key
        work = work_for(group, self._ledger, self._groups.api_version)
        rival = self._rivals.evidence(group, work)
        if rival is not None:
            await self._refuse(rival)
            return
        leaving = is_kept_by_protection(group) and not any(map(is_active, self._ledger.pods.members(*key)))
        if work.is_done and not leaving:
            self._forget(key)
            return
        self._open.add(key)
        self._idle.clear()
        try:
            trouble = await self._work_off(group, work, leaving=leaving)
        finally:
            self._idle.set()
        if trouble is None:
            self._troubles.pop(key, None)
            return
        self._open.discard(key)
        if self._troubles.get(key) != trouble:
            _LOG.warning("a PodGroup lacks claims", pod_group="/".join(key), problem=trouble)
        self._troubles[key] = trouble

    async def _work_off(self, group: PodGroup, work: Work, *, leaving: bool) -> str | None:
        """Do whatever is due; what could not be done, in words, is tried again with the next sweep."""
        key = group.metadata.key
        due = self._due(key, _lacks(group, work, leaving=leaving))
        steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("make", partial(self.writing.make, each)) for each in work.makings if due(_of(each), self._grace)
        ]
        if work.record and all(due(("record", *each), SETTLE_SECONDS) for each in work.record.items()):
            steps.append(("record", partial(self.writing.record, group, work.record)))
        if leaving and due(("leave", group.metadata.uid), self._grace):
            steps.append(("let_go", partial(self.writing.unprotect, group)))
        troubles = [await self._attempt(*each) for each in steps if not self._stopping.is_set()]
        ready = [each for each in work.tellings if due(("tell", each.pod.uid), SETTLE_SECONDS)]
        for start in range(0, len(ready), _AT_ONCE):
            if not self._stopping.is_set():
                troubles += await asyncio.gather(*(self._tell(each) for each in ready[start : start + _AT_ONCE]))
        return next((each for each in troubles if each is not None), None)

    async def _tell(self, telling: Telling) -> str | None:
        self._rivals.telling(telling.pod.uid)
        return await self._attempt("tell", partial(self.writing.tell, telling))

    async def _attempt(self, step: str, write: Callable[[], Awaitable[object]]) -> str | None:
        """Why it could not be done; None if it was, or if something has changed meanwhile."""
        try:
            await write()
        except (Conflict, NotFound):
            self._metrics.group_claim(step, "changed")
        except (ClusterError, ModelError) as problem:
            self._metrics.group_claim(step, "failed")
            return str(problem)
        else:
            self._metrics.group_claim(step, "done")
        return None

    def _due(self, key: Key, lacks: Iterable[Thing]) -> Callable[[Thing, float], bool]:
        """Tells whether something has been lacking for so many seconds."""
        now, before = self._clock.monotonic(), self._since.get(key, {})
        since = self._since[key] = {each: before.get(each, now) for each in lacks}
        return lambda thing, seconds: now >= since[thing] + seconds

    def _forget(self, key: Key) -> None:
        self._open.discard(key)
        self._since.pop(key, None)
        self._troubles.pop(key, None)

    async def _refuse(self, rival: str) -> None:
        """End the work for good, and take back what nobody has been told of."""
        self._refusal = (
            f"stopped, because another controller makes the claims of PodGroups: it made {rival}; "
            "scheduling.group_claims_enabled is for clusters in which nobody else does"
        )
        _LOG.error("the claims of PodGroups are left to another controller", reason=self._refusal)
        self._metrics.group_claims_refused(refused=True)
        self._idle.clear()
        try:
            for group in list(self._ledger.pod_groups.all()):
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


def _of(making: Making) -> Thing:
    return ("make", making.owner.uid, making.entry)


def _lacks(group: PodGroup, work: Work, *, leaving: bool) -> Iterator[Thing]:
    """What is lacking, each as something that can be remembered."""
    yield from map(_of, work.makings)
    yield from (("record", *each) for each in (work.record or {}).items())
    yield from (("tell", uid) for uid in {*work.waiting, *(each.pod.uid for each in work.tellings)})
    if leaving:
        yield ("leave", group.metadata.uid)
