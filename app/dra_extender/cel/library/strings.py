"""The strings library, version 2, and the functions that take regular expressions.

A constant pattern is compiled with the expression.
"""

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.cost import (
    PIECE,
    EvaluationFrame,
    Extra,
    elements_traversed,
    first_traversed,
    first_traversed_twice,
    pattern_searched,
    result_traversed_twice,
)
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.library.string_format import format_text
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.native.patterns import find_all, search
from dra_extender.cel.native.strings import (
    CHARACTERS,
    COUNT,
    ENCODE,
    FIND,
    JOIN,
    LOWER,
    LSTRIP,
    REPLACE,
    RFIND,
    RSTRIP,
    SLICE,
    SPLIT,
    UPPER,
    decode_with_surrogates,
    quote_in_pieces,
)
from dra_extender.cel.types.declarations import Function, Implementation, Overload, function, method, overload
from dra_extender.cel.types.types import BOOL, DYN, INT, STRING, Type, list_of, type_of
from dra_extender.cel.values.values import TypeValue

_CALL_WORK: Final = 36
_SHORT: Final = 64
"""Texts up to this length are charged a small constant, whatever the call does with them."""
_PIECE_WORK: Final = 8
_PART_WORK: Final = 5
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def _in_range(text: str, index: int) -> int:
    if 0 <= index <= len(text):
        return index
    raise CelRuntimeError(f"index out of range: {index}")


def _not_negative(index: int) -> int:
    if index < 0:
        raise CelRuntimeError(f"index out of range: {index}")
    return index


def _index_of(frame: EvaluationFrame, text: str, part: str, start: int = 0) -> int:
    _not_negative(start)
    place: int = FIND.call(frame, text, part, start if part else min(start, len(text)), len(text))
    return place


def _last_index_of(frame: EvaluationFrame, text: str, part: str, start: int | None = None) -> int:
    if start is None or (not part and _not_negative(start) >= len(text)):
        end = len(text)
    elif _not_negative(start) < len(text):
        end = start + len(part)
    else:
        return -1
    place: int = RFIND.call(frame, text, part, end)
    return place


def _replace(frame: EvaluationFrame, text: str, old: str, new: str, count: int = -1) -> str:
    if len(text) <= _SHORT and len(old) <= _SHORT and len(new) <= 1:
        frame.spend(_CALL_WORK + len(text))
        short: str = REPLACE.function(text, old, new, count)
        return short
    times = COUNT.call(frame, text, old)
    times = times if count < 0 else min(count, times)
    frame.spend(_CALL_WORK)
    frame.build_text(len(text) + times * (len(new) - len(old)), plain=text.isascii() and new.isascii())
    long_text: str = REPLACE.call(frame, text, old, new, times)
    return long_text


