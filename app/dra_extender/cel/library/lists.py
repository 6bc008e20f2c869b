"""Both list libraries (cel-go's version 3, Kubernetes' version 1), sets, and `includes`."""

import operator
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Any, Final

from dra_extender.cel.cost import COMPARISON_WORK, LIST_COST, ROUND_WORK, EvaluationFrame, Extra, elements_traversed
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.equality import contains_element, equal_or_false, first_index
from dra_extender.cel.native.lists import (
    COPY,
    Elements,
    adjacent_pairs,
    concatenated,
    distinct_by_hash,
    number_range,
    ordering_work,
    pieces,
    sorted_indexes,
    types_of,
)
from dra_extender.cel.types.declarations import Implementation, Overload, function, method, overload
from dra_extender.cel.types.types import (
    BOOL,
    COMPARABLE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    UINT,
    list_of,
    variable,
)
from dra_extender.cel.values.integers import MAX_INT, MAX_UINT, MIN_INT, Uint, integer, unsigned
from dra_extender.cel.values.times import Duration, Timestamp, duration_of
from dra_extender.cel.values.values import LISTS, NUMBERS, no_overload, size_of

_T: Final = variable("T")
_LIST: Final = list_of(_T)
_ORDERED: Final = frozenset({bool, str, bytes, Duration, Timestamp}) | NUMBERS
_PLAIN: Final = ({int}, {str}, {bytes}, {bool})
_SUMMED_PIECE: Final = 100
_MAX_INCLUDED: Final = 48
_SORT_WORK: Final = 50
"""The work of sorting without elements."""


def _comparable(left: Any, right: Any) -> bool:
    """Return whether two values have an order; raise if a type has none.  As in upstream, callers skip mixed pairs."""
    left_kind, right_kind = type(left), type(right)
    if left_kind not in _ORDERED or right_kind not in _ORDERED:
        raise no_overload(left, right)
    return left_kind is right_kind or (left_kind in NUMBERS and right_kind in NUMBERS)


def _slice(frame: EvaluationFrame, values: Elements, start: int, end: int) -> Elements:
    if start < 0 or end < start or end > len(values):
        raise CelRuntimeError(f"cannot slice({start}, {end}) a list of length {len(values)}")
    frame.require_list(end - start)
    part: list[Any] = []
    for first, after in pieces(end - start):
        part += COPY.call(frame, values, start + first, start + after)
    return part


def _flatten(frame: EvaluationFrame, values: Elements, depth: int = 1) -> list[Any]:
    if type(values) not in LISTS or type(depth) is not int:
        raise no_overload(values, depth)
    if depth < 0:
        raise CelRuntimeError("level must be non-negative")
    flat: list[Any] = []
    frame.build_list(len(values))
    frame.spend(COMPARISON_WORK)
    for value in values:
        frame.spend(ROUND_WORK)
        if type(value) in LISTS and depth:
            flat.extend(_flatten(frame, value, depth - 1))
        else:
            flat.append(value)
    frame.build_list(len(flat))
    return flat


def _range(frame: EvaluationFrame, count: int) -> list[int]:
    if count < 0:
        raise CelRuntimeError(f"lists.range: size must be non-negative, got {count}")
    frame.afford(count)
    frame.require_list(count)
    return number_range(frame, count)


def _reverse(frame: EvaluationFrame, values: Elements) -> list[Any]:
    reversed_values = concatenated(frame, values)
    reversed_values.reverse()
    return reversed_values


def _distinct(frame: EvaluationFrame, values: Elements) -> list[Any]:
    frame.spend(len(values) * len(values))
    if types_of(frame, values) in _PLAIN:
        return distinct_by_hash(frame, values)
    unique: list[Any] = []
    for value in values:
        for member in unique:
            frame.spend(2 * ROUND_WORK)
            if equal_or_false(frame, value, member):
                break
        else:
            unique.append(value)
    return unique


