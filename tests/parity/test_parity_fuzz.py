"""Random expressions are answered as upstream answers them; `make fuzz` asks as many as one likes."""

import re
import sys
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from tests.parity.fuzz import __main__ as command
from tests.parity.fuzz.cel import campaign, partner_campaign
from tests.parity.fuzz.cel.exceptions import Difference, explained
from tests.parity.fuzz.cel.expressions import Grammar, parts
from tests.parity.fuzz.cel.grammar import rules
from tests.parity.selectors import Outcome, ours

SEEDS = (37, 1000)
HALF = 2500


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
def test_outcomes_and_costs_of_random_expressions_are_upstreams(seed: int) -> None:
    """Fails, too, where upstream's program cannot be built: an environment without Go proves nothing."""
    tally = campaign.run(seed, count=HALF)
    report = "\n".join(tally.lines())
    print(f"\n{report}")
    assert tally.asked == HALF
    assert tally.unexplained_count == 0, report
    assert tally.cost_count == 0, report


def test_cel_expr_python_differs_only_in_ways_that_are_listed() -> None:
    """Shares no code with upstream; in at least 94 of 100 expressions that it knows all about it answers as we do."""
    found = partner_campaign.run(SEEDS[0], count=HALF)
    report = "\n".join(found.lines())
    print(f"\n{report}")
    assert found.asked == HALF
    assert found.unlisted == [], report
    assert found.agreed > 0.94 * (found.asked - found.outside)


def test_a_limit_of_work_explains_that_we_refuse_and_no_other_answer() -> None:
    expression = f"'{'a b' * 100}'.findAll(r'\\pL').join() == '{'ab' * 100}'"
    scenario = {"kind": "cel", "expression": expression, "device": {"Driver": "gpu.example.com"}}
    refused, match = ours(scenario), Outcome("match", 91)
    assert refused.verdict == "run-error"
    assert explained(Difference(scenario, refused, match, {}, [])) == "limited"
    for other in (Outcome("no-match", 91), Outcome("match", 90)):
        assert explained(Difference(scenario, refused, other, {}, [])) is None
    assert explained(Difference(scenario, Outcome("no-match", 91), match, {}, [])) is None


def test_every_hole_of_the_grammar_can_be_filled() -> None:
    templates, leaves = rules()
    holes = {name for kind in templates.values() for text in kind for name in re.findall(r"\$([a-z0-9]+)", text)}
    assert holes <= set(leaves)
    assert set(templates) <= set(leaves)


def test_the_same_seed_makes_the_same_expressions() -> None:
    first, second = Grammar(Random(5)), Grammar(Random(5))
    assert [first.expression("bool", 6) for _ in range(50)] == [second.expression("bool", 6) for _ in range(50)]


def test_parts_are_words_and_balanced_brackets() -> None:
    text = "[1, (2)].all(x, x > 0)"
    found = {text[start:end] for start, end in parts(text)}
    assert {"[1, (2)]", "(2)", "x, x > 0", "all(x, x > 0)", "all"} <= found


@pytest.mark.parametrize(
    ("arguments", "each"),
    [
        (["--seconds", "90"], {"allocator": 30, "cel": 30, "partner": 30}),
        (["--seconds", "90", "--only", "cel"], {"cel": 90}),
        (["--count", "5"], {"allocator": None, "cel": None, "partner": None}),
        ([], {"allocator": 60, "cel": 60, "partner": 60}),
    ],
)
def test_parts_share_the_time(arguments: list[str], each: dict[str, float | None]) -> None:
    given: dict[str, float | None] = {}

    def part(name: str) -> Any:
        def run(_seed: int, *, seconds: float | None, count: int | None) -> Any:
            assert (seconds is None) is (count is not None)
            given[name] = seconds
            return SimpleNamespace(unexplained_count=0, lines=list)

        return run

    parts = {name: part(name) for name in command.PARTS}
    with patch.object(command, "PARTS", parts), patch.object(sys, "argv", ["fuzz", *arguments]):
        assert command.main() == 0
    assert given == each
