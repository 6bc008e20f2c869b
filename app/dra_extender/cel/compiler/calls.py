"""Calls: static types choose the overload if they suffice, else run-time types do."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dra_extender.cel.compiler.code import FAILED, CompiledPart, EvaluatePart, constant, evaluated
from dra_extender.cel.compiler.comparisons import compile_equality
from dra_extender.cel.cost import (
    CALL_WORK,
    CHARGED_CALL_WORK,
    DISPATCH_WORK,
    FORMULA_WORK,
    MEMBERSHIP_WORK,
    SEARCH_WORK,
    EvaluationFrame,
    Extra,
)
from dra_extender.cel.environment import UNDECLARED
from dra_extender.cel.errors import CelCompileError, CelCostError, CelRuntimeError
from dra_extender.cel.library.conversions import CONVERSIONS
from dra_extender.cel.library.core import LAZY
from dra_extender.cel.library.string_format import check_format
from dra_extender.cel.native.patterns import PATTERN_FUNCTIONS, charge_pattern, compile_pattern
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.declarations import Overload, accepts
from dra_extender.cel.types.types import NULLABLE, UNSPECIFIC, Type
from dra_extender.cel.values.values import CONTAINERS, NUMBERS, UNHASHABLE, Optional, member_key, no_overload

_MEMBERS: Final = frozenset({str, bool}) | NUMBERS
_PAIR: Final = 2
_FOLDED_WORK: Final = 5_000
"""The most units of work of a call that is evaluated at compile time."""

FrameFunction = Callable[..., Any]
"""The implementation of an overload, with the frame as its first parameter."""
_ByTypes = dict[tuple[type, ...], FrameFunction]
_ChargeFailure = Callable[[EvaluationFrame, CelRuntimeError, list[Any]], None]


def compile_call(
    node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], source: str, *, dynamic_dispatch: bool, owner: str = ""
) -> CompiledPart:
    """Compile a call of a function or operator; with `dynamic_dispatch`, run-time types choose all overloads.

    The cache charges `owner` for a constant regular expression. A constant argument with which the call always fails, as in
    int('x') or an invalid pattern, is a CelCompileError.
    """
    name = node.function.name
    if name in {"_==_", "_!=_"}:
        left, right = node.arguments
        common_type = left.type if left.type is right.type else None
        return compile_equality(*arguments, negated=name == "_!=_", common_type=common_type)
    if name in LAZY:
        return _compile_lazy(name, *arguments)
    if name in PATTERN_FUNCTIONS and arguments[1].constant and isinstance(arguments[1].value, str):
        _require_pattern(arguments[1].value, name, source, node.arguments[1].offset, owner)
    elif name in PATTERN_FUNCTIONS:
        arguments = (arguments[0], _charged_pattern(arguments[1]), *arguments[2:])
    if name == "matches" and not node.member and isinstance(node.arguments[0], typed_ast.Constant):
        _require_pattern(arguments[0].value, name, source, node.arguments[0].offset, owner)
    if name == "@in" and len(node.candidates) == 1 and arguments[1].constant and isinstance(arguments[1].value, tuple):
        member = _compile_membership(*arguments)
        if member is not None:
            return member
    if name == "format" and isinstance(node.arguments[0], typed_ast.Constant):
        _require_format(node, arguments[0].value, source)
    if name in CONVERSIONS and arguments[0].constant:
        value = arguments[0].value
        try:
            return constant(find_overload(_shaped(node), (value,))(EvaluationFrame(None, 0, ()), value))
        except CelRuntimeError as error:
            raise CelCompileError(str(error), source, node.offset) from None
    return _compile_overloads(node, arguments, dynamic_dispatch=dynamic_dispatch)


def _compile_overloads(
    node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], *, dynamic_dispatch: bool
) -> CompiledPart:
    """Compile a call of one overload where the static types prove it right, otherwise a call that chooses when it runs."""
    cost = 1 + sum([argument.cost for argument in arguments])
    if len(node.candidates) > 1:
        overloads, extra = _shaped(node), node.function.extra
        evaluate = _dynamic_evaluation(node, arguments, overloads, extra)
        return CompiledPart(evaluate=evaluate, cost=cost, work=_call_work(overloads, extra) + DISPATCH_WORK)
    single = node.candidates[0]
    extra = node.function.extra or single.extra
    doubtful = dynamic_dispatch and not all(argument.folded for argument in arguments)
    # The run-time type of an argument must be checked where its static type proves too little.
    pairs = zip(node.arguments, single.parameters, strict=True)
    doubtful = doubtful or any(_may_differ(item.type, kind) or _may_be_null(item, kind) for item, kind in pairs)
    if single.unguarded or not doubtful:
        folded = fold_call(node, arguments, single)
        if folded is not None:
            return folded
        evaluate = _static_evaluation(node, arguments, single, extra)
        return CompiledPart(evaluate=evaluate, cost=cost, work=_call_work((single,), extra))
    # Upstream has one implementation for all overloads of an operator and of size, so that the choice of the type check does not
    # matter. It takes an open type for that of the first overload: for bool in [..].distinct().exists(x, dyn(1) < x).
    shared = not node.function.name.isidentifier() or node.function.name == "size"
    overloads = _shaped(node) if shared else (single,)
    evaluate = _dynamic_evaluation(node, arguments, overloads, extra)
    return CompiledPart(evaluate=evaluate, cost=cost, work=_call_work(overloads, extra) + DISPATCH_WORK)


def _call_work(overloads: tuple[Overload, ...], extra: Extra | None) -> int:
    """Return the work of a call of whichever of these overloads takes most."""
    work = CALL_WORK + max(item.work for item in overloads)
    if extra is not None or any(item.charges for item in overloads):
        work += CHARGED_CALL_WORK
    return work if extra is None else work + FORMULA_WORK * len(overloads[0].parameters)


def _static_evaluation(
    node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], single: Overload, extra: Extra | None
) -> EvaluatePart:
    """Call the one overload that fits the static types; most calls have one or two arguments and nothing to charge."""
    evaluators = tuple([argument.evaluate for argument in arguments])
    if extra is not None or single.charges or len(evaluators) not in {1, _PAIR}:
        call = with_frame(single)
        if extra is not None and len(evaluators) == 1:
            return _charged_unary(call, evaluators[0], extra)
        charge_failure = _charging_failure(node, arguments, extra)
        if extra is not None and len(evaluators) == _PAIR:
            return _charged_binary(call, evaluators, extra, charge_failure)
        return _charged(lambda *_: call, evaluators, extra, charge_failure)
    function, first = single.implementation, evaluators[0]
    if len(evaluators) == 1:
        return lambda frame: function(first(frame))
    if arguments[1].folded:
        second = arguments[1].value
        return lambda frame: function(first(frame), second)
    return _binary(function, *evaluators)


def _dynamic_evaluation(
    node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], overloads: tuple[Overload, ...], extra: Extra | None
) -> EvaluatePart:
    """Call the overload that fits the run-time types of the arguments; the choice is cached by these types."""
    undeclared = UNDECLARED.get((node.function.name, len(arguments)))
    if undeclared is not None and (len(arguments) == 1 or arguments[1].constant):
        overloads += (undeclared,)
    evaluators = tuple([argument.evaluate for argument in arguments])
    if extra is None and len(evaluators) == _PAIR and not _stops_at_failure(node, arguments):
        return _dispatched_pair(overloads, *evaluators)
    by_types: _ByTypes = {}

    def choose(frame: EvaluationFrame, values: list[Any]) -> FrameFunction:
        kinds = tuple(map(type, values))
        return by_types.get(kinds) or _find_and_cache(frame, by_types, kinds, overloads, values)

    return _charged(choose, evaluators, extra, _charging_failure(node, arguments, extra))


def _shaped(node: typed_ast.Invoke) -> tuple[Overload, ...]:
    return node.function.shapes[node.member, len(node.arguments)]


def find_overload(overloads: tuple[Overload, ...], values: Sequence[Any]) -> FrameFunction:
    for item in overloads:
        if item.unguarded or all(
            accepts(parameter, value) for parameter, value in zip(item.parameters, values, strict=True)
        ):
            return with_frame(item)
    raise no_overload(*values)


def _find_and_cache(
    frame: EvaluationFrame,
    by_types: _ByTypes,
    kinds: tuple[type, ...],
    overloads: tuple[Overload, ...],
    values: Sequence[Any],
) -> FrameFunction:
    """Find an overload, and cache it unless a list or map is among the values: the types of their elements decide, too."""
    frame.spend(SEARCH_WORK * len(overloads))
    chosen = find_overload(overloads, values)
    if CONTAINERS.isdisjoint(kinds):
        by_types[kinds] = chosen
    return chosen


def with_frame(item: Overload) -> FrameFunction:
    """Return the implementation of an overload with the frame as its first parameter; a native call is charged first."""
    implementation, count = item.implementation, len(item.parameters)
    if item.native is not None:
        return item.native.with_arity(count)
    if item.metered:
        return implementation
    if count == 1:
        return lambda _, value: implementation(value)
    # A fixed number of arguments is faster to pass on.
    if count == _PAIR:
        return lambda _, left, right: implementation(left, right)
    return lambda _, *values: implementation(*values)


def _binary(function: FrameFunction, first: EvaluatePart, second: EvaluatePart) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            left = first(frame)
        except CelRuntimeError as error:
            raise _evaluate_second(frame, second, error) from None
        return function(left, second(frame))

    return evaluate


def _dispatched_pair(overloads: tuple[Overload, ...], first: EvaluatePart, second: EvaluatePart) -> EvaluatePart:
    by_types: _ByTypes = {}

    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            left = first(frame)
        except CelRuntimeError as error:
            raise _evaluate_second(frame, second, error) from None
        right = second(frame)
        kinds = (type(left), type(right))
        chosen = by_types.get(kinds) or _find_and_cache(frame, by_types, kinds, overloads, (left, right))
        return chosen(frame, left, right)

    return evaluate


def _evaluate_second(frame: EvaluationFrame, second: EvaluatePart, error: CelRuntimeError) -> CelRuntimeError:
    """Evaluate the second of two arguments after the first failed, as upstream does, and charge it; return the error to raise."""
    if not isinstance(error, CelCostError):
        evaluated(frame, second)
    return error


def _charged_unary(chosen: FrameFunction, argument: EvaluatePart, extra: Extra) -> EvaluatePart:
    """Call as `_charged` does, with a single argument."""

    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            value = argument(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                frame.cost += extra(frame, (FAILED,), FAILED)
            raise
        result = None
        try:
            result = chosen(frame, value)
        finally:
            frame.cost += extra(frame, (value,), result)
        return result

    return evaluate


def _charging_failure(
    node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], extra: Extra | None
) -> _ChargeFailure:
    """Charge a call whose argument behind some values failed, unless a limit was reached.

    Upstream evaluates both of two arguments, and stops at the first failure of more.
    """
    costs = tuple([argument.cost for argument in arguments])
    last = arguments[-1].evaluate if arguments else None
    stops = len(arguments) > _PAIR or _stops_at_failure(node, arguments)

    def charge(frame: EvaluationFrame, error: CelRuntimeError, values: list[Any]) -> None:
        if isinstance(error, CelCostError):
            return
        following = costs[len(values) + 1 :]
        if stops and following:
            frame.cost -= 1 + sum(following)
            return
        values.append(FAILED)
        if following and last is not None:
            values.append(evaluated(frame, last))
        if extra is not None:
            frame.cost += extra(frame, tuple(values), FAILED)

    return charge


def _stops_at_failure(node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...]) -> bool:
    """Return whether upstream skips the second of two arguments if the first fails."""
    name = node.function.name
    if name == "format" or (name in PATTERN_FUNCTIONS and arguments[1].constant):
        return True
    return len(node.candidates) > 1 and name.isidentifier() and name != "size"


def _charged_binary(
    chosen: FrameFunction, evaluators: tuple[EvaluatePart, ...], extra: Extra, charge_failure: _ChargeFailure
) -> EvaluatePart:
    """Call as `_charged` does, with two arguments."""
    first, second = evaluators

    def evaluate(frame: EvaluationFrame) -> Any:
        values: list[Any] = []
        try:
            left = first(frame)
            values = [left]
            right = second(frame)
        except CelRuntimeError as error:
            charge_failure(frame, error, values)
            raise
        result = None
        try:
            result = chosen(frame, left, right)
        finally:
            frame.cost += extra(frame, (left, right), result)
        return result

    return evaluate


def _charged(
    choose: Callable[[EvaluationFrame, list[Any]], FrameFunction],
    evaluators: tuple[EvaluatePart, ...],
    extra: Extra | None,
    charge_failure: _ChargeFailure,
) -> EvaluatePart:
    """Evaluate arguments, choose the implementation, run it, and charge what depends on values even if it fails."""

    def evaluate(frame: EvaluationFrame) -> Any:
        values: list[Any] = []
        try:
            for argument in evaluators:
                values.append(argument(frame))  # noqa: PERF401 - what was evaluated before a failure has to be known
        except CelRuntimeError as error:
            charge_failure(frame, error, values)
            raise
        if extra is None:
            return choose(frame, values)(frame, *values)
        result = None
        try:
            result = choose(frame, values)(frame, *values)
        finally:
            frame.cost += extra(frame, tuple(values), result)
        return result

    return evaluate


def _may_be_null(item: typed_ast.TypedNode, parameter: Type) -> bool:
    """Return whether an argument may be null, which can be assigned to the types of libraries, by way of a branch or an element."""
    if parameter.kind not in NULLABLE or isinstance(item, typed_ast.Constant):
        return False
    if isinstance(item, typed_ast.Invoke):
        return any(candidate.result.kind == "variable" for candidate in item.candidates)
    while isinstance(item, (typed_ast.FieldSelection, typed_ast.Index)):
        item = item.operand
    return not isinstance(item, typed_ast.DeviceVariable)


def _may_differ(static: Type, parameter: Type) -> bool:
    """Return whether a value of the static type may have another run-time type than the parameter."""
    if parameter.kind in UNSPECIFIC:
        return False
    if static.kind in UNSPECIFIC or static.name != parameter.name:
        return True
    return any(_may_differ(*pair) for pair in zip(static.parameters, parameter.parameters, strict=True))


def fold_call(node: typed_ast.Invoke, arguments: tuple[CompiledPart, ...], single: Overload) -> CompiledPart | None:
    """Evaluate a call of constants such as quantity('1Gi') at compile time; one that fails is left to fail at run time."""
    if single.metered or not arguments:
        return None
    for argument in arguments:
        if not argument.folded:
            return None
    values = tuple([argument.value for argument in arguments])
    if single.native is not None and single.native.work(*values) > _FOLDED_WORK:
        return None
    try:
        value = single.implementation(*values)
    except CelRuntimeError:
        return None
    extra = node.function.extra or single.extra
    cost = 1 + sum([argument.cost for argument in arguments])
    cost += 0 if extra is None else extra(EvaluationFrame(None, 0, ()), values, value)
    return CompiledPart(evaluate=lambda _: value, cost=cost, work=0, folded=True, value=value)


def _compile_lazy(name: str, target: CompiledPart, argument: CompiledPart) -> CompiledPart:
    evaluate_target, evaluate_argument, cost = target.evaluate, argument.evaluate, argument.cost
    unwrap = name == "orValue"

    def evaluate(frame: EvaluationFrame) -> Any:
        value = evaluate_target(frame)
        if type(value) is not Optional:
            raise no_overload(value)
        if value.present:
            return value.value if unwrap else value
        frame.cost += cost
        alternative = evaluate_argument(frame)
        if not unwrap and type(alternative) is not Optional:
            raise no_overload(alternative)
        return alternative

    return CompiledPart(evaluate=evaluate, cost=target.cost, work=CALL_WORK)


def _charged_pattern(argument: CompiledPart) -> CompiledPart:
    """Charge each call with a computed pattern for compiling it."""
    evaluate_argument = argument.evaluate

    def evaluate(frame: EvaluationFrame) -> Any:
        pattern = evaluate_argument(frame)
        if type(pattern) is str:
            charge_pattern(frame, pattern)
        return pattern

    return msgspec.structs.replace(argument, evaluate=evaluate)


def _require_pattern(pattern: str, name: str, source: str, offset: int, owner: str) -> None:
    try:
        compile_pattern(pattern, owner)
    except CelRuntimeError as error:
        raise CelCompileError(f"invalid {name} argument: {error}", source, offset) from None


def _require_format(node: typed_ast.Invoke, template: str, source: str) -> None:
    list_literal = node.arguments[1]
    if not isinstance(list_literal, typed_ast.MakeList):
        return
    try:
        check_format(template, [_types_within(item) for item in list_literal.elements])
    except CelRuntimeError as error:
        raise CelCompileError(str(error), source, list_literal.offset) from None


def _types_within(item: typed_ast.TypedNode) -> list[Type]:
    """Return the type of a part, and those of the parts of a literal."""
    types = [item.type]
    if isinstance(item, typed_ast.MakeList):
        types.extend(kind for element in item.elements for kind in _types_within(element))
    elif isinstance(item, typed_ast.MakeMap):
        types.extend(kind for part in (*item.keys, *item.values) for kind in _types_within(part))
    return types


def _compile_membership(operand: CompiledPart, values: CompiledPart) -> CompiledPart | None:
    """Compile `x in [constants]`, which costs what x costs; in an empty list x is not even evaluated."""
    if not values.value:
        return constant(value=False)
    if not all(type(value) in _MEMBERS for value in values.value):
        return None
    members = frozenset(map(member_key, values.value))
    evaluate_operand = operand.evaluate

    def evaluate(frame: EvaluationFrame) -> bool:
        value = evaluate_operand(frame)
        if type(value) in _MEMBERS:
            return member_key(value) in members
        if type(value) in UNHASHABLE:
            raise no_overload(value, values.value)
        return False

    return CompiledPart(evaluate=evaluate, cost=operand.cost, work=MEMBERSHIP_WORK)
