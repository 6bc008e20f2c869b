"""The time as a function without arguments, which a test sets."""


class SettableTime:
    """Returns `now` (seconds)."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
