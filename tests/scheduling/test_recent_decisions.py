"""The latest decisions: equal ones are one entry, nobody drives out all others, and texts are bounded."""

import pytest
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.recent_decisions import (
    LONGEST_REASON,
    MOST_DECISIONS,
    MOST_OF_A_NAMESPACE,
    Decision,
    DecisionReport,
    Outcome,
    RecentDecisions,
)

from tests.support.clocks import SettableTime


@pytest.fixture
def time() -> SettableTime:
    return SettableTime()


@pytest.fixture
def recent(time: SettableTime) -> RecentDecisions:
    return RecentDecisions(time)


def report(recent: RecentDecisions, **notes: str) -> DecisionReport:
    return recent.report(leads=True, replica="r-0", watches={"pods": 1.5, "nodes": float("inf")}, notes=notes)


def test_equal_decisions_are_one_with_the_first_and_the_last_time(recent: RecentDecisions, time: SettableTime) -> None:
    recent.note("filter", "ml", "a", Outcome.REJECTED, nodes=3, reason="no devices")
    recent.note("filter", "ml", "b", Outcome.FITS, node="n1", nodes=2)
    time.now = 130.0
    recent.note("filter", "ml", "a", Outcome.REJECTED, nodes=3, reason="no devices")
    assert report(recent).decisions == (
        Decision(
            verb="filter",
            pod="ml/a",
            outcome=Outcome.REJECTED,
            first=Moment(100),
            last=Moment(130),
            times=2,
            nodes=3,
            reason="no devices",
        ),
        Decision(
            verb="filter", pod="ml/b", outcome=Outcome.FITS, first=Moment(100), last=Moment(100), node="n1", nodes=2
        ),
    )


def test_namespace_loses_its_own_oldest_decisions_and_no_others(recent: RecentDecisions) -> None:
    recent.note("bind", "calm", "a", Outcome.BOUND, node="n1")
    for number in range(5 * MOST_DECISIONS):
        recent.note("filter", "noisy", f"p{number}", Outcome.REJECTED)
    found = report(recent).decisions
    assert len(found) == MOST_OF_A_NAMESPACE + 1
    assert (found[0].pod, found[-1].pod) == (f"noisy/p{5 * MOST_DECISIONS - 1}", "calm/a")


def test_many_namespaces_have_a_bounded_number_of_decisions_together(recent: RecentDecisions) -> None:
    for number in range(2 * MOST_DECISIONS):
        recent.note("filter", f"ns{number}", "p", Outcome.REJECTED)
    found = report(recent).decisions
    assert len(found) == MOST_DECISIONS
    assert (found[0].pod, found[-1].pod) == (f"ns{2 * MOST_DECISIONS - 1}/p", f"ns{MOST_DECISIONS}/p")
    recent.note("filter", "ns0", "p", Outcome.REJECTED)
    assert report(recent).decisions[0].pod == "ns0/p"


def test_texts_are_cut_and_control_characters_are_escapes(recent: RecentDecisions) -> None:
    recent.note("filter", "n" * 9_999, "a\x1b[31m\ud800", Outcome.RETRY, node="n\n1", reason="x" * 9_999)
    found = report(recent, audit="two\u202eallocators" + "y" * 9_999)
    (one,) = found.decisions
    assert one.pod == "n" * 253 + "/a\\u001b[31m?"
    assert one.node == "n\\n1"
    assert len(one.reason) == LONGEST_REASON
    assert dict(found.notes)["audit"].startswith("two\\u202eallocators")
    assert len(dict(found.notes)["audit"]) < LONGEST_REASON + 10
