from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Lets `burst` things through at once, and then `rate` a second.  Times are seconds of a clock that never goes back."""

    burst: float
    rate: float
    tokens: float
    filled: float

    @classmethod
    def full(cls, burst: float, rate: float, now: float) -> "TokenBucket":
        """A bucket that has rested."""
        return cls(burst, rate, burst, now)

    def take(self, now: float) -> bool:
        """Whether one more may pass now."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    @property
    def pause(self) -> float:
        """Seconds from the last `take` until one more may pass."""
        return max(0.0, 1.0 - self.tokens) / self.rate


class TokenBuckets:
    """A bucket for each key, at most `capacity` of them: the one unused for longest is forgotten, which means full again."""

    def __init__(self, burst: float, rate: float, capacity: int) -> None:
        self._burst = burst
        self._rate = rate
        self._capacity = capacity
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def take(self, key: Hashable, now: float) -> bool:
        """Whether one more of this key may pass now."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket.full(self._burst, self._rate, now)
            if len(self._buckets) > self._capacity:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket.take(now)
