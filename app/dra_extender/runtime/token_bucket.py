"""Token buckets: tokens come back at a steady rate, up to a burst of them.

A token is whatever the owner counts: an Event that is written, or a second of searching.  Times are seconds of a clock that never
goes back.
"""

from collections.abc import Hashable

from dra_extender.runtime.caches import LruCache


class TokenBucket:
    """Holds at most `burst` tokens and begins full; `rate` tokens come back each second."""

    __slots__ = ("_at", "_burst", "_debt", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float, *, debt: float = 0.0) -> None:
        self._rate = rate
        self._burst = burst
        self._debt = debt
        self._level = burst
        self._at = now

    def level(self, now: float) -> float:
        """Return the tokens that are left; negative when overdrawn."""
        if now > self._at:
            self._level = min(self._level + (now - self._at) * self._rate, self._burst)
            self._at = now
        return self._level

    def take(self, now: float) -> bool:
        """Take one token, if there is a whole one."""
        if self.level(now) < 1.0:
            return False
        self._level -= 1.0
        return True

    def spend(self, tokens: float, now: float) -> None:
        """Deduct what was used, even if that overdraws the bucket."""
        self._level = max(self.level(now) - tokens, -self._debt)

    def wait(self, now: float) -> float:
        """Return the seconds until `take` finds a token."""
        return max(0.0, 1.0 - self.level(now)) / self._rate


class TokenBuckets:
    """A bucket for each key, such as a namespace or a pod.

    A key without a bucket has a full one.  At most `limit` buckets are kept: the one that is unused for longest goes first, which
    makes it full again.
    """

    def __init__(self, rate: float, burst: float, limit: int, *, debt: float = 0.0) -> None:
        self._rate = rate
        self._burst = burst
        self._debt = debt
        self._buckets: LruCache[Hashable, TokenBucket] = LruCache(limit)

    def __len__(self) -> int:
        return len(self._buckets)

    def level(self, key: Hashable, now: float) -> float:
        bucket = self._buckets.get(key)
        return self._burst if bucket is None else bucket.level(now)

    def take(self, key: Hashable, now: float) -> bool:
        return self._used(key, now).take(now)

    def spend(self, key: Hashable, tokens: float, now: float) -> None:
        self._used(key, now).spend(tokens, now)

    def _used(self, key: Hashable, now: float) -> TokenBucket:
        bucket = self._buckets.use(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now, debt=self._debt)
        return bucket
