"""Why an expression is true or false for a device, or why it fails there."""

from collections.abc import Sequence
from typing import Final

from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression, rounds_of
from dra_extender.cel.explain.messages import condition_message, failure_message
from dra_extender.cel.explain.values import shown
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands
from dra_extender.cel.values.values import Optional, type_name, unwrapped

_MOST_PARTS: Final = 60
_MOST_CHILDREN: Final = 8
_MOST_REASONS: Final = 3


def explain(
    expression: ExplainableExpression | str,
    device: DeviceActivation,
    *,
    deadline: Deadline | None = None,
    budget: Budget | None = None,
) -> str:
    """Say which parts decided the result of an expression for a device: `device.driver is "a", wanted "b"`, at most three reasons.

    The explanation is deterministic and looks at about 60 parts at most. Of a false conjunction it names the false operands with
    the values on both sides; of a failure the part that failed, and what the device has instead. Parts are evaluated again, within
    the limits of one evaluation; a part beyond the limits, the deadline or the budget is said to be not decided. The text of an
    expression is compiled first; an expression that is not valid is a CelCompileError.
    """
    if isinstance(expression, str):
        expression = ExplainableExpression(expression, budget=budget)
    evaluation = Evaluation(expression, device, deadline, budget)
    if device.defect is not None:
        return f"the device cannot be read: {device.defect}"
    all_reasons = dict.fromkeys(_Explainer(evaluation).reasons(evaluation.root, expected=True))
    # A guard that is met says no more than the condition behind it.
    reasons = [reason for reason in all_reasons if not any(other.startswith(f"{reason}, ") for other in all_reasons)]
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    return "; ".join(reasons[:_MOST_REASONS]) + more


def explain_failure(evaluation: Evaluation, node: TypedNode) -> str:
    """Return the message about the innermost part that failed; `node` must have failed."""
    bound: dict[int, TypedNode] = {}
    bindings: list[str] = []
    while True:
        inner, variables = _failing_part(evaluation, node, bound)
        if inner is None:
            break
        node = inner
        bindings += [variables] if variables else []
    message = failure_message(evaluation, node, evaluation.outcome(node).error or "it failed")
    where = f" (where {', '.join(bindings)})" if bindings else ""
    return message + where


def _failing_part(evaluation: Evaluation, node: TypedNode, bound: dict[int, TypedNode]) -> tuple[TypedNode | None, str]:
    """Return the part of a failed node that failed, if any, and the values of the loop variables in it; set variables."""
    tried: Sequence[TypedNode] = operands(node)
    if isinstance(node, typed_ast.Variable):
        return bound.pop(node.slot, None), ""
    if isinstance(node, typed_ast.Conditional):
        outcome = evaluation.outcome(node.condition)
        if outcome.error is not None:
            return node.condition, ""
        tried = (node.then_branch if outcome.value is True else node.else_branch,)
    for part in tried:
        if evaluation.outcome(part).error is not None:
            return part, ""
    match node:
        case typed_ast.ComprehensionLoop():
            parts = (node.body,) if node.condition is None else (node.condition, node.body)
            return _failing_round(evaluation, node, node.slots, parts)
        case typed_ast.Sort():
            return _failing_round(evaluation, node, (node.slot,), (node.body,))
        case typed_ast.CelBind():
            bound[node.slot] = node.source
            evaluation.defer(node.slot, node.source)
        case typed_ast.OptionalMap():
            value = evaluation.outcome(node.source).value
            if isinstance(value, Optional):
                evaluation.set_variables((node.slot,), (value.value,))
        case _:
            return None, ""
    return (None if evaluation.outcome(node.body).error is None else node.body), ""


def _failing_round(
    evaluation: Evaluation, loop: typed_ast.ComprehensionNode, slots: tuple[int, ...], parts: tuple[TypedNode, ...]
) -> tuple[TypedNode | None, str]:
    assert isinstance(loop.written, ast.Comprehension)  # noqa: S101 - for the type checker: loops come from comprehensions
    names = loop.written.names
    for values in rounds_of(evaluation.outcome(loop.source).value, len(slots)):
        evaluation.set_variables(slots, values)
        for part in parts:
            if evaluation.outcome(part).error is not None:
                return part, ", ".join(f"{name} is {shown(value)}" for name, value in zip(names, values, strict=True))
    return None, ""


