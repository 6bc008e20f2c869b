"""An event loop without a clock and without a network, which runs the use cases one step at a time, as a feed tells it."""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, NamedTuple, Protocol

from dra_extender.recording.observed_loop import TimerId, TimerNumbers
from dra_extender.recording.records import is_use_case


class Feed(Protocol):
    """What comes from outside into a loop of virtual time."""

    def turn(self) -> None:
        """Called whenever nothing is left to do but steps: makes something ready, or has a step run."""
        ...

    def step_begins(self) -> None:
        """A step is about to run."""
        ...

    def loop_time(self) -> float:
        """What the clock of the loop shows to the use cases."""
        ...


class _Callback(NamedTuple):
    handle: asyncio.Handle
    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context


class _Timer(NamedTuple):
    due: float
    run: _Callback


class ReplayLoop(asyncio.SelectorEventLoop):
    """Callbacks of the use cases wait for `run_step`, in their order, and their timers for `fire`; all others run at once.

    A step is a callback that the use cases have put into the loop.
    """

    def __init__(self, feed: Feed) -> None:
        self._now = 0.0
        # What the use cases saw last of the clock.
        self._seen = 0.0
        self._feed = feed
        self._numbers = TimerNumbers()
        self._steps: deque[_Callback] = deque()
        self._timers: dict[TimerId, _Timer] = {}
        super().__init__(_FeedingSelector(feed))

    @property
    def has_steps(self) -> bool:
        """Whether a step can run."""
        steps = self._steps
        while steps and steps[0].handle.cancelled():
            steps.popleft()
        return bool(steps)

    def run_step(self) -> bool:
        """Have the next step run; whether there is one."""
        if not self.has_steps:
            return False
        self._run_soon(self._steps.popleft(), is_step=True)
        return True

    def fire(self, timer: TimerId) -> bool:
        """Have a timer run; whether it was set, and is neither cancelled nor has run."""
        found = self._timers.pop(timer, None)
        if found is None or found.run.handle.cancelled():
            return False
        self._run_soon(found.run, is_step=False)
        return True

    def overdue(self, seconds: float) -> list[TimerId]:
        """The timers that should have run so long ago, in the order of their times."""
        self._timers = {timer: each for timer, each in self._timers.items() if not each.run.handle.cancelled()}
        found = [(each.due, timer) for timer, each in self._timers.items() if each.due + seconds <= self._now]
        return [timer for _, timer in sorted(found, key=lambda each: each[0])]

    def call_soon(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As in any loop; see above for the callbacks of the use cases."""
        if not is_use_case(context):
            return super().call_soon(callback, *args, context=context)
        context = context or copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._steps.append(_Callback(handle, callback, args, context))
        return handle

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in any loop; see above for the timers of the use cases."""
        if not is_use_case():
            return super().call_later(delay, callback, *args, context=context)
        return self._set(self._now + delay, callback, args, context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in any loop; see above for the timers of the use cases."""
        if not is_use_case():
            return super().call_at(when, callback, *args, context=context)
        return self._set(self._now + max(0.0, when - self._seen), callback, args, context)

    def time(self) -> float:
        """Virtual seconds; to the use cases, what the feed says."""
        if is_use_case():
            self._seen = self._feed.loop_time()
            return self._seen
        return self._now

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    def pass_to(self, time: float) -> None:
        """Let time pass, unless it is later already."""
        self._now = max(self._now, time)

    def _set(
        self, due: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        context = context or copy_context()
        handle = asyncio.TimerHandle(due, callback, args, self, context)
        self._timers[self._numbers.next()] = _Timer(due, _Callback(handle, callback, args, context))
        return handle

    def _run_soon(self, each: _Callback, *, is_step: bool) -> None:
        super().call_soon(self._run, each, is_step, context=each.context)

    def _run(self, each: _Callback, is_step: bool) -> None:
        if each.handle.cancelled():
            return
        if is_step:
            self._feed.step_begins()
        each.callback(*each.args)


class _FeedingSelector(selectors.BaseSelector):
    """Never waits, and has no files: `select` is where the feed comes in."""

    def __init__(self, feed: Feed) -> None:
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
        if timeout is None or timeout > 0:
            self._feed.turn()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """See BaseSelector."""
        return self._keys
