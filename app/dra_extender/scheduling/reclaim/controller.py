import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.bind import Bind
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.reclaim.observe import ReclaimableClaim, ReclaimFacts
from dra_extender.scheduling.reclaim.rules import ReclaimReason
from dra_extender.scheduling.reclaim.writer import ReclaimResult, ReclaimWriting
from dra_extender.telemetry.metrics import Metrics

_TICK_SECONDS = 0.25
_TURN_SECONDS = 0.002


@dataclass(slots=True)
class _Sighting:
    """Something to be taken back: in which state of the claim, and since when (monotonic).

    `given_up`: the version of the claim that was somebody else's.
    """

    state: tuple[object, ...]
    since: float
    given_up: str = ""


class Reclaim:
    """Gives back, in the background, what nobody uses: kube-scheduler tells an extender of no failure after filter.

    Only what stays the same for a while is taken back; how long, and how much of it per second, are settings.  A claim of a bind
    in progress is left alone, and binds keep off a claim that is being taken back.
    """

    def __init__(
        self,
        ledger: Ledger,
        bind: Bind,
        facts: ReclaimFacts,
        writing: ReclaimWriting,
        metrics: Metrics,
        clock: Clock,
        options: Options,
        supervisor: Supervisor,
    ) -> None:
        self._ledger = ledger
        self._bind = bind
        self._facts = facts
        self._writing = writing
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self._supervisor = supervisor
        self._sightings: dict[str, _Sighting] = {}
        self._expired = 0
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """BackgroundTask until `stop`: often at what is known to be suspicious, now and then at all claims."""
        self._stopping.clear()
        self._sightings.clear()
        next_sweep = self._clock.monotonic()
        while not await self._stopped(_TICK_SECONDS):
            await self.look()
            if self._clock.monotonic() >= next_sweep:
                await self.sweep()
                next_sweep = self._clock.monotonic() + self._options.reclaim_interval_seconds

    async def stop(self) -> None:
        """End `run`; returns when a write in progress has come to its end."""
        self._stopping.set()
        await self._idle.wait()

    async def look(self) -> None:
        """End holds whose time is over, and look at claims that tie a refused pod down or were suspicious before."""
        self._expire_holds()
        if not self._options.reclaim_enabled:
            return
        tied = self._facts.tied_down()
        suspicious = [self._ledger.claims.by_uid(uid) for uid in {*self._sightings, *tied}]
        self._forget({uid for uid in self._sightings if self._ledger.claims.by_uid(uid) is None})
        await self._go_through((each for each in suspicious if each is not None), tied)

    def _expire_holds(self) -> None:
        """End what is over, and count also what others ended meanwhile because they could not wait."""
        holds = self._ledger.holds
        holds.expire(self._clock.monotonic())
        for _ in range(holds.expired - self._expired):
            self._metrics.reclaimed(ReclaimReason.HOLD_EXPIRED, ReclaimResult.DONE)
        self._expired = holds.expired

    async def sweep(self) -> None:
        """Look at every claim."""
        if self._options.reclaim_enabled:
            await self._go_through(list(self._ledger.claims.records()), self._facts.tied_down())

    async def _go_through(self, records: Iterable[ClaimRecord], tied: AbstractSet[str]) -> None:
        """Look at these claims, with a turn of the event loop every few milliseconds."""
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for record in records:
            finding = None
            # No context manager: in a large cluster thousands of claims are looked at several times a second.
            try:
                finding = self._due(record, tied)
                if finding is not None:
                    await self._take_back(record, finding, tied)
            except Exception as problem:  # noqa: BLE001 - a failure costs this claim alone, and its grace begins anew
                self._supervisor.report(str(BackgroundTask.RECLAIM), problem, claim=record.claim.metadata.key)
                self._sightings.pop(record.claim.metadata.uid, None)
            if finding is not None and await self._stopped(self._options.reclaim_pause_seconds):
                return
            if finding is not None or loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    def _due(self, record: ClaimRecord, tied: AbstractSet[str]) -> ReclaimableClaim | None:
        """What is to be taken back from the claim now: it has been so for long enough."""
        uid = record.claim.metadata.uid
        known = record.pending is None and record.has_status
        finding = self._facts.find(record.claim, tied) if known else None
        if finding is None:
            self._sightings.pop(uid, None)
            return None
        now, version = self._clock.monotonic(), record.claim.metadata.resource_version
        seen = self._sightings.get(uid)
        if seen is None or seen.state != finding.state or seen.given_up not in ("", version):
            seen = self._sightings[uid] = _Sighting(finding.state, now)
        options = self._options
        grace = options.reclaim_unfit_seconds if finding.surplus.prompt else options.reclaim_grace_seconds
        return finding if not seen.given_up and now >= seen.since + grace else None

    async def _take_back(self, record: ClaimRecord, finding: ReclaimableClaim, tied: AbstractSet[str]) -> None:
        uid = record.claim.metadata.uid
        if self._facts.busy(uid):
            self._sightings.pop(uid, None)
            return
        self._idle.clear()
        try:
            with self._bind.set_aside(uid):
                outcome = await self._writing(record, finding, tied)
        finally:
            self._idle.set()
        self._metrics.reclaimed(finding.surplus.reason, outcome)
        seen = self._sightings.get(uid)
        if outcome is ReclaimResult.FOREIGN and seen is not None:
            seen.given_up = record.claim.metadata.resource_version
        else:
            self._sightings.pop(uid, None)

    def _forget(self, uids: AbstractSet[str]) -> None:
        for uid in uids:
            del self._sightings[uid]

    async def _stopped(self, seconds: float) -> bool:
        """Wait so long, at most until the stop."""
        try:
            # Not `wait_for`, which loses a cancellation that comes together with the stop.
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
