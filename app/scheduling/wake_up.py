import asyncio

import structlog

from app.ledger.ledger import Ledger
from app.scheduling.options import Options
from app.scheduling.ports import Clock, ClusterError, SchedulerWaker
from app.scheduling.refusals import Refusals
from app.telemetry.metrics import Metrics

_LOG = structlog.get_logger(__name__)


class WakeUp:
    """Makes kube-scheduler try refused pods again when something changed that it does not watch, or that we saw later than it did.

    kube-scheduler retries rejected pods by itself on claim, class, node and pod events, but it has no handler for slices and knows
    nothing of holds.  A change is told once, a moment after it happened, so that retries it causes by itself come first.
    """

    def __init__(
        self,
        ledger: Ledger,
        refusals: Refusals,
        waker: SchedulerWaker,
        metrics: Metrics,
        clock: Clock,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._refusals = refusals
        self._waker = waker
        self._metrics = metrics
        self._clock = clock
        self._options = options

    async def run(self) -> None:
        """Watch for helpful changes until cancelled."""
        while True:
            if self.due() is None:
                await self._something_happens()
                continue
            await asyncio.sleep(self._options.wake_delay_seconds)
            if self.due() is not None:
                await self.poke()
                await asyncio.sleep(self._options.wake_interval_seconds)

    def due(self) -> str | None:
        """What has changed for some refused pod since it was refused, if anything."""
        self._ledger.holds.expire(self._clock.monotonic())
        self._refusals.forget_settled()
        return self._refusals.helped_since()

    async def poke(self) -> None:
        """Tell kube-scheduler; a failure is logged, and tried again with the next change."""
        reason = self._refusals.helped_since() or "asked"
        self._refusals.poked()
        try:
            await self._waker.wake()
        except ClusterError as problem:
            _LOG.warning("kube-scheduler could not be woken", problem=str(problem), waiting=len(self._refusals))
            return
        self._metrics.woke(reason)

    async def _something_happens(self) -> None:
        """A helpful change, the end of a hold, or a second passing (holds may have lapsed)."""
        waits = {
            asyncio.ensure_future(self._ledger.helped.wait(1.0)),
            asyncio.ensure_future(self._ledger.holds.changed.wait(1.0)),
        }
        _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in rest:
            each.cancel()
