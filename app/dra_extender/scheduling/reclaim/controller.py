import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.bind import Bind
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.reclaim.observe import ReclaimableClaim, ReclaimFacts
from dra_extender.scheduling.reclaim.rules import ReclaimReason
from dra_extender.scheduling.reclaim.writer import ReclaimResult, ReclaimWriter
from dra_extender.telemetry.metrics import Metrics

_TICK_SECONDS = 0.25
_TURN_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class ReclaimDependencies:
    """What the controller works with."""

    ledger: Ledger
    bind: Bind
    holds: HoldService
    facts: ReclaimFacts
    writer: ReclaimWriter
    metrics: Metrics
    clock: Clock
    options: Options
    supervisor: Supervisor


@dataclass(slots=True)
class _Suspect:
    """A claim that can do without something: its state, and since when it has been the same (monotonic).

    `foreign_version`: the resourceVersion at which the writer left it alone, because another field manager wrote it.
    """

    state: tuple[object, ...]
    since: float
    foreign_version: str = ""


class ReclaimController:
    """Releases devices that no pod uses, in the background: kube-scheduler reports no failure after filter to an extender.

    Only what stays the same for a grace is released; the grace and the rate are settings.  The controller leaves the claims of a
    bind in progress alone, and binds wait for a claim that is being released.
    """

    def __init__(self, uses: ReclaimDependencies) -> None:
        self._ledger = uses.ledger
        self._bind = uses.bind
        self._holds = uses.holds
        self.facts = uses.facts
        self._writer = uses.writer
        self._metrics = uses.metrics
        self._clock = uses.clock
        self._options = uses.options
        self._supervisor = uses.supervisor
        self._suspects: dict[str, _Suspect] = {}
        self._expired = 0
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Check suspects often and all claims now and then, until `stop`."""
        self._stopping.clear()
        self._suspects.clear()
        next_sweep = self._clock.monotonic()
        while not await self._stopped(_TICK_SECONDS):
            await self.check_suspects()
            if self._clock.monotonic() >= next_sweep:
                await self.sweep()
                next_sweep = self._clock.monotonic() + self._options.reclaim_interval_seconds

    async def stop(self) -> None:
        """End `run`; returns when a write in progress has ended."""
        self._stopping.set()
        await self._idle.wait()

    async def check_suspects(self) -> None:
        """End expired holds, and check claims that block a rejected pod or were suspects before."""
        self._expire_holds()
        if not self._options.reclaim_enabled:
            return
        blocking = self.facts.blocking_claims()
        for uid in [uid for uid in self._suspects if self._ledger.claims.by_uid(uid) is None]:
            del self._suspects[uid]
        suspects = [self._ledger.claims.by_uid(uid) for uid in dict.fromkeys((*self._suspects, *blocking))]
        await self._check((each for each in suspects if each is not None), blocking)

    def _expire_holds(self) -> None:
        """End expired holds, and count them with those that other calls of `expire` ended since the last time."""
        self._holds.expire()
        expired = self._ledger.holds.expired
        for _ in range(expired - self._expired):
            self._metrics.reclaimed(ReclaimReason.HOLD_EXPIRED, ReclaimResult.DONE)
        self._expired = expired

    async def sweep(self) -> None:
        """Check every claim."""
        if self._options.reclaim_enabled:
            await self._check(list(self._ledger.claims.records()), self.facts.blocking_claims())

    async def _check(self, records: Iterable[ClaimRecord], blocking: AbstractSet[str]) -> None:
        """Release what these claims can do without, if it is due; other tasks get a turn every few milliseconds."""
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for record in records:
            due = None
            # No context manager: in a large cluster this loop runs for thousands of claims several times a second.
            try:
                due = self._find_due(record, blocking)
                if due is not None:
                    await self._release(record, due, blocking)
            except Exception as problem:  # noqa: BLE001 - a failure costs this claim alone, and its grace begins anew
                self._supervisor.report(str(BackgroundTask.RECLAIM), problem, claim=record.claim.metadata.key)
                self._suspects.pop(record.claim.metadata.uid, None)
            if due is not None and await self._stopped(self._options.reclaim_pause_seconds):
                return
            if due is not None or loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    def _find_due(self, record: ClaimRecord, blocking: AbstractSet[str]) -> ReclaimableClaim | None:
        """What the claim can do without, once its state has been the same for the grace; None before."""
        uid = record.claim.metadata.uid
        is_known = record.pending is None and record.has_status
        found = self.facts.find(record.claim, blocking) if is_known else None
        if found is None:
            self._suspects.pop(uid, None)
            return None
        now, version = self._clock.monotonic(), record.claim.metadata.resource_version
        suspect = self._suspects.get(uid)
        if suspect is None or suspect.state != found.state or suspect.foreign_version not in ("", version):
            suspect = self._suspects[uid] = _Suspect(found.state, now)
        options = self._options
        grace = options.reclaim_unfit_seconds if found.releasable.prompt else options.reclaim_grace_seconds
        return found if not suspect.foreign_version and now >= suspect.since + grace else None

    async def _release(self, record: ClaimRecord, due: ReclaimableClaim, blocking: AbstractSet[str]) -> None:
        uid = record.claim.metadata.uid
        if self.facts.busy(uid):
            self._suspects.pop(uid, None)
            return
        self._idle.clear()
        try:
            with self._bind.lock_claim(uid):
                result = await self._writer.release(record, due, blocking)
        finally:
            self._idle.set()
        self._metrics.reclaimed(due.releasable.reason, result)
        suspect = self._suspects.get(uid)
        if result is ReclaimResult.FOREIGN and suspect is not None:
            suspect.foreign_version = record.claim.metadata.resource_version
        else:
            self._suspects.pop(uid, None)

    async def _stopped(self, seconds: float) -> bool:
        """Wait for this time or the stop; whether it was the stop."""
        try:
            # Not `wait_for`, which loses a cancellation that comes together with the stop.
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
