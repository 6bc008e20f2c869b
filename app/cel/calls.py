"""Calls: the overload is chosen at compile time where the static types allow it, else by the run-time types."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from app.cel import checked as c
from app.cel.code import FAILED, Code, Run, constant, evaluated
from app.cel.comparisons import compile_equality
from app.cel.cost import Extra, Frame
from app.cel.declarations import Overload, accepts
from app.cel.errors import CelCompileError, CelCostError, CelRuntimeError
from app.cel.format_text import check_format
from app.cel.library_core import CONVERSIONS
from app.cel.library_optional import LAZY
from app.cel.library_regex import OF_TYPES, PATTERN_FUNCTIONS
from app.cel.patterns import charge_pattern, compile_pattern
from app.cel.types import NULLABLE, Type
from app.cel.values import LISTS, MAPS, NUMBERS, UNHASHABLE, Optional, member_key, no_overload

_OPEN: Final = frozenset({"dyn", "variable"})
_MEMBERS: Final = frozenset({str, bool}) | NUMBERS
_CONTAINERS: Final = LISTS | MAPS
_PAIR: Final = 2
_FOLDED_WORK: Final = 5_000
"""Most units of work of a call whose value is computed in advance."""

Chosen = Callable[..., Any]


def compile_call(node: c.Invoke, arguments: tuple[Code, ...], source: str, *, careful: bool) -> Code:
    """Compile a call of a function or operator; `careful` does not trust the static types of its arguments.

    Raises:
        CelCompileError: A constant argument makes the call fail always, as in int('x') or an invalid pattern.
    """
    name = node.function.name
    if name in {"_==_", "_!=_"}:
        return compile_equality(node, *arguments, negated=name == "_!=_")
    if name in LAZY:
        return _compile_lazy(name, *arguments)
    if name in PATTERN_FUNCTIONS and arguments[1].constant and isinstance(arguments[1].value, str):
        _require_pattern(arguments[1].value, name, source, node.arguments[1].offset)
    elif name in PATTERN_FUNCTIONS:
        arguments = (arguments[0], _charged_pattern(arguments[1]), *arguments[2:])
    if name == "matches" and not node.member and isinstance(node.arguments[0], c.Constant):
        _require_pattern(arguments[0].value, name, source, node.arguments[0].offset)
    if name == "@in" and len(node.candidates) == 1 and arguments[1].constant and isinstance(arguments[1].value, tuple):
        member = _compile_membership(*arguments)
        if member is not None:
            return member
    if name == "format" and isinstance(node.arguments[0], c.Constant):
        _require_format(node, arguments[0].value, source)
    if name in CONVERSIONS and arguments[0].constant:
        return _fold_conversion(node, arguments, source)
    return _compile_plain(node, arguments, careful=careful)


def _compile_plain(node: c.Invoke, arguments: tuple[Code, ...], *, careful: bool) -> Code:
    single = node.candidates[0] if len(node.candidates) == 1 else None
    extra = node.function.extra or (single.extra if single is not None else None)
    cost = 1 + sum(argument.cost for argument in arguments)
    runs = tuple(argument.run for argument in arguments)
    costs = tuple(argument.cost for argument in arguments)
    early = _early(node, arguments)
    doubtful = careful and not all(argument.known for argument in arguments)
    if single is not None and (single.unguarded or not (doubtful or _guarded(single, node.arguments))):
        known = _known(single, arguments, extra, cost)
        if known is None and extra is None and len(runs) == _PAIR and arguments[1].known and not single.charges:
            return Code(run=_binary_known(single.run, runs[0], arguments[1].value), cost=cost)
        if known is None and extra is None and len(runs) == _PAIR and arguments[1].known:
            return Code(run=_framed_known(_with_frame(single), runs[0], arguments[1].value), cost=cost)
        return known or Code(run=_direct(single, runs, extra, costs, early=early), cost=cost)
    overloads = (single,) if single is not None and not _is_one_for_all(node) else _of_arity(node)
    of_type = OF_TYPES.get((node.function.name, len(arguments)))
    if of_type is not None and arguments[1].constant:
        overloads += (of_type,)
    return Code(run=_dispatched(overloads, runs, extra, costs, early=early), cost=cost)


def _early(node: c.Invoke, arguments: tuple[Code, ...]) -> bool:
    """Whether upstream leaves out the arguments behind a failed one, although there are only two."""
    name = node.function.name
    if name == "format" or (name in PATTERN_FUNCTIONS and arguments[1].constant):
        return True
    return len(node.candidates) > 1 and name.isidentifier() and name != "size"


def _is_one_for_all(node: c.Invoke) -> bool:
    """Whether upstream has one implementation for all overloads, whichever of them the static types have left.

    A type that is open is taken for that of the first overload: x of [..].distinct().exists(x, dyn(1) < x) for a bool.
    """
    return not node.function.name.isidentifier() or node.function.name == "size"


def _of_arity(node: c.Invoke) -> tuple[Overload, ...]:
    count = len(node.arguments)
    same = (item for item in node.function.overloads if item.member is node.member and len(item.parameters) == count)
    return tuple(same)


def _guarded(single: Overload, arguments: Sequence[c.Checked]) -> bool:
    """Whether some argument's type is known at run time only and has to be looked at."""
    if single.unguarded:
        return False
    pairs = zip(arguments, single.parameters, strict=True)
    return any(_open(item.type, parameter) or _may_be_null(item, parameter) for item, parameter in pairs)