def _sort(frame: EvaluationFrame, values: Elements) -> Elements:
    if type(values) not in LISTS:
        raise no_overload(values)
    return sort_by_keys(frame, values, values)


def sort_by_keys(frame: EvaluationFrame, values: Elements, keys: Elements) -> Elements:
    """Sort a list by the keys of its elements, which must be of one type that has an order."""
    if not keys:
        return values
    kind = type(keys[0])
    if kind not in _ORDERED:
        raise CelRuntimeError("list elements must be comparable")
    if types_of(frame, keys) != {kind}:
        raise CelRuntimeError("list elements must have the same type")
    frame.spend(_SORT_WORK)
    frame.build_list(len(keys))
    return [values[place] for place in sorted_indexes(frame, keys)]


def _is_sorted(frame: EvaluationFrame, values: Elements) -> bool:
    return not any(_comparable(left, right) and left > right for left, right in adjacent_pairs(frame, values))


def _extreme(name: str, better: Callable[[Any, Any], bool]) -> Callable[[EvaluationFrame, Elements], Any]:
    def extreme(frame: EvaluationFrame, values: Elements) -> Any:
        if not values:
            raise CelRuntimeError(f"{name} called on empty list")
        best = values[0]
        for value in islice(values, 1, None):
            frame.spend(ordering_work(best, value))
            if _comparable(best, value) and better(value, best):
                best = value
        return best

    return extreme


def _sum(
    kind: type, smallest: float, largest: float, checked: Callable[[Any], Any]
) -> Callable[[EvaluationFrame, Elements], Any]:
    """Add numbers of one type; `checked` raises an error for a sum below `smallest` or above `largest`, or accepts it."""

    def add(total: Any, piece: Elements) -> Any:
        for value in piece:
            if type(value) is not kind:
                raise no_overload(kind(total), value)
            total += value
            if total > largest or total < smallest:
                checked(total)
        return total

    def total_of(frame: EvaluationFrame, values: Elements) -> Any:
        total: Any = kind(0)
        for start in range(0, len(values), _SUMMED_PIECE):
            piece = values if len(values) <= _SUMMED_PIECE else values[start : start + _SUMMED_PIECE]
            frame.spend(ROUND_WORK * len(piece))
            total = add(total, piece)
        return kind(total)

    return total_of


def _sum_durations(frame: EvaluationFrame, values: Elements) -> Duration:
    total = Duration(0)
    for value in values:
        frame.spend(2 * ROUND_WORK)
        if type(value) is not Duration:
            raise no_overload(total, value)
        total = duration_of(total.nanos + value.nanos)
    return total


def _first_index(frame: EvaluationFrame, values: Elements, element: Any) -> int:
    return first_index(frame, element, values, mirrored=True)


def _last_index(frame: EvaluationFrame, values: Elements, element: Any) -> int:
    place = first_index(frame, element, _reverse(frame, values), mirrored=True)
    return place if place < 0 else len(values) - 1 - place


def _includes(frame: EvaluationFrame, target: Any, element: Any) -> bool:
    if type(target) in LISTS:
        return first_index(frame, element, target, mirrored=True) >= 0
    return equal_or_false(frame, target, element)


def _includes_capped(frame: EvaluationFrame, target: Any, element: Any) -> bool:
    """Search as many elements as an attribute may have values, then fail."""
    if type(target) not in LISTS or len(target) <= _MAX_INCLUDED:
        return _includes(frame, target, element)
    if _includes(frame, target[:_MAX_INCLUDED], element):
        return True
    raise CelRuntimeError(f"'includes' function cannot be applied to lists longer than {_MAX_INCLUDED} values")


def _contains_all(frame: EvaluationFrame, values: Elements, elements: Elements) -> bool:
    return all(contains_element(frame, value, values) for value in elements)


def _equivalent(frame: EvaluationFrame, left: Elements, right: Elements) -> bool:
    return _contains_all(frame, left, right) and _contains_all(frame, right, left)


