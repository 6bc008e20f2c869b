"""The back end: from a checked tree to closures with cost accounting."""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, ClassVar, Final

import msgspec

from dra_extender.cel.compiler.calls import compile_call
from dra_extender.cel.compiler.code import CompiledPart, EvaluatePart, constant, first_failure
from dra_extender.cel.compiler.loops import (
    compile_bind,
    compile_loop,
    compile_optional_map,
    compile_sort,
    lazy_variable,
)
from dra_extender.cel.compiler.selections import compile_field, compile_index
from dra_extender.cel.cost import (
    BRANCH_WORK,
    ELEMENT_WORK,
    ENTRY_WORK,
    FAILURE_WORK,
    LAZY_WORK,
    LIST_COST,
    LITERAL_WORK,
    MAP_COST,
    TERM_WORK,
    VARIABLE_WORK,
    EvaluationFrame,
)
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.native.equality import charge_key
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.values import Optional, map_key, no_overload

_DEVICE: Final = CompiledPart(
    evaluate=lambda frame: frame.device.fields, cost=1, work=VARIABLE_WORK, selection=True, path=1
)


class Compiler:
    """Compiles the checked tree of one expression; with `dynamic_dispatch`, run-time types choose all overloads.

    The cache charges `owner` for regular expressions.
    """

    def __init__(self, source: str, *, dynamic_dispatch: bool, owner: str = "") -> None:
        self._source = source
        self._owner = owner
        self._careful = dynamic_dispatch
        self._work = 0

    def compile(self, node: typed_ast.TypedNode) -> CompiledPart:
        """Compile a part; a constant part that always fails is a CelCompileError."""
        before = self._work
        part = self._RULES[type(node)](self, node)
        self._work = before if part.folded else self._work + part.work
        return part

    def _repeated(self, node: typed_ast.TypedNode) -> tuple[CompiledPart, int]:
        """Compile a part that may run many times; return it with the work of running it and all parts within it once."""
        before = self._work
        code = self.compile(node)
        return code, self._work - before

    def _variable(self, node: typed_ast.Variable) -> CompiledPart:
        slot = node.slot
        evaluate: EvaluatePart = lazy_variable(slot) if node.lazy else lambda frame: frame.slots[slot]
        work = LAZY_WORK if node.lazy else VARIABLE_WORK
        return CompiledPart(evaluate=evaluate, cost=1, work=work, selection=True, path=1)

    def _index(self, node: typed_ast.Index) -> CompiledPart:
        return compile_index(node, self.compile(node.operand), self.compile(node.key), self._source)

    def _invoke(self, node: typed_ast.Invoke) -> CompiledPart:
        arguments = tuple(self.compile(item) for item in node.arguments)
        return compile_call(node, arguments, self._source, dynamic_dispatch=self._careful, owner=self._owner)

    def _logical(self, node: typed_ast.Logical) -> CompiledPart:
        terms = [self.compile(term) for term in node.terms]
        first, *following = terms
        if len(following) == 1:
            second = following[0]
            evaluate = _logical_pair(first.evaluate, second.evaluate, second.cost, absorbing=node.absorbing)
        else:
            costs = accumulate((term.cost for term in following), initial=0)
            evaluate = _logical(
                tuple(zip((term.evaluate for term in terms), costs, strict=True)), absorbing=node.absorbing
            )
        return CompiledPart(evaluate=evaluate, cost=first.cost, work=TERM_WORK * len(terms))

    def _conditional(self, node: typed_ast.Conditional) -> CompiledPart:
        condition, then_part, else_part = (
            self.compile(item) for item in (node.condition, node.then_branch, node.else_branch)
        )
        test, evaluate_then, evaluate_else = condition.evaluate, then_part.evaluate, else_part.evaluate
        then_cost, else_cost = then_part.cost - then_part.path, else_part.cost - else_part.path

        def evaluate(frame: EvaluationFrame) -> Any:
            value = test(frame)
            if value is True:
                frame.cost += then_cost
                return evaluate_then(frame)
            if value is False:
                frame.cost += else_cost
                return evaluate_else(frame)
            raise no_overload(value)

        return CompiledPart(evaluate=evaluate, cost=condition.cost, work=BRANCH_WORK, selection=True)

    def _make_list(self, node: typed_ast.MakeList) -> CompiledPart:
        elements = [self.compile(item) for item in node.elements]
        if not any(node.optional) and all(item.constant for item in elements):
            return constant(tuple(item.value for item in elements))
        cost = LIST_COST + sum(item.cost for item in elements)
        work = LITERAL_WORK + ELEMENT_WORK * len(elements)
        return CompiledPart(evaluate=_list_of_elements(elements, node.optional), cost=cost, work=work)

    def _make_map(self, node: typed_ast.MakeMap) -> CompiledPart:
        keys = [self.compile(item) for item in node.keys]
        values = [self.compile(item) for item in node.values]
        evaluate = _map_of_entries(keys, values, node.optional)
        work = LITERAL_WORK + ENTRY_WORK * len(keys)
        if not any(node.optional) and all(item.constant for item in (*keys, *values)):
            try:
                return constant(evaluate(EvaluationFrame(None, 0, ())))
            except CelRuntimeError:
                return CompiledPart(evaluate=evaluate, cost=0, work=work)
        cost = MAP_COST + sum(item.cost for item in (*keys, *values))
        return CompiledPart(evaluate=evaluate, cost=cost, work=work)

    def _loop(self, node: typed_ast.ComprehensionLoop) -> CompiledPart:
        condition, test_work = (None, 0) if node.condition is None else self._repeated(node.condition)
        body, work = self._repeated(node.body)
        return compile_loop(node, self.compile(node.source), condition, body, test_work + work)

    def _optional_map(self, node: typed_ast.OptionalMap) -> CompiledPart:
        source, work = self._repeated(node.source)
        part = compile_optional_map(node, source, self.compile(node.body), work)
        return msgspec.structs.replace(part, selection=True)  # upstream expands it to a `?:`

    def _sort(self, node: typed_ast.Sort) -> CompiledPart:
        key, work = self._repeated(node.body)
        return compile_sort(node, self.compile(node.source), key, work)

    _RULES: ClassVar[Mapping[type[typed_ast.TypedNode], Callable[[Any, Any], CompiledPart]]] = {
        typed_ast.Constant: lambda _, node: constant(node.value),
        typed_ast.DeviceVariable: lambda *_: _DEVICE,
        typed_ast.Variable: _variable,
        typed_ast.FieldSelection: lambda self, node: compile_field(node, self.compile(node.operand)),
        typed_ast.Index: _index,
        typed_ast.Invoke: _invoke,
        typed_ast.Logical: _logical,
        typed_ast.Conditional: _conditional,
        typed_ast.MakeList: _make_list,
        typed_ast.MakeMap: _make_map,
        typed_ast.ComprehensionLoop: _loop,
        typed_ast.CelBind: lambda self, node: compile_bind(
            node.slot, self.compile(node.source), self.compile(node.body)
        ),
        typed_ast.OptionalMap: _optional_map,
        typed_ast.Sort: _sort,
    }