def _may_be_null(item: c.Checked, parameter: Type) -> bool:
    """Whether null may have come in by a branch or an element, which is as good as any value of a library's type."""
    if parameter.kind not in NULLABLE or isinstance(item, c.Constant):
        return False
    if isinstance(item, c.Invoke):
        return any(candidate.result.kind == "variable" for candidate in item.candidates)
    while isinstance(item, c.Field | c.Index):
        item = item.operand
    return not isinstance(item, c.Device)


def _open(given: Type, parameter: Type) -> bool:
    """Whether a value of the given static type may turn out not to be what the parameter asks for."""
    if parameter.kind in _OPEN:
        return False
    if given.kind in _OPEN or given.name != parameter.name:
        return True
    return any(_open(*pair) for pair in zip(given.parameters, parameter.parameters, strict=True))


def _known(single: Overload, arguments: tuple[Code, ...], extra: Extra | None, cost: int) -> Code | None:
    """A call such as quantity('1Gi') whose value can be had once and for all; what fails is left to fail when evaluated."""
    if single.metered or not arguments or not all(argument.known for argument in arguments):
        return None
    values = tuple(argument.value for argument in arguments)
    if single.native is not None and single.native.work(*values) > _FOLDED_WORK:
        return None
    try:
        value = single.run(*values)
    except CelRuntimeError:
        return None
    total = cost + (extra(Frame(None, 0, ()), values, value) if extra is not None else 0)
    return Code(run=lambda _: value, cost=total, known=True, value=value)


def _still_spent(frame: Frame, other: Run, error: CelRuntimeError) -> CelRuntimeError:
    """Evaluate the second of two arguments although the first failed: upstream does, and charges for it."""
    if not isinstance(error, CelCostError):
        evaluated(frame, other)
    return error


def _direct(
    single: Overload, runs: tuple[Run, ...], extra: Extra | None, costs: tuple[int, ...], *, early: bool
) -> Run:
    plain = extra is None and not single.charges
    if plain and len(runs) == 1:
        return _unary(single.run, *runs)
    if plain and len(runs) == _PAIR:
        return _binary(single.run, *runs)
    chosen = _with_frame(single)
    if extra is not None and len(runs) == 1:
        return _charged_unary(chosen, runs[0], extra)
    if extra is not None and len(runs) == _PAIR:
        return _charged_binary(chosen, runs, extra, costs, early=early)
    return _charged(lambda _: chosen, runs, extra, costs, early=early)


def _unary(function: Chosen, argument: Run) -> Run:
    return lambda frame: function(argument(frame))


