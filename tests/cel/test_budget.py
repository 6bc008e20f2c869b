import gc
import weakref

import pytest
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelBudgetError, CelCostError, CelDeadlineError, CelRuntimeError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.cel.program import compile_expression

DEVICE = prepare_device("gpu.example.com", {}, {}, allow_multiple_allocations=False)
LOOP = compile_expression("lists.range(1000).all(x, x >= 0)")


def test_what_evaluations_cost_is_taken_off_and_an_empty_budget_begins_none() -> None:
    cost = LOOP.evaluate(DEVICE)[1]
    budget = Budget(cost * 2)
    assert LOOP.matches(DEVICE, budget=budget)
    assert budget.remaining == cost
    assert LOOP.matches(DEVICE, budget=budget)
    with pytest.raises(CelBudgetError):
        LOOP.matches(DEVICE, budget=budget)
    assert budget.remaining == 0


def test_an_evaluation_that_fails_is_paid_for() -> None:
    budget = Budget(10)
    with pytest.raises(CelRuntimeError):
        compile_expression("1 / 0 == 1").matches(DEVICE, budget=budget)
    assert budget.remaining == 8


def test_one_evaluation_is_limited_for_itself_whatever_is_left() -> None:
    budget = Budget(10**9)
    with pytest.raises(CelCostError) as caught:
        compile_expression("lists.range(2000).all(x, lists.range(2000).all(y, true))").matches(DEVICE, budget=budget)
    assert not isinstance(caught.value, CelBudgetError | CelDeadlineError)


def test_work_that_costs_little_by_upstreams_formula_uses_the_budget_up_too() -> None:
    budget = Budget()
    free = compile_expression("cel.bind(l, lists.range(400), l.exists_one(a, l.exists_one(b, false)))")
    cost = free.evaluate(DEVICE)[1]
    before = budget.remaining
    assert not free.matches(DEVICE, budget=budget)
    assert before - budget.remaining > 100 * cost


def test_an_evaluation_that_takes_too_long_is_stopped_and_ends_the_call() -> None:
    now = iter(range(100))
    budget = Budget(clock=lambda: next(now) / 25)
    with pytest.raises(CelDeadlineError):
        compile_expression("lists.range(100000).all(x, true)").matches(DEVICE, budget=budget)
    assert next(now) == 4, "asked every hundred rounds, the first time to begin with"
    assert budget(), "no other evaluation begins"
    with pytest.raises(CelBudgetError):
        LOOP.matches(DEVICE, budget=budget)


def test_each_evaluation_has_its_own_time() -> None:
    now = iter(range(1000))
    budget = Budget(clock=lambda: next(now) / 250)
    for _ in range(10):
        assert LOOP.matches(DEVICE, budget=budget)
    assert next(now) > 2 * 25


def test_a_budget_is_a_deadline_that_passes_when_it_is_spent() -> None:
    budget = Budget(LOOP.evaluate(DEVICE)[1])
    assert not budget()
    LOOP.matches(DEVICE, budget=budget)
    assert budget()


def test_an_evaluation_that_a_budget_may_end_is_freed_afterwards() -> None:
    def deadline() -> bool:
        return False

    held = weakref.ref(deadline)
    compile_expression("[1].exists(x, x == 1)").matches(DEVICE, deadline=deadline, budget=Budget(strict=True))
    del deadline
    gc.collect()
    assert held() is None


def test_an_explanation_is_freed_afterwards() -> None:
    evaluation = Evaluation(ExplainableExpression("[1].exists(x, x == 1)"), DEVICE)
    assert evaluation.outcome(evaluation.root).value is True
    held = weakref.ref(evaluation)
    del evaluation
    gc.collect()
    assert held() is None
