import pytest

from app.cel import (
    Budget,
    CelBudgetError,
    CelCostError,
    CelDeadlineError,
    CelRuntimeError,
    compile_expression,
    prepare_device,
)

DEVICE = prepare_device("gpu.example.com", {}, {}, allow_multiple_allocations=False)
LOOP = compile_expression("lists.range(1000).all(x, x >= 0)")


def test_what_evaluations_cost_is_taken_off_and_an_empty_budget_begins_none() -> None:
    cost = LOOP.evaluate(DEVICE)[1]
    budget = Budget(cost * 2)
    assert LOOP.matches(DEVICE, budget=budget)
    assert budget.left == cost
    assert LOOP.matches(DEVICE, budget=budget)
    with pytest.raises(CelBudgetError):
        LOOP.matches(DEVICE, budget=budget)
    assert budget.left == 0


def test_an_evaluation_that_fails_is_paid_for() -> None:
    budget = Budget(10)
    with pytest.raises(CelRuntimeError):
        compile_expression("1 / 0 == 1").matches(DEVICE, budget=budget)
    assert budget.left == 8


def test_one_evaluation_is_limited_for_itself_whatever_is_left() -> None:
    budget = Budget(10**9)
    with pytest.raises(CelCostError) as caught:
        compile_expression("lists.range(2000).all(x, lists.range(2000).all(y, true))").matches(DEVICE, budget=budget)
    assert not isinstance(caught.value, CelBudgetError | CelDeadlineError)


def test_the_deadline_of_the_call_stops_evaluations_that_have_none_of_their_own() -> None:
    with pytest.raises(CelDeadlineError):
        LOOP.matches(DEVICE, budget=Budget(deadline=lambda: True))
    assert LOOP.matches(DEVICE, deadline=lambda: False, budget=Budget(deadline=lambda: True))
