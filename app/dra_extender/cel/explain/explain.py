"""Why an expression is true or false for a device, or why it fails there."""

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.explain.evaluation import (
    EvalResult,
    Evaluation,
    ExplainableExpression,
    ExplainedPart,
    body_of,
    operands,
    rounds_of,
    source_of,
)
from dra_extender.cel.explain.messages import (
    condition_message,
    failure_message,
    missing_attribute_message,
    missing_key_message,
)
from dra_extender.cel.explain.values import EvalVerdict, Part, place_of, shown
from dra_extender.cel.program import Program
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.values import LISTS, MAPS, Optional, type_name, unwrapped


def explain_failure(evaluation: Evaluation, item: ExplainedPart) -> Part:
    """The innermost part that failed, with a message; `item` must have failed."""
    found, bindings = _FailureSearch(evaluation).innermost(item)
    error = evaluation.outcome(found).error or "it failed"
    message = _absent_selection_message(evaluation, found) or failure_message(evaluation, found, error)
    where = f" (where {bindings})" if bindings else ""
    return Part(
        evaluation.text(found), *place_of(evaluation.source, found.node.offset), EvalVerdict.ERROR, message + where
    )


class _FailureSearch:
    """Descends to the part that an error comes from, and sets variables on the way."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._bound: dict[int, ExplainedPart] = {}

    def innermost(self, item: ExplainedPart) -> tuple[ExplainedPart, str]:
        """The part, and the values of the loop variables around it."""
        bindings = ""
        while True:
            inner, more = self._inside(item)
            if inner is None:
                return item, bindings
            item, bindings = inner, ", ".join(each for each in (bindings, more) if each)

    def _fails(self, item: ExplainedPart) -> bool:
        return self._evaluation.outcome(item).error is not None

    def _inside(self, item: ExplainedPart) -> tuple[ExplainedPart | None, str]:
        """The part of this one that failed, if any."""
        checked = item.checked
        if isinstance(checked, typed_ast.Variable):
            return self._bound.pop(checked.slot, None), ""
        if isinstance(checked, typed_ast.Conditional):
            return self._in_conditional(item), ""
        for each in operands(item):
            if self._fails(each):
                return each, ""
        if isinstance(checked, typed_ast.ComprehensionLoop | typed_ast.Sort):
            return self._in_rounds(item, checked)
        if isinstance(checked, typed_ast.CelBind):
            self._bound[checked.slot] = source_of(item)
            self._evaluation.defer(checked.slot, source_of(item))
        elif isinstance(checked, typed_ast.OptionalMap):
            value = self._evaluation.outcome(source_of(item)).value
            if isinstance(value, Optional):
                self._evaluation.set(checked.slot, value.value)
        else:
            return None, ""
        return (body_of(item) if self._fails(body_of(item)) else None), ""

    def _in_conditional(self, item: ExplainedPart) -> ExplainedPart | None:
        condition, chosen, other = operands(item)
        outcome = self._evaluation.outcome(condition)
        if outcome.error is not None:
            return condition
        branch = chosen if outcome.value is True else other
        return branch if self._fails(branch) else None

    def _in_rounds(
        self, item: ExplainedPart, checked: typed_ast.ComprehensionLoop | typed_ast.Sort
    ) -> tuple[ExplainedPart | None, str]:
        node = item.node
        assert isinstance(node, ast.Comprehension)  # noqa: S101 - for the type checker: loops come from comprehensions
        slots = (checked.slot,) if isinstance(checked, typed_ast.Sort) else checked.slots
        tried = [body_of(item)]
        if (
            isinstance(checked, typed_ast.ComprehensionLoop)
            and checked.condition is not None
            and node.condition is not None
        ):
            tried.insert(0, ExplainedPart(node.condition, checked.condition))
        values = self._evaluation.outcome(source_of(item)).value
        for values_of_round in rounds_of(values, len(slots)):
            for slot, value in zip(slots, values_of_round, strict=True):
                self._evaluation.set(slot, value)
            for each in tried:
                if self._fails(each):
                    pairs = zip(node.names, values_of_round, strict=True)
                    return each, ", ".join(f"{name} is {shown(value)}" for name, value in pairs)
        return None, ""


def _absent_selection_message(evaluation: Evaluation, item: ExplainedPart) -> str:
    """The message about a key, index or field that does not exist; empty if something else failed."""
    checked = item.checked
    if not isinstance(checked, typed_ast.FieldSelection | typed_ast.Index):
        return ""
    operand = operands(item)[0]
    holder = evaluation.outcome(operand).value
    key = checked.name if isinstance(checked, typed_ast.FieldSelection) else evaluation.outcome(operands(item)[1]).value
    text = evaluation.text(item)
    if type(holder) in MAPS:
        path = _device_path(evaluation, operand)
        bindings = missing_attribute_message(evaluation.device, (*path, key)) if path and isinstance(key, str) else ""
        return f"{text} does not exist: {bindings or missing_key_message(holder, key)}"
    if type(holder) in LISTS:
        return f"{text} does not exist: {evaluation.text(operand)} is {shown(holder)}, a list of {len(holder)}"
    kind = type_name(holder).removeprefix("kubernetes.")
    return (
        f"{text} does not exist: {evaluation.text(operand)} is {shown(holder)}, a plain {kind} without anything inside"
    )


def _device_path(evaluation: Evaluation, item: ExplainedPart) -> tuple[str, ...]:
    """The names that lead from `device` to a part, such as ("attributes", domain); empty if there is no such path."""
    names: list[Any] = []
    while isinstance(item.checked, typed_ast.FieldSelection | typed_ast.Index):
        parts = operands(item)
        checked = item.checked
        names.append(
            checked.name if isinstance(checked, typed_ast.FieldSelection) else evaluation.outcome(parts[1]).value
        )
        item = parts[0]
    if not isinstance(item.checked, typed_ast.DeviceVariable) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(reversed(names))


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
    limits of one evaluation; those beyond the limits are STOPPED.

    Args:
        program: A program, an expression prepared for explanations, or the text of an expression.
        device: The prepared device.
        deadline: Whether time is up.
        emulate: The Kubernetes release whose libraries the text of an expression may use.
        budget: Charged for compiling, evaluating and printing; when it is spent, the remaining parts are STOPPED.

    Raises:
        CelCompileError: The expression is not valid.
    """
    if isinstance(program, Program):
        program = ExplainableExpression(program.expression, program.emulate, budget)
    evaluation = Evaluation(program, device, deadline, emulate, budget)
    root = evaluation.root
    if device.defect is not None:
        message = f"the device cannot be read: {device.defect}"
        return Part(evaluation.text(root), *place_of(evaluation.source, 0), EvalVerdict.ERROR, message)
    return _Explainer(evaluation).part(root, wanted=True)


