"""Seconds that may be spent, which come back at a steady rate."""

from collections import OrderedDict


class TokenBucket:
    """Holds at most `burst` seconds and begins full.  It may be overdrawn by as much, and no further debt is kept."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """`rate` seconds come back each second."""
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def level(self, now: float) -> float:
        """Seconds that are left; negative when overdrawn."""
        if now > self._at:
            self._level = min(self._level + (now - self._at) * self._rate, self._burst)
            self._at = now
        return self._level

    def spend(self, seconds: float, now: float) -> None:
        """Take off what was used."""
        self._level = max(self.level(now) - seconds, -self._burst)

    def full(self, now: float) -> bool:
        """Whether nothing is missing."""
        return self.level(now) >= self._burst


class Buckets:
    """A bucket for each namespace.

    A namespace without a bucket has a full one.  At most `limit` are kept: when there are too many the one that was spent from
    least recently goes, which forgives its debt.
    """

    def __init__(self, rate: float, burst: float, limit: int) -> None:
        """All with this rate and burst."""
        self._rate = rate
        self._burst = burst
        self._limit = limit
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def level(self, namespace: str, now: float) -> float:
        """Seconds that are left to this namespace."""
        bucket = self._buckets.get(namespace)
        return self._burst if bucket is None else bucket.level(now)

    def spend(self, namespace: str, seconds: float, now: float) -> None:
        """Take off what was used for this namespace."""
        bucket = self._buckets.get(namespace)
        if bucket is None:
            bucket = self._buckets[namespace] = TokenBucket(self._rate, self._burst, now)
        self._buckets.move_to_end(namespace)
        bucket.spend(seconds, now)
        if len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)
