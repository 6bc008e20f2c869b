"""Lint and explanations beside what upstream answered for the selectors of the parity suite."""

import gzip
import json
from pathlib import Path
from typing import Any

from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.cel.explain.explain import explain
from dra_extender.cel.lint.findings import Severity
from dra_extender.cel.lint.lint import lint
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.values import unwrapped

from tests.parity.selectors import device

CORPUS = Path(__file__).parents[2] / "parity" / "scenarios" / "cel.jsonl.gz"


def entries() -> list[dict[str, Any]]:
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


ENTRIES = entries()


def outcome(entry: dict[str, Any]) -> str:
    expected = entry["expected"]["cel"]
    return next((name for name in ("compileError", "runError") if name in expected), "decided")


def expressions(wanted: str) -> list[str]:
    found = [entry["scenario"]["expression"] for entry in ENTRIES if outcome(entry) == wanted]
    assert len(found) > 10
    return found


def test_no_selector_that_upstream_decides_is_called_an_error() -> None:
    for expression in expressions("decided"):
        assert not [each for each in lint(expression) if each.severity is Severity.ERROR], expression


def test_every_selector_that_upstream_refuses_to_compile_is_an_error() -> None:
    for expression in expressions("compileError"):
        assert [each for each in lint(expression) if each.severity is Severity.ERROR], expression


def test_every_selector_that_fails_for_upstream_on_a_device_has_a_finding() -> None:
    assert not [expression for expression in expressions("runError") if not lint(expression)]


def test_every_real_selector_has_an_explanation_and_its_parts_the_value_of_the_evaluation() -> None:
    for entry in ENTRIES:
        expression, prepared = entry["scenario"]["expression"], device(entry["scenario"]["device"])
        try:
            matches: bool | None = compile_expression(expression).matches(prepared)
        except CelCompileError:
            continue
        except CelRuntimeError:
            matches = None
        evaluation = Evaluation(ExplainableExpression(expression), prepared)
        value = unwrapped(evaluation.outcome(evaluation.root).value)
        assert (value if isinstance(value, bool) else None) is matches, expression
        assert explain(expression, prepared)
