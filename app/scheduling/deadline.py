from collections.abc import Callable

from app.scheduling.ports import Clock


def time_is_up(clock: Clock, seconds: float) -> Callable[[], bool]:
    """Tells, from now on, whether this many seconds have passed."""
    now = clock.monotonic
    end = now() + seconds
    return lambda: now() > end