def _intersects(frame: EvaluationFrame, left: Elements, right: Elements) -> bool:
    return any(contains_element(frame, value, right) for value in left)


def _result_size(_: EvaluationFrame, __: tuple[Any, ...], result: Any) -> int:
    return size_of(result) + LIST_COST


def _input_by_depth(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    depth = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    return min(size_of(arguments[0]) * (depth if depth >= 0 else 1), MAX_INT) + LIST_COST


def self_compared(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost above one unit of comparing each element of the last argument with each other."""
    values = arguments[-1]
    if type(values) not in LISTS:
        return 0
    square = len(values) * len(values)
    texts = bool(values) and isinstance(values[0], str | bytes)
    return (square * 21 // 10 if texts else square * 2) + LIST_COST


def _product(factor: int) -> Extra:
    return lambda _, arguments, __: size_of(arguments[0]) * size_of(arguments[1]) * factor


_PAIR: Final = (_LIST, _LIST)
_DYNS: Final = list_of(DYN)
_LISTS: Final = tuple(map(list_of, COMPARABLE))
"""Shared objects: the type check compares equal objects by identity, which costs no step."""


def _per_list(implementation: Implementation, *, elements: bool = True) -> Iterator[Overload]:
    """Declare a method of lists of each comparable type, whose result is an element or else a bool."""
    for kind, element in zip(_LISTS, COMPARABLE, strict=True):
        yield method((kind,), element if elements else BOOL, implementation, metered=True)


FUNCTIONS: Final = (
    function("sets.contains", overload(_PAIR, BOOL, _contains_all, metered=True, extra=_product(1))),
    function("sets.equivalent", overload(_PAIR, BOOL, _equivalent, metered=True, extra=_product(2))),
    function("sets.intersects", overload(_PAIR, BOOL, _intersects, metered=True, extra=_product(1))),
    function(
        "sort",
        *(method((kind,), kind, _sort, metered=True, unguarded=True, extra=self_compared) for kind in _LISTS),
    ),
    function("isSorted", *_per_list(_is_sorted, elements=False), extra=elements_traversed),
    function(
        "sum",
        method((list_of(INT),), INT, _sum(int, MIN_INT, MAX_INT, integer), metered=True),
        method((list_of(UINT),), UINT, _sum(Uint, 0, MAX_UINT, unsigned), metered=True),
        method((list_of(DOUBLE),), DOUBLE, _sum(float, -inf, inf, float), metered=True),
        method((list_of(DURATION),), DURATION, _sum_durations, metered=True),
        extra=elements_traversed,
    ),
    function("max", *_per_list(_extreme("max", operator.gt)), extra=elements_traversed),
    function("min", *_per_list(_extreme("min", operator.lt)), extra=elements_traversed),
    function("slice", method((_LIST, INT, INT), _LIST, _slice, metered=True, extra=_result_size)),
    function(
        "flatten",
        method((list_of(_LIST),), _LIST, _flatten, metered=True, unguarded=True, extra=_input_by_depth),
        method((_DYNS, INT), _DYNS, _flatten, metered=True, unguarded=True, extra=_input_by_depth),
    ),
    function("lists.range", overload((INT,), list_of(INT), _range, metered=True, extra=_result_size)),
    function("reverse", method((_LIST,), _LIST, _reverse, metered=True, extra=_result_size)),
    function("distinct", method((_LIST,), _LIST, _distinct, metered=True, extra=self_compared)),
    function("indexOf", method((_LIST, _T), INT, _first_index, metered=True), extra=elements_traversed),
    function("lastIndexOf", method((_LIST, _T), INT, _last_index, metered=True), extra=elements_traversed),
)

INCLUDES: Final = (function("includes", method((DYN, DYN), BOOL, _includes, metered=True), extra=elements_traversed),)
"""`includes` as of 1.37."""

CAPPED_INCLUDES: Final = (function("includes", method((DYN, DYN), BOOL, _includes_capped, metered=True)),)
"""`includes` of 1.36, which belongs to DRA and costs one unit."""
