"""The functions that take regular expressions; a constant pattern is compiled with the expression."""

from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, pattern_searched
from dra_extender.cel.native.patterns import pattern_in
from dra_extender.cel.native.strings import ENCODE, decode_with_surrogates
from dra_extender.cel.types.declarations import Implementation, Overload, function, method, overload
from dra_extender.cel.types.types import BOOL, DYN, INT, STRING, Type, list_of, type_of
from dra_extender.cel.values.values import TypeValue

_MATCH_WORK: Final = 80
# The two highest bits of a byte, and what they are in all but the first bytes of a character in UTF-8.
_KIND: Final = 0xC0
_CONTINUATION: Final = 0x80


def _searched(frame: EvaluationFrame, text: str, pattern: str) -> Any:
    compiled = pattern_in(frame, pattern)
    raw = ENCODE.call(frame, text)
    frame.spend(compiled.scan_work(len(raw)))
    return compiled.regexp.search(raw)


def _matches(frame: EvaluationFrame, text: str, pattern: str) -> bool:
    return _searched(frame, text, pattern) is not None


def _find(frame: EvaluationFrame, text: str, pattern: str) -> str:
    found = _searched(frame, text, pattern)
    if found is None:
        return ""
    frame.build_text(found.end() - found.start(), plain=text.isascii())
    return decode_with_surrogates(frame, found.group())


def _find_all(frame: EvaluationFrame, text: str, pattern: str, limit: int = -1) -> list[str]:
    """All matches from left to right, without an empty one right behind another match.

    Each search may read the rest of the text, and is charged for it.
    """
    results: list[str] = []
    end = -1
    if limit == 0:
        return results
    compiled = pattern_in(frame, pattern)
    raw = ENCODE.call(frame, text)
    length, plain = len(raw), text.isascii()
    frame.spend(compiled.scan_work(length))
    for found in compiled.regexp.finditer(raw):
        start, stop = found.span()
        frame.spend(_MATCH_WORK + compiled.scan_work(length - stop))
        if start == stop and (start == end or _inside_a_character(raw, start)):
            continue
        end = stop
        frame.build_text(stop - start, plain=plain)
        results.append(decode_with_surrogates(frame, raw[start:stop]))
        if len(results) == limit:
            break
    return results


def _inside_a_character(raw: bytes, place: int) -> bool:
    """Whether a position in UTF-8 is inside of a character: RE2 also reports empty matches there."""
    return place < len(raw) and raw[place] & _KIND == _CONTINUATION


def _of_type(run: Implementation, result: Type, *more: Type) -> Overload:
    def named(frame: EvaluationFrame, value: TypeValue, *others: Any) -> Any:
        return run(frame, value.name, *others)

    return overload((type_of(DYN), STRING, *more), result, named, metered=True)


_PAIR: Final = (STRING, STRING)
_TEXTS: Final = list_of(STRING)

FUNCTIONS: Final = (
    function(
        "matches",
        overload(_PAIR, BOOL, _matches, metered=True, extra=pattern_searched),
        method(_PAIR, BOOL, _matches, metered=True, extra=pattern_searched),
    ),
    function("find", method(_PAIR, STRING, _find, metered=True), extra=pattern_searched),
    function(
        "findAll",
        method(_PAIR, _TEXTS, _find_all, metered=True),
        method((STRING, STRING, INT), _TEXTS, _find_all, metered=True),
        extra=pattern_searched,
    ),
)

OF_TYPES: Final = {
    ("matches", 2): _of_type(_matches, BOOL),
    ("find", 2): _of_type(_find, STRING),
    ("findAll", 2): _of_type(_find_all, _TEXTS),
    ("findAll", 3): _of_type(_find_all, _TEXTS, INT),
}
"""Overloads by function and number of arguments that search the name of a type for a constant pattern, as upstream does."""
