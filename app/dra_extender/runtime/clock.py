import time
from typing import Final

# Unlike CLOCK_MONOTONIC it goes on while the machine sleeps: other holders see the lease expire in that time.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """A clock that never goes back and does not stop while the machine sleeps, seconds."""
        return time.clock_gettime(_STEADY)
