"""The gauges of devices: counted in the background, so that a scrape costs the same in a large cluster."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from dra_extender.allocator.state.features import Features
from dra_extender.config.service_settings import MetricsSettings
from dra_extender.ledger.ledger import Ledger
from dra_extender.runtime.clock import Turns
from dra_extender.service.device_states import device_states
from dra_extender.telemetry.devices import DeviceState
from dra_extender.telemetry.metrics import Metrics


class DeviceCountTask:
    """Counts the devices by driver and state again and again.

    Each device is looked at once in a count, at its time: while devices change state, a count is not that of any one moment.
    """

    def __init__(
        self,
        ledger: Ledger,
        features: Features,
        metrics: Metrics,
        settings: MetricsSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._features = features
        self._metrics = metrics
        self._settings = settings
        self._sleep = sleep
        self._monotonic = monotonic
        self._now = now

    async def run(self) -> None:
        """Count until cancelled; returns at once if the setting says so.

        The first count comes after one interval: a replica that starts has pods to place.
        """
        while self._settings.devices_enabled:
            await self._sleep(self._settings.devices_interval_seconds)
            await self.count()

    async def count(self) -> None:
        """Count once, in turns."""
        states: dict[str, Counter[str]] = defaultdict(lambda: Counter({each.value: 0 for each in DeviceState}))
        reasons: dict[str, Counter[str]] = defaultdict(Counter)
        turns = Turns(self._sleep, self._monotonic)
        for each in device_states(self._ledger, self._features):
            if each is not None:
                states[each.driver][each.state.value] += 1
                if each.reason is not None:
                    reasons[each.driver][each.reason.value] += 1
            if turns.over:
                await turns.pause()
        self._metrics.devices(states, reasons)
        self._metrics.devices_counted(turns.worked, self._now())
