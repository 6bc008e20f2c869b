"""Native calls on texts and byte strings."""

import operator
from collections.abc import Mapping
from typing import Any, Final

from dra_extender.cel.cost import PIECE, EvaluationFrame
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.syntax.ast import ORDERINGS
from dra_extender.cel.values.go_format import quote

_NEAR: Final = 2_500
"""The length of a text below which CPython compares the whole part at every position."""
_MIDDLE: Final = 30_000
_SHORT: Final = 100
"""The length of a part below which CPython does so in texts shorter than `_MIDDLE`; above both lengths it is linear."""
_DIRECT: Final = 10_000
_SURROGATE_WORK: Final = 4


def search_work(text: Any, part: Any) -> int:
    """Return the work of a search: 3 to 5 ns a character, and 0.1 to 0.4 ns for each pair of characters if it is quadratic."""
    length, part_length = len(text), len(part)
    if part_length > length or not part_length:
        return 0
    work = (length + part_length) >> 2
    if length < _NEAR or (part_length < _SHORT and length < _MIDDLE):
        work += (length * part_length) >> 6
    return work


def _rfind(text: str, part: str, end: int) -> int:
    """Return the last occurrence before `end`; str.rfind is quadratic, str.find of the reversed texts is not."""
    end = min(end, len(text))
    if len(part) > end:
        return -1
    if len(text) * len(part) <= _DIRECT:
        return text.rfind(part, 0, end)
    place = text[:end][::-1].find(part[::-1])
    return end - place - len(part) if place >= 0 else -1


def replace_work(text: str, old: str, new: str, count: int) -> int:
    """Return the work of two searches and of the result: 13 ns for each replacement, 160 ns if the part has several characters."""
    grown = len(text) + count * max(0, len(new) - len(old))
    places = count * (1 if len(old) <= 1 else 8)
    return 2 * search_work(text, old) + places + (grown >> 5)


def split_work(text: str, separator: str, _: int = -1) -> int:
    """Return the work of the search and of copying the text; the pieces are charged separately, once their number is known."""
    return 2 * search_work(text, separator) + (len(text) >> 5)


def encode_work(text: str) -> int:
    """Return the work of encoding: 3 ns a character, nearly nothing for ASCII."""
    return len(text) >> 8 if text.isascii() else len(text) // 6


def order_work(left: Any, right: Any) -> int:
    """Return the work of ordering: 0.6 ns for each character of the shorter text."""
    return min(len(left), len(right)) >> 4


def equality_work(left: Any, right: Any) -> int:
    """Return the work of comparing: 0.1 ns for each character of texts of equal length."""
    return len(left) >> 7 if len(left) == len(right) else 0


def decode_work(value: bytes) -> int:
    """Return the work of decoding: 2 ns a byte, 60 ns for a byte of a surrogate."""
    return len(value) >> 3


def quote_work(text: str) -> int:
    """Return the work of quoting: 7 ns a character, 410 ns for one that becomes an escape sequence."""
    return len(text) // 4 if len(text) <= _QUOTE_PIECE and text.isprintable() else 22 * len(text)


def decode_with_surrogates(frame: EvaluationFrame, raw: bytes) -> str:
    """Decode bytes that may encode surrogates; Python decodes each surrogate by itself, which takes long."""
    try:
        return str(DECODE.call(frame, raw))
    except UnicodeDecodeError:
        return str(DECODE_SURROGATES.call(frame, raw))


def quote_in_pieces(frame: EvaluationFrame, text: str, *, plain: bool = False) -> str:
    """Return the text between quotes, made from pieces because characters that cannot be printed take long."""
    quoting = QUOTE_PLAIN if plain else QUOTE
    if len(text) <= _QUOTE_PIECE:
        return str(quoting.call(frame, text))
    pieces = [quoting.call(frame, text[at : at + _QUOTE_PIECE])[1:-1] for at in range(0, len(text), _QUOTE_PIECE)]
    return f'"{"".join(pieces)}"'


_QUOTE_PIECE: Final = PIECE // 2

FIND: Final = NativeFunction("indexOf", str.find, lambda text, part, *_: search_work(text, part))
RFIND: Final = NativeFunction("lastIndexOf", _rfind, lambda text, part, _: search_work(text, part) + (len(text) >> 3))
CONTAINS: Final = NativeFunction("contains", operator.contains, search_work)
COUNT: Final = NativeFunction("count", str.count, search_work)
REPLACE: Final = NativeFunction("replace", str.replace, replace_work)
SPLIT: Final = NativeFunction("split", str.split, split_work)
JOIN: Final = NativeFunction("join", str.join, lambda _, parts: len(parts))
SLICE: Final = NativeFunction(
    "substring",
    lambda text, start, end: text[start:end],
    lambda _, start, end: max(0, end - start) >> 5,
)
CHARACTERS: Final = NativeFunction(
    "characters",
    lambda text, start, end: list(text[start:end]),
    lambda _, start, end: 5 * max(0, end - start),
)
STARTS: Final = NativeFunction("startsWith", str.startswith, lambda _, part: len(part) >> 5)
ENDS: Final = NativeFunction("endsWith", str.endswith, lambda _, part: len(part) >> 5)
ENCODE: Final = NativeFunction("encode", lambda text: text.encode(errors="surrogatepass"), encode_work)
DECODE: Final = NativeFunction("decode", bytes.decode, decode_work)
DECODE_SURROGATES: Final = NativeFunction(
    "decode with surrogates",
    lambda value: value.decode(errors="surrogatepass"),
    lambda value: _SURROGATE_WORK * len(value),
)
HEX: Final = NativeFunction("hex", bytes.hex, lambda value: len(value) >> 3)
LOWER: Final = NativeFunction("lowerAscii", lambda text: text.lower(), lambda text: len(text) >> 4)
UPPER: Final = NativeFunction("upperAscii", lambda text: text.upper(), lambda text: len(text) >> 4)
LSTRIP: Final = NativeFunction("trim from the left", str.lstrip, lambda text, _: len(text))
RSTRIP: Final = NativeFunction("trim from the right", str.rstrip, lambda text, _: len(text))
ORDERS: Final[Mapping[str, NativeFunction]] = {
    name: NativeFunction(f"{name} of texts", compare, order_work) for name, compare in ORDERINGS.items()
}
SAME: Final = NativeFunction("_==_ of texts", operator.eq, equality_work)
QUOTE: Final = NativeFunction("quote", quote, quote_work)
QUOTE_PLAIN: Final = NativeFunction(
    "strings.quote",
    lambda text: quote(text, plain=True),
    lambda text: len(text) // 2 if text.isascii() else 6 * len(text),
)
