"""Seconds are neither made nor lost, and a namespace without spending has all it may have."""

from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.token_bucket import Buckets, TokenBucket

RATE, BURST = 0.25, 2.0
moves = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.5)), max_size=50)


@given(moves)
def test_no_more_is_spent_than_was_saved_and_has_come_back_and_one_overdraft(steps: list[tuple[float, float]]) -> None:
    bucket, now, spent = TokenBucket(RATE, BURST, 0.0), 0.0, 0.0
    for pause, wanted in steps:
        now += pause
        if bucket.level(now) > 0:
            bucket.spend(wanted, now)
            spent += wanted
        assert -BURST <= bucket.level(now) <= BURST
    assert spent <= BURST + RATE * now + 0.5 + 1e-6


@given(moves)
def test_what_is_spent_comes_back_in_time(steps: list[tuple[float, float]]) -> None:
    bucket, now = TokenBucket(RATE, BURST, 0.0), 0.0
    for pause, wanted in steps:
        now += pause
        bucket.spend(wanted, now)
    assert bucket.full(now + 2 * BURST / RATE + 1.0)


def test_namespaces_do_not_pay_for_each_other_and_are_kept_in_bounds() -> None:
    buckets = Buckets(RATE, BURST, limit=10)
    for number in range(100):
        buckets.spend(f"n{number}", 1.0, 0.0)
    assert len(buckets) == 10
    assert buckets.level("n99", 0.0) == BURST - 1.0
    assert buckets.level("quiet", 0.0) == BURST
