"""Expressions with devices, asked of us and of cel-expr-python; where the two disagree, upstream has the last word."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dra_extender.cel.errors import CelError
from dra_extender.cel.program import compile_expression

from tests.controlplane.build import BuildError
from tests.parity.fuzz.cel.campaign import explanation, scenarios
from tests.parity.fuzz.cel.partner import ERROR, OUTSIDE, Partner, plain
from tests.parity.fuzz.cel.partner_classes import WAYS, Disagreement, ways_of
from tests.parity.fuzz.oracle import Oracle
from tests.parity.selectors import Json, device, ours, theirs

_MOST_SHOWN: Final = 25
_FAILURES: Final = frozenset({"compile-error", "run-error"})


@dataclass
class Agreement:
    """What a run found; `unlisted` are the disagreements that no listed way explains, with what upstream says."""

    asked: int = 0
    outside: int = 0
    agreed: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    unlisted: list[tuple[Json, Disagreement, str]] = field(default_factory=list)
    unexplained_count: int = 0

    def lines(self) -> Iterator[str]:
        compared = self.asked - self.outside
        share = 100 * self.agreed / max(compared, 1)
        yield (
            f"cel-expr-python: {compared} of {self.asked} expressions are within what it knows; {self.agreed} answers "
            f"agree ({share:.1f} %), {len(self.unlisted)} differ in a way that is not listed, {self.unexplained_count} against us"
        )
        for name, count in self.ways.most_common():
            yield f"  {count:6d} {name}: {WAYS[name].what}"
        for scenario, case, upstream in self.unlisted[:_MOST_SHOWN]:
            yield f"  unlisted: ours {case.ours} {case.our_words!r}, cel-expr-python {case.theirs} {case.their_words!r}, "
            yield f"    upstream {upstream}: {json.dumps(scenario)}"


def run(seed: int, *, seconds: float | None = None, count: int | None = None) -> Agreement:
    """Compare until the time is up or so many expressions were asked.

    A disagreement that is not listed counts as unexplained unless upstream, where it can be asked, sides with us or differs
    from us for a reason that is known.
    """
    until = None if seconds is None else time.monotonic() + seconds
    partner = Partner()
    found = Agreement()
    for scenario in scenarios(seed):
        if (count is not None and found.asked >= count) or (until is not None and time.monotonic() >= until):
            break
        if scenario["kind"] == "cel":
            _compare(partner, found, plain(scenario))
    return found


def _compare(partner: Partner, found: Agreement, scenario: Json) -> None:
    found.asked += 1
    answer, words = partner.ask(scenario)
    if answer == OUTSIDE:
        found.outside += 1
        return
    mine = _coarse(ours(scenario).verdict)
    if answer == mine:
        found.agreed += 1
        return
    case = Disagreement(scenario["expression"], mine, _our_words(scenario), answer, words)
    ways = ways_of(case)
    if ways:
        found.ways[ways[0]] += 1
        return
    upstream, with_us = _upstream(scenario)
    found.unlisted.append((scenario, case, upstream))
    found.unexplained_count += not with_us


def _coarse(verdict: str) -> str:
    """When something fails does not matter."""
    return ERROR if verdict in _FAILURES else verdict


def _our_words(scenario: Json) -> str:
    try:
        compile_expression(scenario["expression"]).matches(device(scenario["device"]))
    except CelError as error:
        return str(error)
    return ""


def _upstream(scenario: Json) -> tuple[str, bool]:
    """What upstream answers, and whether we answer so, too, or differ from it for a reason that is known."""
    mine = ours(scenario)
    try:
        with Oracle() as oracle:
            answer = oracle.ask([scenario])[0]["cel"]
            said = _coarse(theirs(answer).verdict)
            return said, said == _coarse(mine.verdict) or explanation(oracle, scenario, mine, answer) is not None
    except BuildError:
        return "cannot be asked", False
