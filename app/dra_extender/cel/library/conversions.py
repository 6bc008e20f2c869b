"""Conversions between the types of numbers, texts and bytes."""

import math
import re
from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, first_traversed
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.native.strings import DECODE, ENCODE
from dra_extender.cel.types.declarations import function, overload
from dra_extender.cel.types.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, type_of, variable
from dra_extender.cel.values.go_format import format_double
from dra_extender.cel.values.integers import MAX_INT, MIN_INT, Uint, integer, unsigned
from dra_extender.cel.values.values import TypeValue, type_name

_A: Final = variable("A")
_MAX_DIGITS: Final = 400
_NUMBER_WORK: Final = 100
"""The work of reading or writing a double; one that is read has at most `_MAX_DIGITS` characters."""


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
_SPECIAL_DOUBLES: Final = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "nan"})


def _text_to_double(text: str) -> float:
    plain = len(text) <= _MAX_DIGITS and text.isascii() and text.strip() == text
    try:
        value = (
            (float.fromhex(text.replace("_", "")) if _HEXADECIMAL.fullmatch(text) else float(text)) if plain else None
        )
    except (ValueError, OverflowError):
        value = None
    if value is None or (math.isinf(value) and text.lower() not in _SPECIAL_DOUBLES):
        raise CelRuntimeError("type conversion error from 'string' to 'double'")
    return value


_BOOL_TEXTS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _text_to_bool(text: str) -> bool:
    value = _BOOL_TEXTS.get(text[:6])
    if value is None:
        raise CelRuntimeError("type conversion error from 'string' to 'bool'")
    return value


def decode(frame: EvaluationFrame, value: bytes) -> str:
    frame.build_text(len(value))
    try:
        return str(DECODE.call(frame, value))
    except UnicodeDecodeError:
        raise CelRuntimeError("invalid UTF-8 in bytes, cannot convert to string") from None


def _to_bytes(frame: EvaluationFrame, text: str) -> bytes:
    frame.build_text(len(text), plain=text.isascii())
    data: bytes = ENCODE.call(frame, text)
    return data


def _same(value: Any) -> Any:
    return value


CONVERSION_FUNCTIONS: Final = (
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
        overload((STRING,), DOUBLE, NativeFunction("double", _text_to_double, lambda _: _NUMBER_WORK)),
        overload((UINT,), DOUBLE, float),
    ),
    function("bool", overload((BOOL,), BOOL, _same), overload((STRING,), BOOL, _text_to_bool)),
    function(
        "string",
        overload((STRING,), STRING, _same),
        overload((BOOL,), STRING, lambda value: "true" if value else "false"),
        overload((BYTES,), STRING, decode, metered=True, extra=first_traversed),
        overload((DOUBLE,), STRING, NativeFunction("string", format_double, lambda _: _NUMBER_WORK)),
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

CONVERSIONS: Final = frozenset({"duration", "timestamp", *(item.name for item in CONVERSION_FUNCTIONS)})
"""Functions that are evaluated at compile time if their argument is constant: `int('x')` is a compile error."""
