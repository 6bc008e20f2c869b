"""Which answers are compared: all but those to calls that failed, and those that differ because a search was ended by its time."""

import pytest
from dra_extender.recording.records import Answered
from dra_extender.recording.replay_report import AnswerComparison, AnsweredCall, exception_for
from dra_extender.scheduling.ports.errors import SHARE_USED_UP

CALL = AnsweredCall(1.0, 7, "filter")


def answered(outcome: str, answer: str) -> Answered:
    return Answered(at=2.0, number=7, outcome=outcome, answer=answer)


@pytest.mark.parametrize(
    ("recorded", "replayed", "why"),
    [
        (("ok", "[]"), ("ok", "[]"), ""),
        (("ok", "[]"), ("ok", "[1]"), ""),
        (("again", "wait"), ("ok", "wait"), ""),
        (("ok", "[]"), ("none", "no answer"), ""),
        (("malformed", ""), ("malformed", "filter: no pod"), "malformed"),
        (("internal", ""), ("ok", "[]"), "internal"),
        (("again", SHARE_USED_UP), ("again", SHARE_USED_UP), ""),
        (("again", SHARE_USED_UP), ("ok", "[]"), "ended by time"),
        (("ok", "[]"), ("ok", "SEARCH_LIMIT"), ""),
    ],
)
def test_answer_is_excepted_by_a_named_rule_alone(
    recorded: tuple[str, str], replayed: tuple[str, str], why: str
) -> None:
    assert exception_for(answered(*recorded), replayed) == why


def test_equal_answers_that_time_has_ended_count_as_equal_and_are_named() -> None:
    found = AnswerComparison()
    found.compare(CALL, answered("again", SHARE_USED_UP), ("again", SHARE_USED_UP))
    found.compare(CALL, answered("ok", "[]"), ("ok", "[]"))
    found.compare(CALL, answered("ok", "[]"), ("again", SHARE_USED_UP))
    found.compare(CALL, answered("ok", "[]"), ("ok", "[1]"))
    assert (found.equal, found.time_stops, found.excepted) == ({"filter": 2}, 1, {"ended by time": 1})
    assert found.different == [(1.0, 7, "filter", "ok: []", "ok: [1]")]
