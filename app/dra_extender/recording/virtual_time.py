"""An event loop without a clock and without a network: time passes when nothing else is left to do."""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, Final, Protocol

from dra_extender.recording.timers import TimerId, TimerNumbers

_LATE_SECONDS: Final = 2.0
"""How long after its time a timer runs that the recording does not have."""


class Feed(Protocol):
    """What comes from outside into a loop of virtual time."""

    def before_turn(self, *, idle: bool, timer: float | None) -> None:
        """Called before each turn of the loop, where a network would be looked at.

        `idle`: nothing is ready; `timer` is then when the next timer is due, None without one.  What it makes ready stands behind
        what is ready.  When it makes nothing ready, it lets time pass to the timer.
        """
        ...


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs what is ready, turn by turn; `turns` counts them."""

    def __init__(self, feed: Feed) -> None:
        self.turns = 0
        self._now = 0.0
        self._numbers = TimerNumbers()
        self._timers: dict[TimerId, tuple[asyncio.TimerHandle, Callable[[], object]]] = {}
        super().__init__(_FeedingSelector(self, feed))

    def call_at(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in any loop; timers of the use cases wait for `fire`, or run late."""
        timer = self._numbers.next()
        if timer is None:
            return super().call_at(when, callback, *args, context=context)
        handle = super().call_at(when + _LATE_SECONDS, callback, *args, context=context)
        self._timers[timer] = (handle, lambda: self.call_soon(callback, *args, context=context))
        return handle

    def fire(self, timer: TimerId) -> None:
        """Have a timer run in the next turn, unless it was cancelled or has run."""
        handle, run = self._timers.pop(timer, (None, None))
        if handle is not None and run is not None and not handle.cancelled() and handle.when() >= self._now:
            handle.cancel()
            run()

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def pass_to(self, time: float) -> None:
        """Let time pass, unless it is later already."""
        self._now = max(self._now, time)


class _FeedingSelector(selectors.BaseSelector):
    """Never waits, and has no files: `select` is where the feed comes in."""

    def __init__(self, loop: VirtualTimeLoop, feed: Feed) -> None:
        self._loop = loop
        self._feed = feed
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See BaseSelector."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """See BaseSelector."""
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See BaseSelector."""
        self._loop.turns += 1
        idle = timeout is None or timeout > 0
        self._feed.before_turn(idle=idle, timer=self._loop.time() + timeout if timeout else None)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """See BaseSelector."""
        return self._keys
