"""Why an expression is true or false for a device, or why it fails there."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.errors import place_of
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression, rounds_of
from dra_extender.cel.explain.messages import condition_message, failure_message
from dra_extender.cel.explain.values import EvalVerdict, Part, shown
from dra_extender.cel.program import Program
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands
from dra_extender.cel.values.values import Optional, type_name, unwrapped

_MOST_PARTS: Final = 60
_MOST_CHILDREN: Final = 8
_MOST_EXAMPLES: Final = 3
_MOST_REASONS: Final = 3
_TRUTH: Final = {True: EvalVerdict.TRUE, False: EvalVerdict.FALSE}


def explain(
    program: Program | ExplainableExpression | str,
    device: DeviceActivation,
    *,
    deadline: Deadline | None = None,
    emulate: Release = LATEST,
    budget: Budget | None = None,
) -> Part:
    """Say which parts decided the result of an expression for a device.

    The explanation is deterministic and has about 60 parts at most. Of a false conjunction it names the false operands with the
    values on both sides; of a failure the part that failed, and what the device has instead. Parts are evaluated again, within the
    limits of one evaluation; those beyond the limits, the deadline or the budget are STOPPED. The text of an expression is compiled
    first, with the libraries of one release; one that is not valid is a CelCompileError.
    """
    if isinstance(program, Program):
        program = ExplainableExpression(program.expression, program.emulate, budget)
    evaluation = Evaluation(program, device, deadline, emulate, budget)
    if device.defect is not None:
        message = f"the device cannot be read: {device.defect}"
        return Part(evaluation.text(evaluation.root), *place_of(evaluation.source, 0), EvalVerdict.ERROR, message)
    return _Explainer(evaluation).part(evaluation.root, wanted=True)


def one_line(part: Part) -> str:
    """Return the reasons alone, at most three: `device.attributes["gpu.example.com"].model is "A100", wanted "H100"`."""
    reasons = list(dict.fromkeys(_reasons(part)))
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    return "; ".join(reasons[:_MOST_REASONS]) + more


def _reasons(part: Part) -> Iterator[str]:
    """Yield the messages of the leaves; the message of a part that counts elements is followed by those of its first example."""
    if not part.parts:
        yield part.message or f"{part.expression} is {part.verdict}"
    elif part.message and not part.message.startswith("where "):
        yield f"{part.message} ({', '.join(_reasons(part.parts[0]))})"
    else:
        for inner in part.parts:
            yield from _reasons(inner)


def explain_failure(evaluation: Evaluation, node: TypedNode) -> Part:
    """Return the innermost part that failed, with a message; `node` must have failed."""
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
    place = place_of(evaluation.source, node.offset)
    return Part(evaluation.text(node), *place, EvalVerdict.ERROR, message + where)


def _failing_part(evaluation: Evaluation, node: TypedNode, bound: dict[int, TypedNode]) -> tuple[TypedNode | None, str]:
    """Return the part of a failed node that failed, if any, and the values of the loop variables in it; set variables."""
    tried: Sequence[TypedNode] = operands(node)
    if isinstance(node, typed_ast.Variable):
        return bound.pop(node.slot, None), ""
    if isinstance(node, typed_ast.Conditional):
        outcome = evaluation.outcome(node.condition)
        if outcome.error is not None:
            return node.condition, ""
        tried = (node.chosen if outcome.value is True else node.other,)
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
    for values in rounds_of(evaluation.outcome(loop.source).value, len(slots)):
        evaluation.set_variables(slots, values)
        for part in parts:
            if evaluation.outcome(part).error is not None:
                return part, ", ".join(_bindings(loop, values))
    return None, ""


def _bindings(loop: typed_ast.ComprehensionNode, values: tuple[Any, ...]) -> Iterator[str]:
    assert isinstance(loop.written, ast.Comprehension)  # noqa: S101 - for the type checker: loops come from comprehensions
    return (f"{name} is {shown(value)}" for name, value in zip(loop.written.names, values, strict=True))


class _Explainer:
    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._left = _MOST_PARTS

    def part(self, node: TypedNode, *, wanted: bool) -> Part:
        """Explain the value of a condition that should have been `wanted`."""
        self._left -= 1
        outcome = self._evaluation.outcome(node)
        if outcome.stopped:
            self._left -= 1
            text = f"{self._evaluation.text(node)} was not decided: {outcome.error}"
            return self._part(node, EvalVerdict.STOPPED, text)
        if outcome.error is not None:
            self._left -= 1
            failure = explain_failure(self._evaluation, node)
            same = failure.expression == self._evaluation.text(node)
            return failure if same else self._part(node, EvalVerdict.ERROR, parts=(failure,))
        value = unwrapped(outcome.value)
        if value is not True and value is not False:
            text = f"{self._evaluation.text(node)} is {shown(value)}, a {type_name(value)}"
            return self._part(node, EvalVerdict.VALUE, f"{text}, where true or false was wanted")
        if self._left > 0:
            match node:
                case typed_ast.Logical():
                    return self._logical(node, value=value, wanted=wanted)
                case typed_ast.Conditional():
                    held = self._evaluation.outcome(node.condition).value is True
                    branch = node.chosen if held else node.other
                    parts = (self.part(node.condition, wanted=held), self.part(branch, wanted=wanted))
                    return self._part(node, _TRUTH[value], parts=parts)
                case typed_ast.ComprehensionLoop(kind="all" | "exists" | "exists_one"):
                    return self._quantified(node, value=value, wanted=wanted)
                case typed_ast.CelBind():
                    self._evaluation.defer(node.slot, node.source)
                    return self._part(node, _TRUTH[value], parts=(self.part(node.body, wanted=wanted),))
                case typed_ast.Invoke() if node.function.name == "!_":
                    return self._part(node, _TRUTH[value], parts=(self.part(node.arguments[0], wanted=not wanted),))
        message = condition_message(self._evaluation, node, value=value, wanted=wanted)
        return self._part(node, _TRUTH[value], message)

    def _part(
        self,
        node: TypedNode,
        verdict: EvalVerdict,
        message: str = "",
        parts: tuple[Part, ...] = (),
        *,
        cut: bool = False,
    ) -> Part:
        place = place_of(self._evaluation.source, node.offset)
        return Part(self._evaluation.text(node), *place, verdict, message, parts, cut)

    def _logical(self, node: typed_ast.Logical, *, value: bool, wanted: bool) -> Part:
        """Explain the false operands of a false `&&`, all operands of a true one; the reverse for `||`."""
        terms = list(node.terms)
        if value is node.absorbing:
            terms = [term for term in terms if self._evaluation.outcome(term).value is value]
        parts: list[Part] = []
        for term in terms[:_MOST_CHILDREN]:
            if self._left <= 0:
                break
            parts.append(self.part(term, wanted=wanted))
        return self._part(node, _TRUTH[value], parts=tuple(parts), cut=len(parts) < len(terms))

    def _quantified(self, node: typed_ast.ComprehensionLoop, *, value: bool, wanted: bool) -> Part:
        evaluation = self._evaluation
        values = evaluation.outcome(node.source).value
        rounds = list(rounds_of(values, len(node.slots)))
        if not rounds:
            return self._part(node, _TRUTH[value], f"{evaluation.text(node.source)} is empty")
        results = []
        for variables in rounds:
            evaluation.set_variables(node.slots, variables)
            results.append(evaluation.outcome(node.body).value)
        count = sum(result is True for result in results)
        decisive = count == len(results) if node.kind == "all" else count > 0
        chosen = [variables for variables, result in zip(rounds, results, strict=True) if result is decisive]
        if decisive and node.kind != "exists_one":
            chosen = chosen[:1]
        elements = f"the {len(values)} elements of {evaluation.text(node.source)}"
        verb = "satisfies" if count == 1 else "satisfy"
        message = f"{count or 'none'} of {elements} {verb} {evaluation.text(node.body)}"
        if node.kind == "exists_one" and not value:
            message += ", wanted exactly one"
        parts: list[Part] = []
        for variables in chosen[:_MOST_EXAMPLES]:
            if self._left <= 0:
                break
            self._left -= 1
            evaluation.set_variables(node.slots, variables)
            evaluation.outcome(node.body)
            explained = self.part(node.body, wanted=wanted)
            where = f"where {' and '.join(_bindings(node, variables))}"
            parts.append(self._part(node.body, explained.verdict, where, (explained,)))
        return self._part(node, _TRUTH[value], message, tuple(parts), cut=len(parts) < len(chosen))
