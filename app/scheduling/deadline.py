from app.cel import Budget
from app.scheduling.ports import Clock


def time_is_up(clock: Clock, seconds: float) -> Budget:
    """Tells, from now on, whether this many seconds have passed, or selectors have cost what a call may spend on them."""
    now = clock.monotonic
    end = now() + seconds
    return Budget(deadline=lambda: now() > end, clock=now)
