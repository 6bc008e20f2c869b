"""Regular expressions: always RE2, whose time is linear in the text, never Python's own."""

import re
from functools import lru_cache
from typing import Any, Final

import re2

from app.cel.cost import COMPARISON_WORK, Frame, pattern_searched
from app.cel.declarations import function, method, overload
from app.cel.errors import CelRuntimeError
from app.cel.types import BOOL, INT, STRING, list_of

PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a pattern; a constant one is compiled with the expression."""

_MAX_NESTING: Final = 500
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_MAX_MEMORY: Final = 8 * 1024 * 1024


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern.

    Raises:
        CelRuntimeError: RE2 does not accept it.
    """
    if pattern.count("(") > _MAX_NESTING and _nesting(pattern) > _MAX_NESTING:
        raise CelRuntimeError(f"invalid regular expression: it nests deeper than {_MAX_NESTING} levels")
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


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    found = compile_pattern(pattern).search(text)
    return "" if found is None else found.group()


def _find_all(frame: Frame, text: str, pattern: str, limit: int = -1) -> list[str]:
    """All matches from left to right; an empty one right behind another match does not count."""
    results: list[str] = []
    end = -1
    if limit == 0:
        return results
    for found in compile_pattern(pattern).finditer(text):
        if found.end() == found.start() == end:
            continue
        end = found.end()
        frame.spend(COMPARISON_WORK)
        results.append(found.group())
        if len(results) == limit:
            break
    return results


_PAIR: Final = (STRING, STRING)
_TEXTS: Final = list_of(STRING)

FUNCTIONS: Final = (
    function(
        "matches",
        overload(_PAIR, BOOL, _matches, extra=pattern_searched),
        method(_PAIR, BOOL, _matches, extra=pattern_searched),
    ),
    function("find", method(_PAIR, STRING, _find), extra=pattern_searched),
    function(
        "findAll",
        method(_PAIR, _TEXTS, _find_all, metered=True),
        method((STRING, STRING, INT), _TEXTS, _find_all, metered=True),
        extra=pattern_searched,
    ),
)
