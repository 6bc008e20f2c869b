"""Tokens are neither made nor lost, and a key without spending has all it may have."""

import pytest
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from hypothesis import given
from hypothesis import strategies as st

RATE, BURST = 0.25, 2.0
moves = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.5)), max_size=50)
steps_of_time = st.lists(st.floats(0, 10), max_size=100)


@given(moves)
def test_no_more_is_spent_than_was_saved_and_has_come_back_and_one_overdraft(steps: list[tuple[float, float]]) -> None:
    bucket, now, spent = TokenBucket(RATE, BURST, 0.0, debt=BURST), 0.0, 0.0
    for pause, wanted in steps:
        now += pause
        if bucket.level(now) > 0:
            bucket.spend(wanted, now)
            spent += wanted
        assert -BURST <= bucket.level(now) <= BURST
    assert spent <= BURST + RATE * now + 0.5 + 1e-6


@given(moves)
def test_what_is_spent_comes_back_in_time(steps: list[tuple[float, float]]) -> None:
    bucket, now = TokenBucket(RATE, BURST, 0.0, debt=BURST), 0.0
    for pause, wanted in steps:
        now += pause
        bucket.spend(wanted, now)
    assert bucket.level(now + 2 * BURST / RATE + 1.0) == BURST


@given(steps_of_time)
def test_no_more_is_taken_than_was_saved_and_has_come_back_and_what_is_refused_costs_nothing(
    pauses: list[float],
) -> None:
    bucket, now, taken = TokenBucket(RATE, BURST, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        before = bucket.level(now)
        took = bucket.take(now)
        taken += took
        assert took is (before >= 1.0)
        assert bucket.level(now) == before - took
    assert taken <= BURST + RATE * now + 1e-6


@given(st.floats(0, 5))
def test_the_wait_ends_when_there_is_a_token_and_not_before(spent: float) -> None:
    bucket = TokenBucket(RATE, BURST, 0.0, debt=BURST)
    bucket.spend(spent, 0.0)
    wait = bucket.wait(0.0)
    if wait:
        assert not TokenBucket.take(bucket, 0.99 * wait)
    assert bucket.take(wait + 1e-6)


def test_without_a_debt_nothing_is_overdrawn() -> None:
    bucket = TokenBucket(RATE, BURST, 0.0)
    bucket.spend(100.0, 0.0)
    assert bucket.level(0.0) == 0.0
    assert bucket.wait(0.0) == pytest.approx(1.0 / RATE)


def test_keys_do_not_pay_for_each_other_and_are_kept_in_bounds() -> None:
    buckets = TokenBuckets(RATE, BURST, limit=10, debt=BURST)
    for number in range(100):
        buckets.spend(f"n{number}", 1.0, 0.0)
    assert len(buckets) == 10
    assert buckets.level("n99", 0.0) == BURST - 1.0
    assert buckets.level("quiet", 0.0) == BURST


def test_the_bucket_unused_for_longest_is_forgotten_first() -> None:
    buckets = TokenBuckets(rate=0.0, burst=1, limit=2)
    assert [buckets.take(key, 0.0) for key in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [buckets.take(key, 0.0) for key in ("a", "b")] == [False, True]


def test_looking_at_a_level_keeps_no_bucket() -> None:
    buckets = TokenBuckets(RATE, BURST, limit=10)
    assert buckets.level("asked", 0.0) == BURST
    assert len(buckets) == 0
