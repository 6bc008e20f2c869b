"""The part of an expression that failed, and what the device has instead."""

from typing import Any

from dra_extender.cel.explain.evaluation import Evaluation, ExplainedPart, body_of, operands, rounds_of, source_of
from dra_extender.cel.explain.messages import failure_message
from dra_extender.cel.explain.missing import missing_attribute_message, missing_key_message
from dra_extender.cel.explain.values import EvalVerdict, Part, place_of, shown
from dra_extender.cel.runtime.values import LISTS, MAPS, Optional, type_name
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast


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