def _binary(function: Chosen, first: Run, second: Run) -> Run:
    def run(frame: Frame) -> Any:
        try:
            one = first(frame)
        except CelRuntimeError as error:
            raise _still_spent(frame, second, error) from None
        return function(one, second(frame))

    return run


def _binary_known(function: Chosen, first: Run, other: Any) -> Run:
    return lambda frame: function(first(frame), other)


def _framed_known(function: Chosen, first: Run, other: Any) -> Run:
    return lambda frame: function(frame, first(frame), other)


def _ignoring_frame(run: Chosen, count: int) -> Chosen:
    """An implementation that is handed the frame, too; a fixed number of arguments is faster to pass on."""
    if count == 1:
        return lambda _, value: run(value)
    if count == _PAIR:
        return lambda _, one, other: run(one, other)
    return lambda _, *values: run(*values)


def _with_frame(item: Overload) -> Chosen:
    run, work = item.run, item.work
    if item.native is not None:
        return item.native.bound(len(item.parameters))
    taking_frame: Chosen = run if item.metered else _ignoring_frame(run, len(item.parameters))
    if not work:
        return taking_frame

    def charging(frame: Frame, *values: Any) -> Any:
        frame.spend(work)
        return taking_frame(frame, *values)

    return charging


def _charged_unary(chosen: Chosen, argument: Run, extra: Extra) -> Run:
    """As `_charged`, for a single argument."""

    def run(frame: Frame) -> Any:
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

    return run


