"""Virtual time: an event loop whose clock advances only while nothing else can happen, so that no result depends on the machine."""

import array
import asyncio
import contextlib
import errno
import selectors
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from importlib import import_module
from typing import Any, Final

from dra_extender.runtime.installation import is_installed

START: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z in seconds since the epoch."""
_STEP_SECONDS: Final = 0.002
"""Real seconds that bytes and threads of this process are given before it is asked again whether anything is ready."""
_MOST_STEPS: Final = 500
"""Steps that bytes under way are given; only bytes for a socket whose reading is paused take longer."""
_READING_SECONDS: Final = 0.0001
"""Virtual seconds that a reading of the clock takes: a search that reads the clock until its time is up comes to an end."""
_FCNTL: Final[Any] = import_module("fcntl") if is_installed("fcntl") else None
"""The module that asks a socket for its bytes under way; None on Windows, where nobody can tell."""
_ACKNOWLEDGE_NOW: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
_UNACKNOWLEDGED: Final[int] = 0 if _FCNTL is None else import_module("termios").TIOCOUTQ


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Skip to the next timer when no callback is ready, no thread works and no byte is under way between own sockets."""

    def __init__(self) -> None:
        self._now = 0.0
        self._threads_at_work = 0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    @property
    def waits_for_threads(self) -> bool:
        return self._threads_at_work > 0

    def run_in_executor(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function in a thread; time does not skip meanwhile."""
        work = super().run_in_executor(executor, func, *args)
        self._threads_at_work += 1
        work.add_done_callback(self._thread_done)
        return work

    def _thread_done(self, _: asyncio.Future[Any]) -> None:
        self._threads_at_work -= 1


def running_virtual_loop() -> VirtualClockLoop:
    """Return the running event loop.  Raises TypeError: it has real time."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualClockLoop):
        raise TypeError(f"expected the event loop to be a VirtualClockLoop, found {type(loop).__name__}")
    return loop


class VirtualClock:
    """The clock of a VirtualClockLoop.  Implements ports.Clock."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        self._loop = loop
        self._made = loop.time()

    def now(self) -> float:
        """Return seconds since the epoch, as if the clock had been made on START."""
        return START + self.monotonic() - self._made

    def monotonic(self) -> float:
        """Return virtual seconds since the loop was made."""
        self._loop.pass_time(_READING_SECONDS)
        return self._loop.time()


class _SkippingSelector(selectors.DefaultSelector):
    """Waits in virtual time where the selector of the platform would wait in real time."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if timeout is None:
            return super().select(None)
        if self._loop.waits_for_threads:
            return super().select(_STEP_SECONDS)
        for _ in range(_MOST_STEPS):
            sent = [_unacknowledged(key) for key in self.get_map().values()]
            # Bytes may have arrived between the first look and the question, so the last look comes after the question.
            events = super().select(_STEP_SECONDS if None in sent or any(sent) else 0)
            if events:
                return events
            if not any(sent) or not self._acknowledge():
                break
        self._loop.pass_time(timeout)
        return []

    def _acknowledge(self) -> bool:
        """Let sockets acknowledge what they have received; return whether the system can do so at once."""
        if _ACKNOWLEDGE_NOW is None:
            return False
        for key in self.get_map().values():
            with contextlib.suppress(OSError):
                end = socket.socket(fileno=key.fd)
                try:
                    end.setsockopt(socket.IPPROTO_TCP, _ACKNOWLEDGE_NOW, 1)
                finally:
                    end.detach()
        return True


def _unacknowledged(key: selectors.SelectorKey) -> int | None:
    """Return the number of bytes sent that the other end has not acknowledged; None if that cannot be known."""
    if key.events & selectors.EVENT_WRITE or _FCNTL is None:
        return None
    number = array.array("i", [0])
    try:
        _FCNTL.ioctl(key.fd, _UNACKNOWLEDGED, number)
    except OSError as problem:
        # EINVAL: a socket that listens has no queue of bytes.  Anything else: this system does not tell.
        return 0 if problem.errno == errno.EINVAL else None
    return number[0]
