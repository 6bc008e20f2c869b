"""Operators, the functions every CEL environment has, and optional values.

The selections `.?` and `[?]` belong to the compiler.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.cost import (
    EvaluationFrame,
    both_traversed,
    second_size,
    second_traversed,
    shorter_traversed,
    substring_searched,
)
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.library.conversions import CONVERSION_FUNCTIONS
from dra_extender.cel.library.time import ARITHMETIC
from dra_extender.cel.native.equality import charge_key, contains_element
from dra_extender.cel.native.lists import concatenated
from dra_extender.cel.native.strings import CONTAINS, ENDS, ORDERS, STARTS
from dra_extender.cel.syntax.ast import ORDERINGS
from dra_extender.cel.types.declarations import Function, Overload, function, method, overload, unimplemented
from dra_extender.cel.types.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    list_of,
    map_of,
    optional_of,
    variable,
)
from dra_extender.cel.values.integers import MAX_INT, MIN_INT, integer, unsigned
from dra_extender.cel.values.times import Duration, Timestamp, parse_timestamp
from dra_extender.cel.values.values import CONTAINERS, KEYS, NONE, NUMBERS, UNHASHABLE, Optional, map_key, type_name

_A: Final = variable("A")
_B: Final = variable("B")
_LIST: Final = list_of(_A)
_MAP: Final = map_of(_A, _B)
_ARITHMETIC_WORK: Final = 4
_EMPTIABLE: Final = CONTAINERS | NUMBERS | {bool, str, bytes}


def _add(left: int, right: int) -> int:
    value = left + right
    return value if MIN_INT <= value <= MAX_INT else integer(value)


def _subtract(left: int, right: int) -> int:
    value = left - right
    return value if MIN_INT <= value <= MAX_INT else integer(value)


def _multiply(left: int, right: int) -> int:
    value = left * right
    return value if MIN_INT <= value <= MAX_INT else integer(value)


def _divide(dividend: int, divisor: int) -> int:
    if divisor == 0:
        raise CelRuntimeError("division by zero")
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _remainder(dividend: int, divisor: int) -> int:
    if divisor == 0:
        raise CelRuntimeError("modulus by zero")
    if dividend == MIN_INT and divisor == -1:
        raise CelRuntimeError("integer overflow")
    remainder = abs(dividend) % abs(divisor)
    return -remainder if dividend < 0 else remainder


def _divide_double(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _add_text(frame: EvaluationFrame, left: str, right: str) -> str:
    frame.build_text(len(left) + len(right), plain=left.isascii() and right.isascii())
    return left + right


def _add_bytes(frame: EvaluationFrame, left: bytes, right: bytes) -> bytes:
    frame.build_text(len(left) + len(right))
    return left + right


def _in_map(frame: EvaluationFrame, key: Any, values: dict[Any, Any]) -> bool:
    kind = type(key)
    if kind in UNHASHABLE and values:
        raise CelRuntimeError(f"unsupported map key type: {type_name(key)}")
    if not (kind is bool or kind is float or kind in KEYS):
        return False
    charge_key(frame, map_key(key), len(values))
    return map_key(key) in values or (kind is float and key.is_integer() and int(key) in values)


def _arithmetic() -> tuple[Function, ...]:
    """Declare the arithmetic operators. An operand of open type, such as [][0], is taken for that of the first overload."""

    def integral(operation: Callable[[Any, Any], Any], signed: Callable[[int, int], int]) -> tuple[Overload, Overload]:
        return (
            overload((INT, INT), INT, signed, work=_ARITHMETIC_WORK),
            overload((UINT, UINT), UINT, lambda left, right: unsigned(operation(int(left), int(right)))),
        )

    def double(operation: Callable[[float, float], float]) -> Overload:
        return overload((DOUBLE, DOUBLE), DOUBLE, operation, work=_ARITHMETIC_WORK)

    add_int, add_uint = integral(lambda left, right: left + right, _add)
    subtract_int, subtract_uint = integral(lambda left, right: left - right, _subtract)
    spans, *moments = ARITHMETIC["_-_"]
    subtract_double = double(lambda left, right: left - right)
    return (
        function(
            "_+_",
            overload((BYTES, BYTES), BYTES, _add_bytes, metered=True, extra=both_traversed),
            double(lambda left, right: left + right),
            *ARITHMETIC["_+_"],
            add_int,
            overload((_LIST, _LIST), _LIST, concatenated, metered=True),
            overload((STRING, STRING), STRING, _add_text, metered=True, extra=both_traversed),
            add_uint,
        ),
        function("_-_", subtract_double, spans, subtract_int, *moments, subtract_uint),
        function(
            "_*_", double(lambda left, right: left * right), *integral(lambda left, right: left * right, _multiply)
        ),
        function("_/_", double(_divide_double), *integral(_divide, lambda left, right: integer(_divide(left, right)))),
        function("_%_", *integral(_remainder, _remainder)),
        function(
            "-_",
            overload((DOUBLE,), DOUBLE, lambda value: -value, work=_ARITHMETIC_WORK),
            overload((INT,), INT, lambda value: integer(-value), work=_ARITHMETIC_WORK),
        ),
        function("!_", overload((BOOL,), BOOL, operator.not_)),
    )


def _doubles_compared(is_ordered: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison with a double on one side at least: it converts both sides to double, even if that loses precision."""

    def compare(left_value: Any, right_value: Any) -> bool:
        left, right = float(left_value), float(right_value)
        if math.isnan(left) or math.isnan(right):
            raise CelRuntimeError("NaN values cannot be ordered")
        return is_ordered(left, right)

    return compare


