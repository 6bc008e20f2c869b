"""Operators, conversions and the functions every CEL environment has."""

import math
import re
from collections.abc import Callable
from typing import Any, Final

from app.cel.cost import (
    Frame,
    both_traversed,
    first_traversed,
    second_size,
    second_traversed,
    shorter_traversed,
    substring_searched,
)
from app.cel.declarations import Function, Overload, function, method, overload
from app.cel.equality import contains_element
from app.cel.errors import CelRuntimeError
from app.cel.library_time import ARITHMETIC, NEGATION
from app.cel.native_lists import copied
from app.cel.native_maps import charge_key
from app.cel.native_texts import CONTAINS, DECODE, ENCODE, ENDS, ORDERS, STARTS
from app.cel.times import Duration, Timestamp, parse_timestamp
from app.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
    variable,
)
from app.cel.values import KEYS, MAX_INT, MAX_UINT, MIN_INT, UNHASHABLE, TypeValue, Uint, map_key, type_name

_A: Final = variable("A")
_B: Final = variable("B")
_LIST: Final = list_of(_A)
_MAP: Final = map_of(_A, _B)
_MAX_DIGITS: Final = 400
_NUMBER_WORK: Final = 100
"""What a double counts for that is read or shown; one that is read has at most `_MAX_DIGITS` characters."""


def integer(value: int) -> int:
    """The value, if it is an int64.

    Raises:
        CelRuntimeError: It is not.
    """
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelRuntimeError("integer overflow")


def unsigned(value: int) -> Uint:
    """The value, if it is a uint64.

    Raises:
        CelRuntimeError: It is not.
    """
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise CelRuntimeError("unsigned integer overflow")


def _add(one: int, other: int) -> int:
    value = one + other
    return value if MIN_INT <= value <= MAX_INT else integer(value)


def _subtract(one: int, other: int) -> int:
    value = one - other
    return value if MIN_INT <= value <= MAX_INT else integer(value)


