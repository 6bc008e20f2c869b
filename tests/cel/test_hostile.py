"""Expressions that want to take the scheduler's time or memory: each ends by a counted limit, never by luck."""

import tracemalloc
from collections.abc import Callable

import pytest
from dra_extender.cel.cost import ROUND_WORK, EvaluationFrame
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelCompileError, CelCostError, CelDeadlineError, CelRuntimeError
from dra_extender.cel.program import compile_expression

from tests.support.cel.hostile import ACCEPTED, MANY_CALLS, REFUSED_AT_ONCE, STOPPED, bound

HUNGRY = (
    *(
        "string doubling",
        "list doubling",
        "bytes doubling",
        "replace bomb",
        "join bomb",
        "format bomb",
        "wide characters",
    ),
    *("pieces of wide characters", "wide bombs", "long range", "ranges side by side", "map of many", "maps of maps"),
)
DEVICE = prepare_device("gpu.example.com", {}, {}, allow_multiple_allocations=False)


@pytest.mark.parametrize("expression", REFUSED_AT_ONCE.values(), ids=REFUSED_AT_ONCE.keys())
def test_what_is_too_deep_too_long_or_malformed_is_a_compile_error(expression: str) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(expression)


def test_types_that_double_with_each_variable_are_refused() -> None:
    with pytest.raises(CelCompileError, match="the types in the expression are too large"):
        compile_expression(bound(40, "{'a': 'a'}", "{{{0}: {0}}}", "{0}.size() == 1"))


@pytest.mark.parametrize("expression", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_long_but_flat_expressions_are_evaluated(expression: str) -> None:
    assert compile_expression(expression).matches(DEVICE)


@pytest.mark.parametrize("expression", [*STOPPED.values(), *MANY_CALLS.values()], ids=[*STOPPED, *MANY_CALLS])
def test_what_grows_without_bound_or_calls_without_end_is_stopped_by_the_cost_the_work_or_the_size_limit(
    expression: str,
) -> None:
    program = compile_expression(expression)
    with pytest.raises(CelCostError):
        program.matches(DEVICE)


def test_a_cost_error_is_not_absorbed_by_a_logical_operator() -> None:
    program = compile_expression("lists.range(2000).all(x, lists.range(2000).all(y, true)) || true")
    with pytest.raises(CelCostError):
        program.matches(DEVICE)


def test_an_error_of_a_bound_variable_is_computed_once_however_often_it_is_used() -> None:
    program = compile_expression(bound(40, "1 / 0 == 1", "{0} || {0}", "{0}"))
    with pytest.raises(CelRuntimeError, match="division by zero") as caught:
        program.matches(DEVICE)
    assert not isinstance(caught.value, CelCostError)


def test_an_extreme_quantity_is_refused_when_evaluated() -> None:
    with pytest.raises(CelRuntimeError, match="exponent"):
        compile_expression("quantity('1e2147483647').isInteger()").matches(DEVICE)


@pytest.mark.parametrize("expression", [*STOPPED.values(), *MANY_CALLS.values()], ids=[*STOPPED, *MANY_CALLS])
def test_the_deadline_stops_any_evaluation_within_two_hundred_further_steps(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are rounds of loops and operations that charge for themselves; one on many elements asks before it begins."""
    frames: list[EvaluationFrame] = []
    asked_at: list[int] = []
    charges: list[int] = []
    original_check = EvaluationFrame.check

    def check(frame: EvaluationFrame) -> None:
        frames.append(frame)
        original_check(frame)

    def noting(charge: Callable[..., None]) -> Callable[..., None]:
        def noted(frame: EvaluationFrame, *arguments: object) -> None:
            before, counts = frame.work, bool(asked_at)
            try:
                charge(frame, *arguments)
            finally:
                if counts:
                    charges.append(frame.work - before)

        return noted

    def deadline() -> bool:
        asked_at.append(frames[-1].work)
        return len(asked_at) > 1

    monkeypatch.setattr(EvaluationFrame, "check", check)
    monkeypatch.setattr(EvaluationFrame, "spend", noting(EvaluationFrame.spend))
    monkeypatch.setattr(EvaluationFrame, "begin_call", noting(EvaluationFrame.begin_call))
    with pytest.raises(CelCostError):
        compile_expression(expression).matches(DEVICE, deadline=deadline)
    if asked_at:
        rounds = (frames[-1].work - asked_at[0] - sum(charges)) // ROUND_WORK
        assert len(charges) + rounds <= 200


@pytest.mark.parametrize("name", HUNGRY)
def test_what_builds_much_has_never_held_more_than_64_mebibytes(name: str) -> None:
    expression = STOPPED[name]
    tracemalloc.start()
    try:
        with pytest.raises(CelCostError):
            compile_expression(expression).matches(DEVICE)
        assert tracemalloc.get_traced_memory()[1] <= 64 * 2**20
    finally:
        tracemalloc.stop()


def test_the_deadline_is_asked_every_hundred_rounds_and_stops_the_evaluation() -> None:
    asked: list[int] = []

    def deadline() -> bool:
        asked.append(1)
        return len(asked) == 3

    program = compile_expression("lists.range(100000).all(x, true)")
    with pytest.raises(CelDeadlineError):
        program.matches(DEVICE, deadline=deadline)
    assert len(asked) == 3


def test_a_deadline_that_is_never_reached_changes_nothing() -> None:
    program = compile_expression("lists.range(1000).all(x, x >= 0)")
    assert program.matches(DEVICE, deadline=lambda: False)
    assert program.evaluate(DEVICE, deadline=lambda: False) == program.evaluate(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(249000).all(x, true)",
        "lists.range(160000).all(x, x >= 0)",
        "lists.range(900000).size() == 900000",
        "lists.range(600).all(x, lists.range(100).exists(y, y == 99))",
        "lists.range(40000).map(x, [x]).size() == 40000",
        "lists.range(400).map(x, 400 - x).sort()[0] == 1",
        "lists.range(20000).map(x, string(x)).join(',').size() > 0",
    ],
)
def test_our_own_limits_let_pass_what_costs_nearly_the_limit_in_ordinary_ways(expression: str) -> None:
    assert compile_expression(expression).matches(DEVICE)
