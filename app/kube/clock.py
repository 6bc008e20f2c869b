import time


class SystemClock:
    """The clock of this machine (`app.scheduling.ports.Clock`)."""

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """A clock that never goes back, seconds."""
        return time.monotonic()