def _charged_binary(chosen: Chosen, runs: tuple[Run, ...], extra: Extra, costs: tuple[int, ...], *, early: bool) -> Run:
    """As `_charged`, for two arguments."""
    first, second = runs

    def run(frame: Frame) -> Any:
        values: list[Any] = []
        try:
            one = first(frame)
            values = [one]
            other = second(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                _charge_failed(frame, runs, values, extra, costs, early=early)
            raise
        result = None
        try:
            result = chosen(frame, one, other)
        finally:
            frame.cost += extra(frame, (one, other), result)
        return result

    return run


def _charged(
    choose: Callable[[list[Any]], Chosen],
    runs: tuple[Run, ...],
    extra: Extra | None,
    costs: tuple[int, ...],
    *,
    early: bool,
) -> Run:
    """Evaluate arguments, choose the implementation, run it, and charge what depends on values even if it fails."""

    def run(frame: Frame) -> Any:
        values: list[Any] = []
        try:
            for argument in runs:
                values.append(argument(frame))  # noqa: PERF401 - what was evaluated before a failure has to be known
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                _charge_failed(frame, runs, values, extra, costs, early=early)
            raise
        if extra is None:
            return choose(values)(frame, *values)
        result = None
        try:
            result = choose(values)(frame, *values)
        finally:
            frame.cost += extra(frame, tuple(values), result)
        return result

    return run


def _charge_failed(
    frame: Frame, runs: tuple[Run, ...], values: list[Any], extra: Extra | None, costs: tuple[int, ...], *, early: bool
) -> None:
    """Charge a call of which an argument failed: one of two does not keep the other from being evaluated, one of more does.

    `early` calls are those of two arguments that upstream evaluates as it does longer ones.
    """
    failed = len(values)
    if (early or len(runs) > _PAIR) and failed + 1 < len(runs):
        frame.cost -= 1 + sum(costs[failed + 1 :])
        return
    values.append(FAILED)
    if failed + 1 < len(runs):
        values.append(evaluated(frame, runs[-1]))
    if extra is not None:
        frame.cost += extra(frame, tuple(values), FAILED)


def _dispatched(
    overloads: tuple[Overload, ...],
    runs: tuple[Run, ...],
    extra: Extra | None,
    costs: tuple[int, ...],
    *,
    early: bool,
) -> Run:
    remembered: dict[tuple[type, ...], Chosen] = {}

    def choose(values: list[Any]) -> Chosen:
        kinds = tuple(map(type, values))
        found = remembered.get(kinds)
        if found is None:
            found = _find(overloads, values)
            if _CONTAINERS.isdisjoint(kinds):
                remembered[kinds] = found
        return found

    if extra is None and len(runs) == _PAIR and not early:
        return _dispatched_pair(overloads, *runs)
    return _charged(choose, runs, extra, costs, early=early)


def _dispatched_pair(overloads: tuple[Overload, ...], first: Run, second: Run) -> Run:
    remembered: dict[tuple[type, type], Chosen] = {}

    def run(frame: Frame) -> Any:
        try:
            one = first(frame)
        except CelRuntimeError as error:
            raise _still_spent(frame, second, error) from None
        other = second(frame)
        kinds = (type(one), type(other))
        found = remembered.get(kinds)
        if found is None:
            found = _find(overloads, (one, other))
            if _CONTAINERS.isdisjoint(kinds):
                remembered[kinds] = found
        return found(frame, one, other)

    return run


def _find(overloads: tuple[Overload, ...], values: Sequence[Any]) -> Chosen:
    for item in overloads:
        if item.unguarded or all(
            accepts(parameter, value) for parameter, value in zip(item.parameters, values, strict=True)
        ):
            return _with_frame(item)
    raise no_overload(*values)


def _compile_lazy(name: str, target: Code, argument: Code) -> Code:
    run_target, run_argument, cost = target.run, argument.run, argument.cost
    unwrap = name == "orValue"

    def run(frame: Frame) -> Any:
        value = run_target(frame)
        if type(value) is not Optional:
            raise no_overload(value)
        if value.present:
            return value.value if unwrap else value
        frame.cost += cost
        other = run_argument(frame)
        if not unwrap and type(other) is not Optional:
            raise no_overload(other)
        return other

    return Code(run=run, cost=target.cost)


def _charged_pattern(argument: Code) -> Code:
    """A pattern that is computed: what it takes to compile it is charged with each call."""
    evaluate = argument.run

    def run(frame: Frame) -> Any:
        pattern = evaluate(frame)
        if type(pattern) is str:
            charge_pattern(frame, pattern)
        return pattern

    return msgspec.structs.replace(argument, run=run)


def _require_pattern(pattern: str, name: str, source: str, offset: int) -> None:
    try:
        compile_pattern(pattern)
    except CelRuntimeError as error:
        raise CelCompileError(f"invalid {name} argument: {error}", source, offset) from None


def _require_format(node: c.Invoke, template: str, source: str) -> None:
    given = node.arguments[1]
    if not isinstance(given, c.MakeList):
        return
    try:
        check_format(template, [_types_within(item) for item in given.elements])
    except CelRuntimeError as error:
        raise CelCompileError(str(error), source, given.offset) from None


def _types_within(item: c.Checked) -> list[Type]:
    """The type of a part and, of a literal, those of its parts."""
    types = [item.type]
    if isinstance(item, c.MakeList):
        types.extend(kind for element in item.elements for kind in _types_within(element))
    elif isinstance(item, c.MakeMap):
        types.extend(kind for part in (*item.keys, *item.values) for kind in _types_within(part))
    return types


def _compile_membership(operand: Code, values: Code) -> Code | None:
    """`x in [constants]` costs what x costs; in an empty list x is not even evaluated."""
    if not values.value:
        return constant(value=False)
    if not all(type(value) in _MEMBERS for value in values.value):
        return None
    members = frozenset(map(member_key, values.value))
    evaluate = operand.run

    def run(frame: Frame) -> bool:
        value = evaluate(frame)
        if type(value) in _MEMBERS:
            return member_key(value) in members
        if type(value) in UNHASHABLE:
            raise no_overload(value, values.value)
        return False

    return Code(run=run, cost=operand.cost)


def _fold_conversion(node: c.Invoke, arguments: tuple[Code, ...], source: str) -> Code:
    value = arguments[0].value
    frame = Frame(None, 0, ())
    try:
        return constant(_find(_of_arity(node), (value,))(frame, value))
    except CelRuntimeError as error:
        raise CelCompileError(str(error), source, node.offset) from None