def _split(frame: EvaluationFrame, text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        # The first characters one by one, and the rest as one text.
        length = len(text) if count < 0 else min(count, len(text))
        frame.require_list(length)
        characters: list[str] = []
        for start in range(0, length - 1, PIECE):
            characters += CHARACTERS.call(frame, text, start, min(start + PIECE, length - 1))
        return [*characters, _slice(frame, text, length - 1, len(text))] if length else []
    if len(text) <= _SHORT:
        frame.spend(_CALL_WORK + len(text))
        short: list[str] = SPLIT.function(text, separator, count - 1 if count > 0 else -1)
        return short
    pieces = COUNT.call(frame, text, separator) + 1
    pieces = pieces if count < 0 else min(count, pieces)
    frame.build_list(pieces)
    frame.begin_call("split", _PIECE_WORK * pieces)
    frame.spend(_CALL_WORK)
    frame.build_text(len(text), plain=text.isascii())
    parts: list[str] = SPLIT.call(frame, text, separator, count - 1 if count > 0 else -1)
    return parts


def _slice(frame: EvaluationFrame, text: str, start: int, end: int) -> str:
    if end - start <= _SHORT:
        return text[start:end]
    frame.build_text(max(0, end - start), plain=text.isascii())
    part: str = SLICE.call(frame, text, start, end)
    return part


def _substring(frame: EvaluationFrame, text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _in_range(text, end)
    if _in_range(text, start) > stop:
        raise CelRuntimeError(f"invalid substring range: start {start}, end {stop}")
    return _slice(frame, text, start, stop)


def _trim(frame: EvaluationFrame, text: str) -> str:
    """Return the text without blanks at both ends; it is trimmed in pieces, because blanks beyond ASCII take long."""
    start, end = 0, len(text)
    while start < end:
        piece = text[start : start + PIECE] if end - start > PIECE else text[start:]
        kept_length = len(LSTRIP.call(frame, piece, _BLANKS)) if piece[0] in _BLANKS else len(piece)
        start += len(piece) - kept_length
        if kept_length:
            break
    while start < end:
        piece = text[max(start, end - PIECE) : end]
        kept_length = len(RSTRIP.call(frame, piece, _BLANKS)) if piece[-1] in _BLANKS else len(piece)
        end -= len(piece) - kept_length
        if kept_length:
            break
    return _slice(frame, text, start, end) if end - start < len(text) else text


def _join(frame: EvaluationFrame, parts: list[Any], separator: str = "") -> str:
    frame.spend(_CALL_WORK)
    length = len(separator) * max(0, len(parts) - 1)
    plain = separator.isascii()
    for start in range(0, len(parts), PIECE):
        piece = parts[start : start + PIECE]
        frame.spend(_PART_WORK * len(piece))
        for part in piece:
            if not isinstance(part, str):
                raise CelRuntimeError("join: an element is not a string")
        plain = plain and all(map(str.isascii, piece))
        length += sum(map(len, piece))
    frame.build_text(length, plain=plain)
    joined: str = JOIN.call(frame, separator, parts)
    return joined


def _quote(frame: EvaluationFrame, text: str) -> str:
    frame.spend(_CALL_WORK)
    frame.build_text(2 * len(text) + 2, plain=text.isascii())
    return quote_in_pieces(frame, text, plain=True)


def _recased(change: NativeFunction) -> Callable[[EvaluationFrame, str], str]:
    """Change the case of ASCII letters only: Python does so with bytes, so other texts are encoded first."""

    def recase(frame: EvaluationFrame, text: str) -> str:
        if len(text) <= _SHORT and text.isascii():
            return str(change.function(text))
        frame.build_text(len(text), plain=text.isascii())
        if text.isascii():
            return str(change.call(frame, text))
        return decode_with_surrogates(frame, change.call(frame, ENCODE.call(frame, text)))

    return recase


def _matches(frame: EvaluationFrame, text: str, pattern: str) -> bool:
    return search(frame, text, pattern) is not None


def _find(frame: EvaluationFrame, text: str, pattern: str) -> str:
    match = search(frame, text, pattern)
    if match is None:
        return ""
    frame.build_text(match.end() - match.start(), plain=text.isascii())
    return decode_with_surrogates(frame, match.group())


def _of_type(implementation: Implementation, result: Type, *more: Type) -> Overload:
    def named(frame: EvaluationFrame, value: TypeValue, *arguments: Any) -> Any:
        return implementation(frame, value.name, *arguments)

    return overload((type_of(DYN), STRING, *more), result, named, metered=True)


_PAIR: Final = (STRING, STRING)
_TEXTS: Final = list_of(STRING)


def _methods(
    name: str, parameters: tuple[Type, ...], last: Type, result: Type, implementation: Implementation, extra: Extra
) -> Function:
    """Declare a method whose last argument can be left out."""
    every = (parameters, (*parameters, last))
    return function(name, *(method(kinds, result, implementation, metered=True) for kinds in every), extra=extra)


FUNCTIONS: Final = (
    function("charAt", method((STRING, INT), STRING, lambda text, at: text[_in_range(text, at) : at + 1])),
    _methods("indexOf", _PAIR, INT, INT, _index_of, elements_traversed),
    _methods("lastIndexOf", _PAIR, INT, INT, _last_index_of, elements_traversed),
    function("lowerAscii", method((STRING,), STRING, _recased(LOWER), metered=True), extra=first_traversed),
    function("upperAscii", method((STRING,), STRING, _recased(UPPER), metered=True), extra=first_traversed),
    _methods("replace", (STRING, STRING, STRING), INT, STRING, _replace, first_traversed_twice),
    _methods("split", _PAIR, INT, _TEXTS, _split, first_traversed_twice),
    _methods("substring", (STRING, INT), INT, STRING, _substring, first_traversed),
    function("trim", method((STRING,), STRING, _trim, metered=True), extra=first_traversed),
    _methods("join", (_TEXTS,), STRING, STRING, _join, result_traversed_twice),
    function("format", method((STRING, list_of(DYN)), STRING, format_text, metered=True, extra=first_traversed)),
    function("strings.quote", overload((STRING,), STRING, _quote, metered=True, extra=first_traversed)),
    function(
        "matches",
        overload(_PAIR, BOOL, _matches, metered=True, extra=pattern_searched),
        method(_PAIR, BOOL, _matches, metered=True, extra=pattern_searched),
    ),
    function("find", method(_PAIR, STRING, _find, metered=True), extra=pattern_searched),
    _methods("findAll", _PAIR, INT, _TEXTS, find_all, pattern_searched),
)

UNDECLARED: Final = {
    ("matches", 2): _of_type(_matches, BOOL),
    ("find", 2): _of_type(_find, STRING),
    ("findAll", 2): _of_type(find_all, _TEXTS),
    ("findAll", 3): _of_type(find_all, _TEXTS, INT),
}
"""Searches of the name of a type for a constant pattern."""
