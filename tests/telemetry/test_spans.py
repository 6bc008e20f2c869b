"""The IDs of traces, and the count of attempts behind them."""

import hashlib

import pytest
from dra_extender.telemetry import spans
from dra_extender.telemetry.spans import NO_SPANS, Attempts, trace_id
from hypothesis import given
from hypothesis import strategies as st


def test_the_trace_of_an_attempt_can_be_computed_by_hand() -> None:
    digest = hashlib.sha256(b"3f1c5a7e-0000-4000-8000-000000000001/2").hexdigest()
    assert f"{trace_id('3f1c5a7e-0000-4000-8000-000000000001', 2):032x}" == digest[:32]


@given(st.text(), st.integers(1, 1000))
def test_every_text_has_a_trace(uid: str, attempt: int) -> None:
    """The UID is what a caller sent."""
    assert 0 < trace_id(uid, attempt) < 2**128


def test_a_filter_call_begins_an_attempt_and_the_others_belong_to_it() -> None:
    attempts = Attempts()
    verbs = ["filter", "prioritize", "bind", "filter", "filter", "bind"]
    assert [attempts.number(verb, "u") for verb in verbs] == [1, 1, 1, 2, 3, 3]
    assert attempts.number("bind", "other") == 1


def test_attempts_of_few_pods_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_PODS", 3)
    attempts = Attempts()
    for uid in "abcd":
        attempts.number("filter", uid)
    assert [attempts.number("filter", uid) for uid in "da"] == [2, 1]


def test_spans_that_nobody_collects_are_one_object() -> None:
    assert NO_SPANS.step("a", node="n") is NO_SPANS.call("filter", "u")