def one_line(part: Part) -> str:
    """The reasons alone, at most three: `device.attributes["gpu.example.com"].model is "A100", wanted "H100"`."""
    reasons = list(dict.fromkeys(_reasons(part)))
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    return "; ".join(reasons[:_MOST_REASONS]) + more


def _reasons(part: Part) -> Iterator[str]:
    """The messages of the leaves; the message of a part that counts elements is followed by those of its first example."""
    if not part.parts:
        yield part.message or f"{part.expression} is {part.verdict}"
    elif part.message and not part.message.startswith("where "):
        yield f"{part.message} ({', '.join(_reasons(part.parts[0]))})"
    else:
        for each in part.parts:
            yield from _reasons(each)


class _Explainer:
    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._left = _MOST_PARTS

    def part(self, item: ExplainedPart, *, wanted: bool) -> Part:
        """Explain the value of a condition that should have been `wanted`."""
        self._left -= 1
        outcome = self._evaluation.outcome(item)
        if outcome.error is not None:
            return self._failure(item, outcome)
        value = unwrapped(outcome.value)
        if value is not True and value is not False:
            message = (
                f"{self._evaluation.text(item)} is {shown(value)}, a {type_name(value)}, where true or false was wanted"
            )
            return self._part(item, EvalVerdict.VALUE, message)
        if self._left <= 0:
            return self._part(
                item, _TRUTH[value], condition_message(self._evaluation, item, value=value, wanted=wanted)
            )
        return self._decision(item, value=value, wanted=wanted)

    def _part(
        self,
        item: ExplainedPart,
        verdict: EvalVerdict,
        message: str = "",
        parts: tuple[Part, ...] = (),
        *,
        cut: bool = False,
    ) -> Part:
        place = place_of(self._evaluation.source, item.node.offset)
        return Part(self._evaluation.text(item), *place, verdict, message, parts, cut)

    def _decision(self, item: ExplainedPart, *, value: bool, wanted: bool) -> Part:
        checked, verdict = item.checked, _TRUTH[value]
        match checked:
            case typed_ast.Logical():
                return self._logical(item, checked, value=value, wanted=wanted)
            case typed_ast.Conditional():
                return self._conditional(item, value=value, wanted=wanted)
            case typed_ast.ComprehensionLoop(kind="all" | "exists" | "exists_one"):
                return self._quantified(item, checked, value=value, wanted=wanted)
            case typed_ast.CelBind():
                self._evaluation.defer(checked.slot, source_of(item))
                return self._part(item, verdict, parts=(self.part(body_of(item), wanted=wanted),))
            case typed_ast.Invoke() if checked.function.name == "!_":
                return self._part(item, verdict, parts=(self.part(operands(item)[0], wanted=not wanted),))
        return self._part(item, verdict, condition_message(self._evaluation, item, value=value, wanted=wanted))

    def _logical(self, item: ExplainedPart, checked: typed_ast.Logical, *, value: bool, wanted: bool) -> Part:
        """The false operands of a false `&&`, all operands of a true one; the reverse for `||`."""
        terms = operands(item)
        if value is checked.absorbing:
            terms = [each for each in terms if self._evaluation.outcome(each).value is value]
        parts, cut = self._parts(terms, wanted=wanted)
        return self._part(item, _TRUTH[value], parts=parts, cut=cut)

    def _conditional(self, item: ExplainedPart, *, value: bool, wanted: bool) -> Part:
        condition, chosen, other = operands(item)
        held = self._evaluation.outcome(condition).value is True
        parts = (self.part(condition, wanted=held), self.part(chosen if held else other, wanted=wanted))
        return self._part(item, _TRUTH[value], parts=parts)

    def _parts(self, items: list[ExplainedPart], *, wanted: bool) -> tuple[tuple[Part, ...], bool]:
        """As many parts as the limit allows, and whether some are missing."""
        parts = []
        for each in items[:_MOST_CHILDREN]:
            if self._left <= 0:
                break
            parts.append(self.part(each, wanted=wanted))
        return tuple(parts), len(parts) < len(items)

    def _quantified(
        self, item: ExplainedPart, checked: typed_ast.ComprehensionLoop, *, value: bool, wanted: bool
    ) -> Part:
        source, body = source_of(item), body_of(item)
        values = self._evaluation.outcome(source).value
        rounds = list(rounds_of(values, len(checked.slots)))
        if not rounds:
            return self._part(item, _TRUTH[value], f"{self._evaluation.text(source)} is empty")
        given = [self._in_round(checked, body, each).value for each in rounds]
        chosen, message = _choose(checked.kind, rounds, given)
        text = self._evaluation.text
        counted = f"{message} of the {len(values)} elements of {text(source)} {_VERB[message == '1']} {text(body)}"
        if checked.kind == "exists_one" and not value:
            counted += ", wanted exactly one"
        parts = [
            self._example(checked, item, body, each, wanted=wanted)
            for each in chosen[:_MOST_EXAMPLES]
            if self._left > 0
        ]
        return self._part(item, _TRUTH[value], counted, tuple(parts), cut=len(parts) < len(chosen))

    def _in_round(
        self, checked: typed_ast.ComprehensionLoop, body: ExplainedPart, values: tuple[Any, ...]
    ) -> EvalResult:
        for slot, value in zip(checked.slots, values, strict=True):
            self._evaluation.set(slot, value)
        return self._evaluation.outcome(body)

    def _example(
        self,
        checked: typed_ast.ComprehensionLoop,
        item: ExplainedPart,
        body: ExplainedPart,
        values: tuple[Any, ...],
        *,
        wanted: bool,
    ) -> Part:
        """The body for one element, with the element's value."""
        self._left -= 1
        self._in_round(checked, body, values)
        assert isinstance(item.node, ast.Comprehension)  # noqa: S101 - for the type checker: loops come from comprehensions
        bindings = " and ".join(
            f"{name} is {shown(value)}" for name, value in zip(item.node.names, values, strict=True)
        )
        found = self.part(body, wanted=wanted)
        return self._part(body, found.verdict, f"where {bindings}", (found,))

    def _failure(self, item: ExplainedPart, outcome: EvalResult) -> Part:
        self._left -= 1
        verdict = EvalVerdict.STOPPED if outcome.stopped else EvalVerdict.ERROR
        if outcome.stopped:
            return self._part(item, verdict, f"{self._evaluation.text(item)} was not decided: {outcome.error}")
        found = explain_failure(self._evaluation, item)
        return found if found.expression == self._evaluation.text(item) else self._part(item, verdict, parts=(found,))


_VERB: Final = {True: "satisfies", False: "satisfy"}


def _choose(kind: str, rounds: list[tuple[Any, ...]], given: list[Any]) -> tuple[list[tuple[Any, ...]], str]:
    """The elements that decide, and how many satisfy the predicate."""
    count = sum(each is True for each in given)
    decisive = count == len(given) if kind == "all" else count > 0
    chosen = [each for each, value in zip(rounds, given, strict=True) if value is decisive]
    if decisive and kind != "exists_one":
        chosen = chosen[:1]
    return chosen, str(count) if count else "none"
