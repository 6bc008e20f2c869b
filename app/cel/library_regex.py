"""Regular expressions: always RE2, whose time is linear in the text, never Python's own."""

import re
from functools import lru_cache
from typing import Any, Final

import re2

from app.cel.cost import Frame, pattern_searched
from app.cel.declarations import Implementation, Overload, function, method, overload
from app.cel.errors import CelRuntimeError
from app.cel.types import BOOL, DYN, INT, STRING, Type, list_of, type_of
from app.cel.values import TypeValue

PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a pattern; a constant one is compiled with the expression."""

_MAX_NESTING: Final = 500
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_CATEGORY: Final = re.compile(r"\\[pP]")
_MAX_CATEGORIES: Final = 200
"""Most classes such as \\pL in a pattern; RE2 spells each out, before it looks at its limit of memory."""
_MAX_MEMORY: Final = 2 * 1024 * 1024
_LIGHT: Final = 4_000
"""Instructions up to which a program is kept among a thousand others."""
_CALL_WORK: Final = 120
_PATTERN_WORK: Final = 1_200
_INSTRUCTION_WORK: Final = 12
_INSTRUCTION_BYTES: Final = 64
"""So that a refused pattern counts for one that just fits."""
_MATCH_WORK: Final = 80


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern, or remember what it was compiled to.

    Raises:
        CelRuntimeError: RE2 does not accept it.
    """
    return _light(pattern) or _heavy(pattern)


def is_pattern(pattern: str) -> bool:
    """Whether RE2 accepts it."""
    try:
        compile_pattern(pattern)
    except CelRuntimeError:
        return False
    return True


@lru_cache(maxsize=1024)
def _light(pattern: str) -> Any:
    compiled = _compiled(pattern)
    return compiled if compiled.programsize <= _LIGHT else None


@lru_cache(maxsize=16)
def _heavy(pattern: str) -> Any:
    return _compiled(pattern)


def _compiled(pattern: str) -> Any:
    if pattern.count("(") > _MAX_NESTING and _nesting(pattern) > _MAX_NESTING:
        raise CelRuntimeError(f"invalid regular expression: it nests deeper than {_MAX_NESTING} levels")
    if len(_CATEGORY.findall(pattern)) > _MAX_CATEGORIES:
        raise CelRuntimeError(f"invalid regular expression: it has more than {_MAX_CATEGORIES} Unicode classes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        detail = error.args[0] if error.args else "not accepted"
        shown = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise CelRuntimeError(f"invalid regular expression {pattern[:60]!r}: {shown}") from None


def _nesting(pattern: str) -> int:
    """How deep groups are nested; brackets in classes count, which can only make it more."""
    depth = deepest = 0
    for character in _ESCAPED.sub("", pattern):
        if character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    return deepest


def charge_pattern(frame: Frame, pattern: str) -> None:
    """Charge the compilation of a pattern that is only known now, whether or not its program is remembered."""
    frame.spend(_PATTERN_WORK + _INSTRUCTION_WORK * len(pattern))
    try:
        size = compile_pattern(pattern).programsize
    except CelRuntimeError:
        size = _MAX_MEMORY // _INSTRUCTION_BYTES
    frame.spend(_INSTRUCTION_WORK * size)


def _searched(frame: Frame, text: str, pattern: str) -> Any:
    frame.spend(_CALL_WORK)
    return compile_pattern(pattern).search(text.encode(errors="surrogatepass"))


def _matches(frame: Frame, text: str, pattern: str) -> bool:
    return _searched(frame, text, pattern) is not None


def _find(frame: Frame, text: str, pattern: str) -> str:
    found = _searched(frame, text, pattern)
    return "" if found is None else str(found.group().decode(errors="surrogatepass"))


def _find_all(frame: Frame, text: str, pattern: str, limit: int = -1) -> list[str]:
    """All matches from left to right; an empty one right behind another match does not count."""
    results: list[str] = []
    end = -1
    if limit == 0:
        return results
    frame.spend(_CALL_WORK)
    plain = text.isascii()
    for found in compile_pattern(pattern).finditer(text.encode() if plain else text):
        frame.spend(_MATCH_WORK)
        start, stop = found.span()
        if stop == start == end:
            continue
        end = stop
        results.append(text[start:stop])
        if len(results) == limit:
            break
    return results


def _of_type(run: Implementation, result: Type, *more: Type) -> Overload:
    def named(frame: Frame, value: TypeValue, *others: Any) -> Any:
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
"""What functions, by how many arguments they have, do with a constant pattern and a type: they search its name."""
