"""Who may read metrics: callers whose token the API server knows, and who may `get` the non-resource URL /metrics.

The API server is asked about a token at most once a minute.  Tokens that nobody knows are bounded by address and in all, so that a
flood of them reaches neither the API server nor those whose token is good.
"""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from time import monotonic
from typing import Final, NamedTuple, Protocol

import structlog

from dra_extender.runtime.caches import LruCache
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.ports.cluster import ClusterError

ALLOWED_SECONDS: Final = 60.0
"""So long a caller that may read metrics is not reviewed again."""
DENIED_SECONDS: Final = 10.0
ADDRESS_RATE: Final = 1.0
"""Reviews per second of unknown tokens from one address."""
ADDRESS_BURST: Final = 5.0
TOTAL_RATE: Final = 20.0
"""Reviews per second of unknown tokens."""
TOTAL_BURST: Final = 40.0
MOST_ALLOWED: Final = 64
"""Tokens, and addresses, that were good lately; their reviews count apart."""
DENIED: Final = 1024
LONGEST_TOKEN: Final = 16 * 1024
_MOST_AT_ONCE: Final = 16
_ADDRESSES: Final = 1024
_SCHEME: Final = "bearer "

_LOG = structlog.get_logger(__name__)


class ScrapeReviewer(Protocol):
    """Asks the API server."""

    async def review(self, token: str) -> tuple[str, bool]:
        """Return whose the token is (empty: nobody's), and whether that user may read metrics.  Raises ClusterError."""
        ...


class Refusal(NamedTuple):
    """The reason why a caller gets no metrics."""

    status: int
    sentence: str
    headers: Mapping[str, str] = {}


class _ReviewResult(NamedTuple):
    """The result of a review of a token, and the time until which it counts; `refusal` is None if the user may read metrics."""

    until: float
    refusal: Refusal | None


class ScrapeAccess:
    """Decides about each scrape.  Only hashes of tokens are kept."""

    def __init__(self, reviewer: ScrapeReviewer, clock: Callable[[], float] = monotonic) -> None:
        self._reviewer = reviewer
        self._clock = clock
        self._allowed: LruCache[bytes, _ReviewResult] = LruCache(MOST_ALLOWED)
        self._denied: LruCache[bytes, _ReviewResult] = LruCache(DENIED)
        # A scraper keeps its address when its token is renewed.
        self._scrapers: LruCache[str, bool] = LruCache(MOST_ALLOWED)
        self._addresses = TokenBuckets(ADDRESS_RATE, ADDRESS_BURST, _ADDRESSES)
        self._total = TokenBucket(TOTAL_RATE, TOTAL_BURST, clock())
        self._of_known = TokenBucket(TOTAL_RATE, TOTAL_BURST, clock())
        self._reviews: dict[bytes, asyncio.Task[Refusal | None]] = {}

    async def refusal(self, authorization: str, address: str) -> Refusal | None:
        """Return why a caller may not read metrics, None if it may; `authorization` is its header of that name."""
        scheme, token = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :].strip()
        if scheme.lower() != _SCHEME or not token or len(token) > LONGEST_TOKEN:
            return _unauthorized("expected a bearer token of this cluster")
        key = sha256(token.encode()).digest()
        now = self._clock()
        review = self._allowed.use(key) or self._denied.get(key)
        if review is not None and now < review.until:
            self._note(address, review.refusal)
            return review.refusal
        running = self._reviews.get(key)
        if running is None:
            if not self._may_review(key, address, now):
                return Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS, "too many tokens are waiting for their review", {"Retry-After": "1"}
                )
            running = self._reviews[key] = asyncio.create_task(self._review(key, token))
            running.add_done_callback(lambda _: self._reviews.pop(key, None))
        refusal = await asyncio.shield(running)
        self._note(address, refusal)
        return refusal

    def _note(self, address: str, refusal: Refusal | None) -> None:
        if refusal is None:
            self._scrapers[address] = True

    def _may_review(self, key: bytes, address: str, now: float) -> bool:
        if key in self._allowed:
            return self._of_known.take(now)
        if address in self._scrapers:
            return self._addresses.take(address, now) and self._of_known.take(now)
        return len(self._reviews) < _MOST_AT_ONCE and self._addresses.take(address, now) and self._total.take(now)

    async def _review(self, key: bytes, token: str) -> Refusal | None:
        try:
            user, allowed = await self._reviewer.review(token)
        except ClusterError as problem:
            _LOG.warning("token was not reviewed", problem=str(problem))
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the API server cannot be asked about the token now",
                {"Retry-After": "5"},
            )
        now = self._clock()
        if user and allowed:
            self._allowed[key] = _ReviewResult(now + ALLOWED_SECONDS, None)
            return None
        self._allowed.pop(key, None)
        if user:
            refusal = Refusal(HTTPStatus.FORBIDDEN, "the user of this token may not get /metrics")
        else:
            refusal = _unauthorized("the API server does not know this token")
        self._denied[key] = _ReviewResult(now + DENIED_SECONDS, refusal)
        return refusal


def _unauthorized(sentence: str) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, sentence, {"WWW-Authenticate": "Bearer"})
