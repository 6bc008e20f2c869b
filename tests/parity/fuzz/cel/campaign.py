"""Expressions with devices, asked of both sides."""

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.parity.fuzz.cel.devices import device
from tests.parity.fuzz.cel.exceptions import EXCEPTIONS, Difference, explained
from tests.parity.fuzz.cel.expressions import Grammar, mutated
from tests.parity.fuzz.cel.shrinking import smallest
from tests.parity.fuzz.oracle import Oracle
from tests.parity.selectors import Outcome, ours, theirs

Json = Mapping[str, Any]

_TESTS: Final = Path(__file__).resolve().parents[3]
_BATCH: Final = 500
_AGAIN: Final = 12
_OFTEN: Final = 1000
_MOST_SHOWN: Final = 25
_DERIVED: Final = ("int", "string", "v", "i", "s", "vl", "bl", "dyn", "bool", "fs", "fv")


@dataclass
class Tally:
    """What a run found; `unexplained` are minimised, each with both answers."""

    asked: int = 0
    values: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    costs: int = 0
    unexplained: list[tuple[Json, Outcome, Outcome]] = field(default_factory=list)
    cost_differences: list[tuple[Json, Outcome, Outcome]] = field(default_factory=list)
    unexplained_count: int = 0
    cost_count: int = 0

    def lines(self) -> Iterator[str]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.outcomes.most_common())
        yield f"cel: {self.asked} expressions ({kinds}); {self.unexplained_count} unexplained differences in outcome"
        yield f"cel: costs of {self.costs} values compared, {self.cost_count} unequal without explanation"
        for name, count in self.explained.most_common():
            yield f"  {count:6d} {name}: {EXCEPTIONS[name].why}"
        for title, found in (("outcome", self.unexplained), ("cost", self.cost_differences)):
            for scenario, mine, upstreams in found[:_MOST_SHOWN]:
                yield f"  {title}: upstream {upstreams}, ours {mine}: {json.dumps(scenario)}"


def corpus() -> list[str]:
    """Expressions to start from: the labelled scenarios and the table of language cases."""
    found: list[str] = []
    for name in ("cel.jsonl.gz", "vectors.jsonl.gz"):
        with gzip.open(_TESTS / "parity" / "scenarios" / name, "rt", encoding="utf-8") as lines:
            entries = [json.loads(line)["scenario"] for line in lines]
        found.extend(entry["expression"] for entry in entries if entry.get("kind") == "cel")
    table = (_TESTS / "cel" / "language_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
    found.extend(line.split("\t", 2)[2] for line in table)
    return found


def scenarios(seed: int) -> Iterator[Json]:
    """Scenarios without end, the same for the same seed."""
    random = Random(seed)
    grammar = Grammar(random)
    known = corpus()
    while True:
        choice = random.random()
        kind = "derived" if choice < 0.3 else "cel"
        if choice > 0.8:
            text = mutated(random, known)
        else:
            wanted = random.choice(_DERIVED) if kind == "derived" else "fb" if choice > 0.7 else "bool"
            text = grammar.expression(wanted, random.randint(1, 9))
        yield {"kind": kind, "expression": text, "device": device(random)}


def run(seed: int, *, seconds: float | None = None, count: int | None = None) -> Tally:
    """Compare until the time is up or so many expressions were asked.

    Raises:
        BuildError: Upstream's program cannot be built.
        OracleError: It ended or hangs.
    """
    until = None if seconds is None else time.monotonic() + seconds
    tally = Tally()
    source = scenarios(seed)
    with Oracle() as oracle, ThreadPoolExecutor(1) as asking:
        pending = [next(source) for _ in range(_BATCH)]
        answers = asking.submit(oracle.ask, pending)
        while (count is None or tally.asked < count) and (until is None or time.monotonic() < until):
            mine = [ours(scenario) for scenario in pending]
            given = answers.result()
            batch = pending
            pending = [next(source) for _ in range(_BATCH)]
            for scenario, outcome, answer in zip(batch, mine, given, strict=True):
                _compare(oracle, tally, scenario, outcome, answer["cel"])
            answers = asking.submit(oracle.ask, pending)
        answers.result()
    return tally


def _compare(oracle: Oracle, tally: Tally, scenario: Json, mine: Outcome, answer: Json) -> None:
    upstreams = theirs(answer)
    tally.asked += 1
    tally.outcomes[upstreams.verdict if "{" not in upstreams.verdict else "values"] += 1
    tally.costs += mine.cost is not None and upstreams.cost is not None
    if mine == upstreams:
        return
    name = explanation(oracle, scenario, mine, answer)
    if name is not None:
        tally.explained[name] += 1
        return
    outcome = mine.verdict != upstreams.verdict
    tally.unexplained_count += outcome
    tally.cost_count += not outcome
    shown = tally.unexplained if outcome else tally.cost_differences
    if len(shown) < _MOST_SHOWN:
        shown.append(_smallest(oracle, scenario, outcome=outcome))


def explanation(oracle: Oracle, scenario: Json, mine: Outcome, answer: Json) -> str | None:
    """Ask again, and very often where upstream answers this and that: several maps have many orders together."""
    upstreams = theirs(answer)
    answers = [theirs(again["cel"]) for again in oracle.ask([scenario] * _AGAIN)]
    if len({upstreams, *answers}) > 1 and mine not in answers:
        answers += [theirs(again["cel"]) for again in oracle.ask([scenario] * _OFTEN)]
    return explained(Difference(scenario, mine, upstreams, answer, answers))


def _smallest(oracle: Oracle, scenario: Json, *, outcome: bool) -> tuple[Json, Outcome, Outcome]:
    def differs(candidates: list[Json]) -> list[bool]:
        answers = [again["cel"] for again in oracle.ask(candidates)]
        return [_differs(item, answer, outcome=outcome) for item, answer in zip(candidates, answers, strict=True)]

    found = smallest(scenario, differs)
    mine, answer = ours(found), oracle.ask([found])[0]["cel"]
    if explanation(oracle, found, mine, answer) is not None:
        # On the way something came in that upstream does not decide.
        found, mine, answer = scenario, ours(scenario), oracle.ask([scenario])[0]["cel"]
    return found, mine, theirs(answer)


def _differs(scenario: Json, answer: Json, *, outcome: bool) -> bool:
    mine, upstreams = ours(scenario), theirs(answer)
    if outcome:
        found = Difference(scenario, mine, upstreams, answer, [])
        return mine.verdict != upstreams.verdict and explained(found) is None
    return mine.verdict == upstreams.verdict and mine.cost != upstreams.cost
