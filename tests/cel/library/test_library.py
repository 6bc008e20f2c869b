"""Each function of the libraries does what its documentation says, and fails where it says so."""

import re
from pathlib import Path

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.environment import FUNCTIONS
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression

DEVICE = prepare_device(
    "gpu.example.com",
    {
        "model": Attribute(string_value="a100"),
        "version": Attribute(version_value="1.2.3"),
        "links": Attribute(string_values=("a", "b")),
    },
    {"memory": "40Gi"},
    allow_multiple_allocations=False,
)
LINES = (Path(__file__).parents[1] / "library_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
CASES = [tuple(line.split("\t", 3)) for line in LINES]
MACROS = {
    *("all", "exists", "exists_one", "existsOne", "map", "filter", "has", "cel.bind", "optMap", "optFlatMap", "sortBy"),
    *("transformList", "transformMap", "transformMapEntry"),
}
ABSENT = {"math"}
"""Named in the table because they are not there."""


@pytest.mark.parametrize(("function", "outcome", "cost", "expression"), CASES)
def test_a_function_does_what_is_documented(function: str, outcome: str, cost: str, expression: str) -> None:
    assert function.rsplit(".", maxsplit=1)[-1] in expression or "google" in expression
    try:
        program = compile_expression(expression)
    except CelCompileError:
        assert outcome == "compile-error"
        return
    try:
        value, spent = program.evaluate(DEVICE)
    except CelRuntimeError:
        assert outcome == "run-error"
        return
    assert ("match" if value else "no-match", str(spent)) == (outcome, cost)


def test_every_declared_function_and_macro_has_cases() -> None:
    declared = {name for name in FUNCTIONS if re.fullmatch(r"[A-Za-z][\w.]*", name)}
    assert {function for function, *_ in CASES} - ABSENT == declared | MACROS