class _Explainer:
    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._left = _MOST_PARTS

    def reasons(self, node: TypedNode, *, expected: bool) -> tuple[str, ...]:
        """Return the reasons why a condition has its value, which should have been `expected`: one for each part that decided."""
        evaluation = self._evaluation
        self._left -= 1
        outcome = evaluation.outcome(node)
        if outcome.stopped:
            self._left -= 1
            return (f"{evaluation.text(node)} was not decided: {outcome.error}",)
        if outcome.error is not None:
            self._left -= 1
            return (explain_failure(evaluation, node),)
        value = unwrapped(outcome.value)
        if value is not True and value is not False:
            return (f"{evaluation.text(node)} is {shown(value)}, a {type_name(value)}, where true or false was wanted",)
        reasons = self._reasons_of_parts(node, value=value, expected=expected) if self._left > 0 else None
        return reasons or (condition_message(evaluation, node, value=value, expected=expected),)

    def _reasons_of_parts(self, node: TypedNode, *, value: bool, expected: bool) -> tuple[str, ...] | None:
        """Return the reasons of the parts that decide a condition; None if it has no such parts."""
        match node:
            case typed_ast.Logical():
                # The false operands of a false `&&`, all operands of a true one; the reverse for `||`.
                terms = list(node.terms)
                if value is node.absorbing:
                    terms = [term for term in terms if self._evaluation.outcome(term).value is value]
                reasons: list[str] = []
                for term in terms[:_MOST_CHILDREN]:
                    if self._left <= 0:
                        break
                    reasons += self.reasons(term, expected=expected)
                # A limit may stop every operand, after the whole was evaluated within it.
                return tuple(reasons) or (f"{self._evaluation.text(node)} is {'true' if value else 'false'}",)
            case typed_ast.Conditional():
                holds = self._evaluation.outcome(node.condition).value is True
                branch = node.then_branch if holds else node.else_branch
                if not self._evaluation.is_open(branch):
                    return self.reasons(node.condition, expected=holds is (value is expected))
                return self.reasons(node.condition, expected=holds) + self.reasons(branch, expected=expected)
            case typed_ast.ComprehensionLoop(kind="all" | "exists" | "exists_one"):
                return (self._quantified(node, value=value, expected=expected),)
            case typed_ast.CelBind():
                self._evaluation.defer(node.slot, node.source)
                return self.reasons(node.body, expected=expected)
            case typed_ast.Invoke() if node.function.name == "!_":
                return self.reasons(node.arguments[0], expected=not expected)
        return None

    def _quantified(self, node: typed_ast.ComprehensionLoop, *, value: bool, expected: bool) -> str:
        """Return how many elements satisfy the body, and the reasons for the first element that decides."""
        evaluation = self._evaluation
        values = evaluation.outcome(node.source).value
        rounds = list(rounds_of(values, len(node.slots)))
        if not rounds:
            return f"{evaluation.text(node.source)} is empty"
        results = []
        for variables in rounds:
            evaluation.set_variables(node.slots, variables)
            results.append(evaluation.outcome(node.body).value)
        count = sum(result is True for result in results)
        decisive = count == len(results) if node.kind == "all" else count > 0
        elements = f"the {len(values)} elements of {evaluation.text(node.source)}"
        verb = "satisfies" if count == 1 else "satisfy"
        message = f"{count or 'none'} of {elements} {verb} {evaluation.text(node.body)}"
        if node.kind == "exists_one" and not value:
            message += ", wanted exactly one"
        # A result of another type, such as 1, is no decision although it equals True.
        example = next(
            (variables for variables, result in zip(rounds, results, strict=True) if result is decisive), None
        )
        if example is None or self._left <= 0:
            return message
        self._left -= 1
        evaluation.set_variables(node.slots, example)
        evaluation.outcome(node.body)
        return f"{message} ({', '.join(self.reasons(node.body, expected=expected))})"
