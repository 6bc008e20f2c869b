"""Inside of a probe: CPU between two looks at a deadline, CPU of single native calls, and memory."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from types import FrameType
from typing import Any, Final

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_DEADLINE_SECONDS: Final = 0.02
_PROFILED_DEADLINE_SECONDS: Final = 0.1


class Stalls:
    """A deadline that is up after some CPU, and remembers the longest time in which nobody asked it."""

    def __init__(self, seconds: float = _DEADLINE_SECONDS) -> None:
        self._begun = self._last = thread_time()
        self._seconds = seconds
        self.longest = 0.0
        self.asked = 0

    def __call__(self) -> bool:
        now = thread_time()
        self.asked += 1
        self.longest = max(self.longest, now - self._last)
        self._last = now
        return now - self._begun > self._seconds

    def end(self) -> tuple[float, float]:
        """The longest time between two looks, the end included, and the whole."""
        self()
        return self.longest, self._last - self._begun


class NativeCalls:
    """The longest CPU between two events of the interpreter: a native call or an operator that is one."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.where = ""
        self._last = 0.0

    def run(self, action: Callable[[], Any]) -> None:
        """Run with every call observed; what the action raises is ignored."""
        gc.collect()
        gc.disable()
        self._last = thread_time()
        sys.setprofile(self._event)
        try:
            action()
        except Exception:  # noqa: BLE001, S110 - how it ended was seen without the profile already
            pass
        finally:
            sys.setprofile(None)
            gc.enable()

    def _event(self, frame: FrameType, kind: str, argument: Any) -> None:
        now = thread_time()
        if now - self._last > self.longest:
            self.longest = now - self._last
            name = f" {getattr(argument, '__qualname__', '')}" if kind.startswith("c_") else ""
            code = frame.f_code
            self.where = f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno}){name}"
        self._last = thread_time()


def profiled_deadline() -> Stalls:
    """A deadline for a run in which every call is observed, which takes longer."""
    return Stalls(_PROFILED_DEADLINE_SECONDS)


def resident() -> int:
    """Bytes in memory now."""
    return _status("VmRSS")


def forget_peak() -> None:
    """Let the peak begin at what is in memory now."""
    _CLEAR.write_text("5")


def peak() -> int:
    """Most bytes that were in memory since the peak was forgotten."""
    return _status("VmHWM")


def _status(name: str) -> int:
    text = _STATUS.read_text()
    return int(text[text.index(name) :].split(None, 2)[1]) * 1024
