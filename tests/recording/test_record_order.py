"""Records whose order no service can have written are refused, with what is wrong."""

import pytest
from dra_extender.recording.record_order import DisorderError, RecordOrder
from dra_extender.recording.records import Answered, Asked, Called, Given, Record, RecordingEnded, TermBegan

CALLED = Called(at=1.0, number=0, verb="filter", body={})
ANSWERED = Answered(at=1.0, number=0, outcome="ok")
ASKED = Asked(at=1.0, number=0, port="pods", method="read", arguments=[])
GIVEN = Given(at=1.0, number=0)


def check(*records: Record) -> None:
    order = RecordOrder()
    for each in records:
        order.check(each)


def test_calls_and_requests_that_are_answered_once_or_not_at_all_are_in_order() -> None:
    check(
        CALLED,
        ASKED,
        GIVEN,
        ANSWERED,
        Called(at=2.0, step=4, number=1, verb="bind", body={}),
        TermBegan(at=2.0, step=4),
    )


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ((TermBegan(at=2.0), TermBegan(at=1.0)), r"expected a time from 2\.0 s on, found 1\.0 s"),
        ((TermBegan(at=float("nan")),), "found nan s"),
        ((TermBegan(at=1.0, step=3), TermBegan(at=1.0, step=2)), "expected step 3 or a later one, found step 2"),
        ((Called(at=1.0, number=1, verb="filter", body={}),), "expected call 0, found call 1"),
        ((CALLED, CALLED), "expected call 1, found call 0"),
        ((ANSWERED,), "call 0 is answered, which was not made or has its answer"),
        ((CALLED, ANSWERED, ANSWERED), "call 0 is answered"),
        ((GIVEN,), "request 0 is answered"),
        ((ASKED, GIVEN, GIVEN), "request 0 is answered"),
        ((RecordingEnded(at=1.0, reason="r"), TermBegan(at=1.0)), "after the end"),
    ],
)
def test_record_that_cannot_follow_is_refused(records: tuple[Record, ...], said: str) -> None:
    with pytest.raises(DisorderError, match=said):
        check(*records)