def _ordering() -> tuple[Function, ...]:
    orders = ((INT, (INT, DOUBLE, UINT)), (UINT, (UINT, DOUBLE, INT)), (DOUBLE, (DOUBLE, INT, UINT)))
    pairs = [(kind, other_kind) for kind, kinds in orders for other_kind in kinds]
    return tuple(
        function(
            name,
            overload((BOOL, BOOL), BOOL, is_ordered),
            *(overload(pair, BOOL, _doubles_compared(is_ordered) if DOUBLE in pair else is_ordered) for pair in pairs),
            overload((STRING, STRING), BOOL, ORDERS[name], extra=shorter_traversed),
            overload((BYTES, BYTES), BOOL, ORDERS[name], extra=shorter_traversed),
            overload((TIMESTAMP, TIMESTAMP), BOOL, is_ordered),
            overload((DURATION, DURATION), BOOL, is_ordered),
        )
        for name, is_ordered in ORDERINGS.items()
    )


_STRUCTURAL: Final = (
    function("_?_:_", overload((BOOL, _A, _A), _A, unimplemented)),
    function("_==_", overload((_A, _A), BOOL, unimplemented)),
    function("_!=_", overload((_A, _A), BOOL, unimplemented)),
    function(
        "_[_]",
        overload((_LIST, INT), _A, unimplemented),
        overload((_MAP, _A), _B, unimplemented),
        overload((optional_of(_LIST), INT), optional_of(_A), unimplemented),
        overload((optional_of(_MAP), _A), optional_of(_B), unimplemented),
    ),
    function(
        "_[?_]",
        overload((_LIST, INT), optional_of(_A), unimplemented),
        overload((optional_of(_LIST), INT), optional_of(_A), unimplemented),
        overload((_MAP, _A), optional_of(_B), unimplemented),
        overload((optional_of(_MAP), _A), optional_of(_B), unimplemented),
    ),
    function(
        "@in",
        overload((_A, _LIST), BOOL, contains_element, metered=True, extra=second_size),
        overload((_A, _MAP), BOOL, _in_map, metered=True),
    ),
)

_SIZED: Final = (BYTES, _LIST, _MAP, STRING)
_TEXTS: Final = (
    function(
        "size", *(overload((kind,), INT, len) for kind in _SIZED), *(method((kind,), INT, len) for kind in _SIZED)
    ),
    function("contains", method((STRING, STRING), BOOL, CONTAINS, extra=substring_searched)),
    function("endsWith", method((STRING, STRING), BOOL, ENDS, extra=second_traversed)),
    function("startsWith", method((STRING, STRING), BOOL, STARTS, extra=second_traversed)),
)

_ZERO_TIMES: Final = (Duration(0), parse_timestamp("0001-01-01T00:00:00Z"))


def _is_empty(value: Any) -> bool:
    """Return whether a value is the zero of its type, for optional.ofNonZeroValue."""
    kind = type(value)
    if kind in _EMPTIABLE:
        return not value
    if kind is Duration or kind is Timestamp:
        return value in _ZERO_TIMES
    return value is None


def _value(item: Optional) -> Any:
    if not item.present:
        raise CelRuntimeError("optional.none() dereference")
    return item.value


def _unwrap(frame: EvaluationFrame, values: list[Any]) -> list[Any]:
    unwrapped: list[Any] = []
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        frame.spend(_ELEMENT_WORK * len(piece))
        if not all(isinstance(item, Optional) for item in piece):
            raise CelRuntimeError("unwrap: an element is not optional")
        unwrapped.extend(item.value for item in piece if item.present)
    return unwrapped


def _some(value: Any) -> Optional:
    return Optional(present=True, value=value)


_PIECE: Final = 64
"""Elements that are unwrapped between two checks of the limits."""
_ELEMENT_WORK: Final = 8
_OPTIONAL: Final = optional_of(_A)
_OPTIONALS: Final = list_of(_OPTIONAL)

LAZY: Final = frozenset({"or", "orValue"})
"""Functions that evaluate their argument only if their target is empty, and cost nothing."""

_OPTIONAL_FUNCTIONS: Final = (
    function("optional.of", overload((_A,), _OPTIONAL, _some)),
    function(
        "optional.ofNonZeroValue", overload((_A,), _OPTIONAL, lambda value: NONE if _is_empty(value) else _some(value))
    ),
    function("optional.none", overload((), _OPTIONAL, lambda: NONE)),
    function("value", method((_OPTIONAL,), _A, _value)),
    function("hasValue", method((_OPTIONAL,), BOOL, lambda item: item.present)),
    function("or", method((_OPTIONAL, _OPTIONAL), _OPTIONAL, unimplemented)),
    function("orValue", method((_OPTIONAL, _A), _A, unimplemented)),
    function("first", method((_LIST,), _OPTIONAL, lambda values: _some(values[0]) if values else NONE)),
    function("last", method((_LIST,), _OPTIONAL, lambda values: _some(values[-1]) if values else NONE)),
    function("optional.unwrap", overload((_OPTIONALS,), _LIST, _unwrap, metered=True)),
    function("unwrapOpt", method((_OPTIONALS,), _LIST, _unwrap, metered=True)),
)

FUNCTIONS: Final = (
    *_arithmetic(),
    *_ordering(),
    *_STRUCTURAL,
    *CONVERSION_FUNCTIONS,
    *_TEXTS,
    *_OPTIONAL_FUNCTIONS,
)
