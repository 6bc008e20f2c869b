"""The strings library, version 2."""

from typing import Any, Final

from app.cel.cost import Frame, elements_traversed, first_traversed, first_traversed_twice, result_traversed_twice
from app.cel.declarations import function, method, overload
from app.cel.errors import CelRuntimeError
from app.cel.format_text import format_text
from app.cel.quoting import quoted
from app.cel.types import DYN, INT, STRING, list_of

_CALL_WORK: Final = 36
_PIECE_WORK: Final = 8
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def _in_range(text: str, index: int) -> int:
    if 0 <= index <= len(text):
        return index
    raise CelRuntimeError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    return text[_in_range(text, index) : index + 1]


def _not_negative(index: int) -> int:
    if index < 0:
        raise CelRuntimeError(f"index out of range: {index}")
    return index


def _index_of(text: str, part: str, start: int = 0) -> int:
    _not_negative(start)
    return text.find(part, start if part else min(start, len(text)))


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None or (not part and _not_negative(start) >= len(text)):
        return text.rfind(part)
    return text.rfind(part, 0, start + len(part)) if _not_negative(start) < len(text) else -1


def _replace(frame: Frame, text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    frame.spend(_CALL_WORK + 2 * found)
    frame.build_text(len(text) + found * (len(new) - len(old)), plain=text.isascii() and new.isascii())
    return text.replace(old, new, found)


def _split(frame: Frame, text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        length = len(text) if count < 0 else min(count, len(text))
        frame.build_list(length)
        frame.spend(0 if text.isascii() else _PIECE_WORK * length)
        return [*text[: length - 1], text[length - 1 :]] if length else []
    pieces = text.count(separator) + 1
    frame.build_list(pieces)
    frame.spend(_CALL_WORK + _PIECE_WORK * pieces)
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _in_range(text, end)
    if _in_range(text, start) > stop:
        raise CelRuntimeError(f"invalid substring range: start {start}, end {stop}")
    return text[start:stop]


def _join(frame: Frame, parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise CelRuntimeError("join: an element is not a string")
    frame.spend(_CALL_WORK + 3 * len(parts))
    plain = separator.isascii() and all(map(str.isascii, parts))
    frame.build_text(sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1), plain=plain)
    return separator.join(parts)


def _quote(frame: Frame, text: str) -> str:
    frame.build_text(2 * len(text), plain=text.isascii())
    frame.spend(_CALL_WORK + (0 if text.isprintable() else len(text)))
    return quoted(text, plain=True)


def _lower(text: str) -> str:
    """Only the letters of ASCII change; of bytes, Python changes no others either."""
    return text.lower() if text.isascii() else _recoded(_encoded(text).lower())


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else _recoded(_encoded(text).upper())


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _recoded(text: bytes) -> str:
    return text.decode(errors="surrogatepass")


_TEXTS: Final = list_of(STRING)

FUNCTIONS: Final = (
    function("charAt", method((STRING, INT), STRING, _char_at)),
    function(
        "indexOf",
        method((STRING, STRING), INT, _index_of),
        method((STRING, STRING, INT), INT, _index_of),
        extra=elements_traversed,
    ),
    function(
        "lastIndexOf",
        method((STRING, STRING), INT, _last_index_of),
        method((STRING, STRING, INT), INT, _last_index_of),
        extra=elements_traversed,
    ),
    function("lowerAscii", method((STRING,), STRING, _lower), extra=first_traversed),
    function("upperAscii", method((STRING,), STRING, _upper), extra=first_traversed),
    function(
        "replace",
        method((STRING, STRING, STRING), STRING, _replace, metered=True),
        method((STRING, STRING, STRING, INT), STRING, _replace, metered=True),
        extra=first_traversed_twice,
    ),
    function(
        "split",
        method((STRING, STRING), _TEXTS, _split, metered=True),
        method((STRING, STRING, INT), _TEXTS, _split, metered=True),
        extra=first_traversed_twice,
    ),
    function(
        "substring",
        method((STRING, INT), STRING, _substring),
        method((STRING, INT, INT), STRING, _substring),
        extra=first_traversed,
    ),
    function("trim", method((STRING,), STRING, lambda text: text.strip(_BLANKS)), extra=first_traversed),
    function(
        "join",
        method((_TEXTS,), STRING, _join, metered=True),
        method((_TEXTS, STRING), STRING, _join, metered=True),
        extra=result_traversed_twice,
    ),
    function("format", method((STRING, list_of(DYN)), STRING, format_text, metered=True, extra=first_traversed)),
    function("strings.quote", overload((STRING,), STRING, _quote, metered=True, extra=first_traversed)),
)