def _multiply(one: int, other: int) -> int:
    value = one * other
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
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _divide_double(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _add_text(frame: Frame, one: str, other: str) -> str:
    frame.build_text(len(one) + len(other), plain=one.isascii() and other.isascii())
    return one + other


def _add_bytes(frame: Frame, one: bytes, other: bytes) -> bytes:
    frame.build_text(len(one) + len(other))
    return one + other


def _add_lists(frame: Frame, one: list[Any], other: list[Any]) -> list[Any]:
    return copied(frame, one, other)


def _in_map(frame: Frame, key: Any, values: dict[Any, Any]) -> bool:
    kind = type(key)
    if kind in UNHASHABLE and values:
        raise CelRuntimeError(f"unsupported map key type: {type_name(key)}")
    if not (kind is bool or kind is float or kind in KEYS):
        return False
    charge_key(frame, map_key(key), len(values))
    return map_key(key) in values or (kind is float and key.is_integer() and int(key) in values)


def _arithmetic() -> tuple[Function, ...]:
    """The order of overloads is upstream's: it decides what an operand of open type, such as [][0], is taken for."""

    def whole(run: Callable[[Any, Any], Any], signed: Callable[[int, int], int]) -> tuple[Overload, Overload]:
        return (
            overload((INT, INT), INT, signed),
            overload((UINT, UINT), UINT, lambda one, other: unsigned(run(int(one), int(other)))),
        )

    def double(run: Callable[[float, float], float]) -> Overload:
        return overload((DOUBLE, DOUBLE), DOUBLE, run)

    add_int, add_uint = whole(lambda one, other: one + other, _add)
    return (
        function(
            "_+_",
            overload((BYTES, BYTES), BYTES, _add_bytes, metered=True, extra=both_traversed),
            double(lambda one, other: one + other),
            *ARITHMETIC["_+_"],
            add_int,
            overload((_LIST, _LIST), _LIST, _add_lists, metered=True),
            overload((STRING, STRING), STRING, _add_text, metered=True, extra=both_traversed),
            add_uint,
        ),
        _subtraction(double(lambda one, other: one - other), *whole(lambda one, other: one - other, _subtract)),
        function("_*_", double(lambda one, other: one * other), *whole(lambda one, other: one * other, _multiply)),
        function("_/_", double(_divide_double), *whole(_divide, lambda one, other: integer(_divide(one, other)))),
        function("_%_", *whole(_remainder, _remainder)),
        function(
            "-_",
            overload((DOUBLE,), DOUBLE, lambda value: -value),
            overload((INT,), INT, lambda value: integer(-value)),
            NEGATION,
        ),
        function("!_", overload((BOOL,), BOOL, lambda value: not value)),
    )


def _subtraction(double: Overload, whole: Overload, unsigned_whole: Overload) -> Function:
    spans, *moments = ARITHMETIC["_-_"]
    return function("_-_", double, spans, whole, *moments, unsigned_whole)


def _doubles_compared(run: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare with at least one double: both sides are taken for doubles, whatever precision that loses."""

    def compare(one: Any, other: Any) -> bool:
        left, right = float(one), float(other)
        if math.isnan(left) or math.isnan(right):
            raise CelRuntimeError("NaN values cannot be ordered")
        return run(left, right)

    return compare


def _ordering() -> tuple[Function, ...]:
    pairs = [(one, other) for one in (INT, UINT, DOUBLE) for other in (INT, UINT, DOUBLE)]
    operators: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": lambda one, other: one < other,
        "_<=_": lambda one, other: one <= other,
        "_>_": lambda one, other: one > other,
        "_>=_": lambda one, other: one >= other,
    }
    return tuple(
        function(
            name,
            overload((BOOL, BOOL), BOOL, run),
            *(overload(pair, BOOL, _doubles_compared(run) if DOUBLE in pair else run) for pair in pairs),
            overload((STRING, STRING), BOOL, ORDERS[name], extra=shorter_traversed),
            overload((BYTES, BYTES), BOOL, ORDERS[name], extra=shorter_traversed),
        )
        for name, run in operators.items()
    )


def _unused(*_: Any) -> Any:
    """Operators that the compiler translates itself need their signatures only."""
    raise CelRuntimeError("no such overload")


def _structural() -> tuple[Function, ...]:
    return (
        function("_?_:_", overload((BOOL, _A, _A), _A, _unused)),
        function("_==_", overload((_A, _A), BOOL, _unused)),
        function("_!=_", overload((_A, _A), BOOL, _unused)),
        function(
            "_[_]",
            overload((_LIST, INT), _A, _unused),
            overload((_MAP, _A), _B, _unused),
            overload((optional_of(_LIST), INT), optional_of(_A), _unused),
            overload((optional_of(_MAP), _A), optional_of(_B), _unused),
        ),
        function(
            "_[?_]",
            overload((_LIST, INT), optional_of(_A), _unused),
            overload((optional_of(_LIST), INT), optional_of(_A), _unused),
            overload((_MAP, _A), optional_of(_B), _unused),
            overload((optional_of(_MAP), _A), optional_of(_B), _unused),
        ),
        function(
            "@in",
            overload((_A, _LIST), BOOL, contains_element, metered=True, extra=second_size),
            overload((_A, _MAP), BOOL, _in_map, metered=True),
        ),
    )


def _text_to_number(text: str, target: str) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} and len(text) <= _MAX_DIGITS else text
    if not (len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit()):
        raise CelRuntimeError(f"type conversion error from 'string' to '{target}'")
    return int(text)


def _to_uint_text(text: str) -> Uint:
    if text[:1] in {"+", "-"}:
        raise CelRuntimeError("type conversion error from 'string' to 'uint'")
    return unsigned(_text_to_number(text, "uint"))


def _truncated(value: float) -> int:
    if not math.isfinite(value) or abs(value) >= 2.0**64:
        raise CelRuntimeError("integer overflow")
    return int(value)


def _double_to_int(value: float) -> int:
    number = _truncated(value)
    if not MIN_INT < number < MAX_INT:
        raise CelRuntimeError("integer overflow")
    return number


def _double_to_uint(value: float) -> Uint:
    if value < 0:
        raise CelRuntimeError("unsigned integer overflow")
    return unsigned(_truncated(value))


_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?=_?[0-9a-fA-F]|\.[0-9a-fA-F])(?:_?[0-9a-fA-F])*(?:\.(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?)?[pP][+-]?[0-9]+(?:_[0-9]+)*",
)
_DOUBLE_WORDS: Final = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "nan"})


def _text_to_double(text: str) -> float:
    plain = len(text) <= _MAX_DIGITS and text.isascii() and text.strip() == text
    try:
        value = (
            (float.fromhex(text.replace("_", "")) if _HEXADECIMAL.fullmatch(text) else float(text)) if plain else None
        )
    except (ValueError, OverflowError):
        value = None
    if value is None or (math.isinf(value) and text.lower() not in _DOUBLE_WORDS):
        raise CelRuntimeError("type conversion error from 'string' to 'double'")
    return value


_TRUE_WORDS: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_LONGEST_WORD: Final = 6
_FALSE_WORDS: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _text_to_bool(text: str) -> bool:
    word = text[:_LONGEST_WORD]
    if word in _TRUE_WORDS:
        return True
    if word in _FALSE_WORDS:
        return False
    raise CelRuntimeError("type conversion error from 'string' to 'bool'")


def double_text(value: float) -> str:
    """Spell a double as Go does by default: shortest digits, an exponent outside of 1e-4 to 1e6."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, rest = ("-", repr(-value)) if math.copysign(1.0, value) < 0 else ("", repr(value))
    mantissa, _, exponent = rest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    leading = len(whole + fraction) - len(digits)
    scale = len(whole) - leading - 1 + int(exponent or 0)
    digits = digits.rstrip("0")
    return sign + _spell(digits, scale)


def _spell(digits: str, scale: int) -> str:
    if scale < -4 or scale >= 6:  # noqa: PLR2004 - the two thresholds of the docstring above
        point = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
        return f"{point}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    if scale < 0:
        return f"0.{'0' * (-scale - 1)}{digits}"
    if len(digits) <= scale + 1:
        return digits + "0" * (scale + 1 - len(digits))
    return f"{digits[: scale + 1]}.{digits[scale + 1 :]}"


def decoded(frame: Frame, value: bytes) -> str:
    """The text that bytes spell in UTF-8.

    Raises:
        CelRuntimeError: They spell none.
    """
    frame.build_text(len(value))
    try:
        return str(DECODE(frame, value))
    except UnicodeDecodeError:
        raise CelRuntimeError("invalid UTF-8 in bytes, cannot convert to string") from None


def _to_bytes(frame: Frame, text: str) -> bytes:
    frame.build_text(len(text), plain=text.isascii())
    made: bytes = ENCODE(frame, text)
    return made


def _same(value: Any) -> Any:
    return value


def _conversions() -> tuple[Function, ...]:
    return (
        function(
            "int",
            overload((INT,), INT, _same),
            overload((DOUBLE,), INT, _double_to_int),
            overload((STRING,), INT, lambda text: integer(_text_to_number(text, "int"))),
            overload((UINT,), INT, lambda value: integer(int(value))),
        ),
        function(
            "uint",
            overload((UINT,), UINT, _same),
            overload((DOUBLE,), UINT, _double_to_uint),
            overload((INT,), UINT, unsigned),
            overload((STRING,), UINT, _to_uint_text),
        ),
        function(
            "double",
            overload((DOUBLE,), DOUBLE, _same),
            overload((INT,), DOUBLE, float),
            overload((STRING,), DOUBLE, _text_to_double, work=_NUMBER_WORK),
            overload((UINT,), DOUBLE, float),
        ),
        function("bool", overload((BOOL,), BOOL, _same), overload((STRING,), BOOL, _text_to_bool)),
        function(
            "string",
            overload((STRING,), STRING, _same),
            overload((BOOL,), STRING, lambda value: "true" if value else "false"),
            overload((BYTES,), STRING, decoded, metered=True, extra=first_traversed),
            overload((DOUBLE,), STRING, double_text, work=_NUMBER_WORK),
            overload((INT,), STRING, str),
            overload((UINT,), STRING, str),
        ),
        function(
            "bytes",
            overload((BYTES,), BYTES, _same),
            overload((STRING,), BYTES, _to_bytes, metered=True, extra=first_traversed),
        ),
        function("dyn", overload((_A,), DYN, _same)),
        function("type", overload((_A,), type_of(_A), lambda value: TypeValue(type_name(value)))),
    )


def _texts() -> tuple[Function, ...]:
    sized: tuple[Type, ...] = (BYTES, _LIST, _MAP, STRING)
    return (
        function(
            "size", *(overload((kind,), INT, len) for kind in sized), *(method((kind,), INT, len) for kind in sized)
        ),
        function(
            "contains",
            method((STRING, STRING), BOOL, CONTAINS, extra=substring_searched),
        ),
        function("endsWith", method((STRING, STRING), BOOL, ENDS, extra=second_traversed)),
        function("startsWith", method((STRING, STRING), BOOL, STARTS, extra=second_traversed)),
    )


CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"},
)
"""Functions that are evaluated at compile time when their argument is constant, so that `int('x')` is a compile error."""

FUNCTIONS: Final = (*_arithmetic(), *_ordering(), *_structural(), *_conversions(), *_texts())


_ZERO_TIMES: Final = (Duration(0), parse_timestamp("0001-01-01T00:00:00Z"))


def empty_value(value: Any) -> bool:
    """Whether a value is the zero of its type, for optional.ofNonZeroValue."""
    if isinstance(value, str | bytes | list | tuple | dict | int | float):
        return not value
    if isinstance(value, Duration | Timestamp):
        return value in _ZERO_TIMES
    return value is None
