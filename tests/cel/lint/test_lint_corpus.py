"""Lint and explanations beside what upstream answered for the selectors of the parity suite."""

import gzip
import json
from pathlib import Path
from typing import Any

from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.explain.explain import EvalVerdict, explain
from dra_extender.cel.lint.findings import Severity
from dra_extender.cel.lint.lint import lint
from dra_extender.cel.program import compile_expression

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


def test_explanations_of_real_selectors_have_the_verdict_of_the_evaluation_and_a_reason() -> None:
    for entry in ENTRIES:
        expression, prepared = entry["scenario"]["expression"], device(entry["scenario"]["device"])
        try:
            expected = EvalVerdict.TRUE if compile_expression(expression).matches(prepared) else EvalVerdict.FALSE
        except CelCompileError:
            continue
        except CelRuntimeError:
            expected = EvalVerdict.ERROR
        verdict, reasons = explain(expression, prepared)
        found = EvalVerdict.ERROR if verdict in {EvalVerdict.VALUE, EvalVerdict.STOPPED} else verdict
        assert found is expected, expression
        assert any(reasons)