def _later_costs(items: list[CompiledPart]) -> list[int]:
    """Return for each item the cost of all after it, which are not evaluated if it fails."""
    later = []
    total = 0
    for item in reversed(items):
        later.append(total)
        total += item.cost
    return later[::-1]


def _list_of_elements(elements: list[CompiledPart], optional: tuple[bool, ...]) -> EvaluatePart:
    """Build a list literal element by element; absent optional elements are left out."""
    parts = tuple(zip((item.evaluate for item in elements), optional, _later_costs(elements), strict=True))

    def evaluate(frame: EvaluationFrame) -> list[Any]:
        values = []
        unspent = 0
        try:
            for element, skippable, unspent in parts:  # noqa: B007 - read when an element fails
                value = element(frame)
                if skippable:
                    if not _present(value):
                        continue
                    value = value.value
                values.append(value)
        except CelRuntimeError:
            frame.cost -= unspent
            raise
        return values

    return evaluate


def _map_of_entries(keys: list[CompiledPart], values: list[CompiledPart], optional: tuple[bool, ...]) -> EvaluatePart:
    """Build a map literal entry by entry; an absent optional entry removes an earlier one with its key."""
    after = _later_costs([part for pair in zip(keys, values, strict=True) for part in pair])
    parts = tuple(
        (key.evaluate, value.evaluate, skip, later, after_value)
        for key, value, skip, later, after_value in zip(keys, values, optional, after[::2], after[1::2], strict=True)
    )

    def evaluate(frame: EvaluationFrame) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        unspent = 0
        try:
            for key, item, skippable, later, after_value in parts:
                unspent = later
                dict_key = map_key(key(frame))
                charge_key(frame, dict_key, len(entries))
                unspent = after_value
                value = item(frame)
                if skippable:
                    if not _present(value):
                        entries.pop(dict_key, None)
                        continue
                    value = value.value
                entries[dict_key] = value
        except CelRuntimeError:
            frame.cost -= unspent
            raise
        return entries

    return evaluate


def _present(value: Any) -> bool:
    if type(value) is not Optional:
        raise CelRuntimeError("cannot initialize an optional element from a value that is not optional")
    return bool(value.present)


def _logical_pair(first: EvaluatePart, second: EvaluatePart, cost: int, *, absorbing: bool) -> EvaluatePart:
    """Evaluate two terms; faster than `_logical` if the first is a bool."""

    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            value = first(frame)
        except CelCostError:
            raise
        except CelRuntimeError as error:
            return _after_failure(frame, second, cost, error, absorbing)
        if value is absorbing:
            return absorbing
        if value is not (not absorbing):
            return _after_failure(frame, second, cost, no_overload(value), absorbing)
        frame.cost += cost
        value = second(frame)
        if value is True or value is False:
            return value
        raise no_overload(value)

    return evaluate


def _after_failure(
    frame: EvaluationFrame, second: EvaluatePart, cost: int, failure: CelRuntimeError, absorbing: bool
) -> bool:
    """Evaluate the second term after the first failed: it may still decide."""
    frame.cost += cost
    frame.spend(FAILURE_WORK)
    value: object = None
    try:
        value = second(frame)
    except CelCostError:
        raise
    except CelRuntimeError:
        pass
    if value is absorbing:
        return absorbing
    raise CelRuntimeError(str(failure))


def _logical(terms: tuple[tuple[EvaluatePart, int], ...], *, absorbing: bool) -> EvaluatePart:
    """Evaluate several terms; each has the cost of all up to it but the first, charged for the last one that is evaluated."""

    def evaluate(frame: EvaluationFrame) -> bool:
        failure: str | None = None
        cost = 0
        for term, cost in terms:
            try:
                value: object = term(frame)
            except CelRuntimeError as error:
                failure = first_failure(frame, error, failure)
                continue
            if value is absorbing:
                frame.cost += cost
                return absorbing
            if value is not (not absorbing):
                failure = failure or str(no_overload(value))
        frame.cost += cost
        if failure is not None:
            raise CelRuntimeError(failure)
        return not absorbing

    return evaluate
