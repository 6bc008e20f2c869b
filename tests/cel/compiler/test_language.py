import time
from pathlib import Path

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_expression

DEVICE = prepare_device(
    "gpu.example.com",
    {
        "model": Attribute(string_value="a100"),
        "index": Attribute(int_value=3),
        "healthy": Attribute(bool_value=True),
        "version": Attribute(version_value="1.2.3"),
        "links": Attribute(string_values=("a", "b")),
        "versions": Attribute(version_values=("1.2.3", "2.0.0")),
        "resource.kubernetes.io/root": Attribute(string_value="p"),
    },
    {"memory": "40Gi"},
    allow_multiple_allocations=False,
)


def cases() -> list[tuple[str, str, str]]:
    lines = (Path(__file__).parents[1] / "language_cases.tsv").read_text(encoding="utf-8").splitlines()
    return [(parts[0], parts[1], parts[2]) for parts in (line.split("\t", 2) for line in lines[1:])]


def outcome(expression: str) -> tuple[str, int | None]:
    try:
        program = compile_expression(expression)
    except CelCompileError:
        return "compile-error", None
    try:
        _, cost = program.evaluate(DEVICE)
        return ("match" if program.matches(DEVICE) else "no-match"), cost
    except CelRuntimeError:
        return "run-error", None


@pytest.mark.parametrize(("expected", "cost", "expression"), cases())
def test_an_expression_has_the_outcome_and_the_cost_that_upstream_gives_it(
    expected: str, cost: str, expression: str
) -> None:
    found, spent = outcome(expression)
    assert found == expected
    if cost != "-":
        assert spent == int(cost)


@pytest.mark.parametrize(
    "expression",
    [
        'has(has(device.attributes["gpu.example.com"].model))',
        'has(has(has(device.attributes["gpu.example.com"].model)))',
        'has((has(device.attributes["gpu.example.com"].model)))',
        'has(has(device.attributes["gpu.example.com"].model)) ? has(has({"a": 1}.a)) : false',
        '!has(has(device.attributes["gpu.example.com"].missing))',
    ],
)
def test_presence_of_a_presence_test_is_the_presence_it_tests(expression: str) -> None:
    assert compile_expression(expression).matches(DEVICE)


@pytest.mark.parametrize("expression", ["has(!has({'a': 1}.a))", "has(has({}.?a))", "has(has({}['a']))", "has(has(1))"])
def test_presence_of_anything_else_is_an_error(expression: str) -> None:
    with pytest.raises(CelCompileError, match=r"invalid argument to has\(\) macro"):
        compile_expression(expression)


DELIBERATE = {
    "has of an optional value is a bool in a branch, too": "!(true ? has({}.?b.c) : true)",
    "a dot before the name of a variable is ignored": "[1].all(x, .x == 1)",
    "lists of sums compare their amounts": "[quantity('1')] != [quantity('1').add(2)]",
    "lists of versions and of strings are not equal": "device.attributes['gpu.example.com'].versions != ['a', 'b']",
}


@pytest.mark.parametrize("expression", DELIBERATE.values(), ids=DELIBERATE.keys())
def test_upstream_accidents_that_would_misplace_or_abort_are_not_copied(expression: str) -> None:
    assert compile_expression(expression).matches(DEVICE)


def test_the_time_zone_local_is_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert compile_expression("timestamp('2026-07-01T12:00:00Z').getHours('Local') == 12").matches(DEVICE)
    finally:
        monkeypatch.undo()
        time.tzset()
