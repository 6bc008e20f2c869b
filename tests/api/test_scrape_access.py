"""Who may read metrics, and what a flood of bad tokens reaches: neither the API server, nor those whose token is good."""

import asyncio

import pytest
from dra_extender.api.scrape_access import (
    ADDRESS_BURST,
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    LONGEST_TOKEN,
    TOTAL_BURST,
    ScrapeAccess,
)
from dra_extender.scheduling.ports.cluster import ServerUnavailableError

GOOD, POOR = "Bearer good", "Bearer poor"


class Reviewer:
    """Answers as the API server does, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.away = False
        self.allowed = True
        self.gate: asyncio.Event | None = None

    async def review(self, token: str) -> tuple[str, bool]:
        self.asked.append(token)
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise ServerUnavailableError("the API server does not answer")
        users = {"good": ("prometheus", self.allowed), "renewed": ("prometheus", True), "poor": ("somebody", False)}
        return users.get(token, ("", False))


class ReviewedAccess:
    def __init__(self) -> None:
        self.reviewer = Reviewer()
        self.now = 1000.0
        self.access = ScrapeAccess(self.reviewer, lambda: self.now)

    async def status(self, header: str, address: str = "10.0.0.1") -> int:
        refusal = await self.access.refusal(header, address)
        return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        ("Bearer", 401),
        ("Bearer  ", 401),
        ("Basic good", 401),
        (f"Bearer {'x' * (LONGEST_TOKEN + 1)}", 401),
        ("Bearer unknown", 401),
        (POOR, 403),
        (GOOD, 200),
        ("bearer good", 200),
    ],
)
async def test_only_a_token_whose_user_may_get_metrics_is_good(header: str, status: int) -> None:
    assert await ReviewedAccess().status(header) == status


async def test_what_cannot_be_a_token_is_not_reviewed() -> None:
    reviewed = ReviewedAccess()
    for header in ("", "Basic good", f"Bearer {'x' * (LONGEST_TOKEN + 1)}"):
        await reviewed.status(header)
    assert reviewed.reviewer.asked == []


async def test_an_answer_counts_for_a_while_and_then_the_api_server_is_asked_again() -> None:
    reviewed = ReviewedAccess()
    for _ in range(3):
        assert await reviewed.status(GOOD) == 200
    assert reviewed.reviewer.asked == ["good"]
    reviewed.now += ALLOWED_SECONDS
    reviewed.reviewer.allowed = False
    assert await reviewed.status(GOOD) == 403
    reviewed.now += DENIED_SECONDS - 1
    assert await reviewed.status(GOOD) == 403
    assert len(reviewed.reviewer.asked) == 2
    reviewed.now += 1
    reviewed.reviewer.allowed = True
    assert await reviewed.status(GOOD) == 200


async def test_a_flood_of_bad_tokens_from_one_address_is_reviewed_a_few_times() -> None:
    reviewed = ReviewedAccess()
    statuses = [await reviewed.status(f"Bearer {number}") for number in range(1000)]
    assert statuses.count(401) == len(reviewed.reviewer.asked) == ADDRESS_BURST
    assert statuses.count(429) == 1000 - ADDRESS_BURST
    assert await reviewed.status(GOOD, "10.0.0.2") == 200


async def test_a_flood_from_everywhere_keeps_no_good_token_out() -> None:
    reviewed = ReviewedAccess()
    assert await reviewed.status(GOOD) == 200
    for second in range(120):
        reviewed.now += 1.0
        for number in range(60):
            await reviewed.status(f"Bearer {second}-{number}", f"10.1.{second}.{number}")
        assert await reviewed.status(GOOD) == 200
    assert len(reviewed.reviewer.asked) <= TOTAL_BURST + 20 * 121 + 4


async def test_a_scraper_whose_token_is_renewed_is_known_by_its_address() -> None:
    """The flood is from so many addresses that nobody unknown is reviewed."""
    reviewed = ReviewedAccess()
    assert await reviewed.status(GOOD, "10.0.0.1") == 200
    for number in range(int(TOTAL_BURST) + 1):
        last = await reviewed.status(f"Bearer {number}", f"10.1.0.{number}")
    assert last == 429
    assert await reviewed.status("Bearer renewed", "10.0.0.2") == 429
    assert await reviewed.status("Bearer renewed", "10.0.0.1") == 200


async def test_an_address_of_a_scraper_has_no_more_reviews_than_any_other() -> None:
    reviewed = ReviewedAccess()
    assert await reviewed.status(GOOD) == 200
    statuses = [await reviewed.status(f"Bearer {number}") for number in range(100)]
    assert statuses.count(401) <= ADDRESS_BURST


async def test_calls_with_one_token_wait_for_one_review() -> None:
    reviewed = ReviewedAccess()
    reviewed.reviewer.gate = asyncio.Event()
    waiting = [asyncio.create_task(reviewed.status(GOOD)) for _ in range(50)]
    await asyncio.sleep(0)
    reviewed.reviewer.gate.set()
    assert await asyncio.gather(*waiting) == [200] * 50
    assert reviewed.reviewer.asked == ["good"]


async def test_reviews_that_hang_leave_room_for_no_more_than_a_few() -> None:
    reviewed = ReviewedAccess()
    reviewed.reviewer.gate = asyncio.Event()
    waiting = [asyncio.create_task(reviewed.status(f"Bearer {n}", f"10.0.1.{n}")) for n in range(200)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(reviewed.reviewer.asked) == 16
    reviewed.reviewer.gate.set()
    assert set(await asyncio.gather(*waiting)) == {401, 429}


async def test_while_the_api_server_is_away_a_good_token_is_refused_once_its_answer_is_over() -> None:
    reviewed = ReviewedAccess()
    assert await reviewed.status(GOOD) == 200
    reviewed.reviewer.away = True
    assert await reviewed.status(GOOD) == 200
    reviewed.now += ALLOWED_SECONDS
    assert await reviewed.status(GOOD) == 503
    reviewed.reviewer.away = False
    assert await reviewed.status(GOOD) == 200
