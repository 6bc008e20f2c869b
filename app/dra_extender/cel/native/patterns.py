"""Compiled regular expressions. They are RE2's, whose time is linear in the text, unlike that of Python's.

The size of a pattern is limited before RE2 compiles it. A cached pattern counts with the most memory that RE2 may use for it.
"""

import re
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import msgspec

from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.native.pattern_size import estimated_size
from dra_extender.cel.native.strings import ENCODE, decode_with_surrogates

try:
    import re2
except ImportError:  # there is no build for this platform
    re2 = None

PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
MAX_INSTRUCTIONS: Final = 5_000
"""The most estimated instructions of a pattern: RE2 compiles these within 2.5 ms."""
MAX_LENGTH: Final = 3_000
"""The most characters of a pattern."""
SCAN_LIMIT: Final = 500_000
"""The most instructions times bytes of one search: RE2 takes 5 to 9 ns for each at worst."""
WITHOUT_RE2: Final = "google-re2 is not installed here, so that no regular expression is evaluated"
"""What an expression with a regular expression fails with where RE2 is missing: a pattern can make Python's own run for ever."""
CACHE_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of all cached patterns."""

_CALL_WORK: Final = 120
_PATTERN_WORK: Final = 1_200
_CHARACTER_WORK: Final = 60
_INSTRUCTION_WORK: Final = 36
"""1.5 us: twice the measured worst case of the forward and the reverse program."""
_MATCH_WORK: Final = 80
# The two highest bits of a byte, and what they are in all but the first bytes of a character in UTF-8.
_KIND: Final = 0xC0
_CONTINUATION: Final = 0x80
_ENTERED: Final = 8
"""Instructions that a search adds to those of the program for each byte."""
_MAX_NESTING: Final = 500
_SHORT: Final = 128
"""The most characters of a pattern whose cost is cached."""
_SMALL: Final = 128 * 1024
_LEAST_MEMORY: Final = 48 * 1024
_INSTRUCTION_BYTES: Final = 192
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_DEPTHS: Final = {"(": 1, ")": -1}


class Pattern(msgspec.Struct, frozen=True):
    """A compiled pattern; `size` counts its instructions, `memory` the bytes that RE2 may take for it."""

    regexp: Any
    size: int
    memory: int

    def scan_work(self, length: int) -> int:
        """Return the work of one search through `length` bytes, if it is within the limit."""
        product = (self.size + _ENTERED) * (length + 1)
        if product > SCAN_LIMIT:
            raise CelCostError(
                f"the evaluation was stopped: a regular expression of {self.size} instructions searches {length} bytes, "
                f"at most {SCAN_LIMIT} for their product are accepted"
            )
        return _CALL_WORK + product * 2 // 5


def pattern_cost(pattern: str) -> int:
    """Return units of work for estimating and compiling a pattern, accepted or not, cached or not."""
    if len(pattern) > MAX_LENGTH:
        return _PATTERN_WORK
    return _cached_cost(pattern) if len(pattern) <= _SHORT else _cost(pattern)


def _cost(pattern: str) -> int:
    try:
        size = min(estimated_size(pattern), MAX_INSTRUCTIONS)
    except ValueError:
        size = MAX_INSTRUCTIONS
    return _PATTERN_WORK + _CHARACTER_WORK * len(pattern) + _INSTRUCTION_WORK * size


_cached_cost: Final = lru_cache(maxsize=1024)(_cost)


def compile_pattern(pattern: str, owner: str = "") -> Pattern:
    """Return the compiled pattern, from the cache if it is there; the cache charges `owner` for it, or administrators.

    A pattern that RE2 does not accept, or that expands to too many instructions, is a CelRuntimeError.
    """
    return cached_pattern(pattern) or _compile_and_cache(pattern, owner)


def cached_pattern(pattern: str) -> Pattern | None:
    """Return the compiled pattern, if the cache has it."""
    return SMALL_PATTERNS.peek(pattern) or LARGE_PATTERNS.peek(pattern)


def pattern_in(frame: EvaluationFrame, pattern: str) -> Pattern:
    """Return the compiled pattern for a search; one that the cache has evicted is compiled again.

    The budget of the call is charged for that rather than the evaluation, because other expressions decide what the cache evicts.
    Without a budget, the evaluation is charged.
    """
    cached = cached_pattern(pattern)
    if cached is not None:
        return cached
    if frame.charged is not pattern:
        if frame.budget is None:
            charge_pattern(frame, pattern)
        else:
            frame.budget.spend_on_compiling(pattern_cost(pattern))
    return _compile_and_cache(pattern, frame.owner)


def search(frame: EvaluationFrame, text: str, pattern: str) -> Any:
    """Return the first match in the UTF-8 of a text, or None."""
    compiled = pattern_in(frame, pattern)
    raw = ENCODE.call(frame, text)
    frame.spend(compiled.scan_work(len(raw)))
    return compiled.regexp.search(raw)


def find_all(frame: EvaluationFrame, text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return all matches from left to right, without an empty one right behind another match.

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
    for match in compiled.regexp.finditer(raw):
        start, stop = match.span()
        frame.spend(_MATCH_WORK + compiled.scan_work(length - stop))
        # RE2 also reports empty matches inside of a character.
        if start == stop and (start == end or (start < length and raw[start] & _KIND == _CONTINUATION)):
            continue
        end = stop
        frame.build_text(stop - start, plain=plain)
        results.append(decode_with_surrogates(frame, raw[start:stop]))
        if len(results) == limit:
            break
    return results


def charge_pattern(frame: EvaluationFrame, pattern: str) -> None:
    """Charge the compilation of a computed pattern, cached or not, before it is compiled."""
    if len(pattern) <= MAX_LENGTH:
        frame.spend(_CHARACTER_WORK * len(pattern))
    frame.spend(pattern_cost(pattern))
    frame.charged = pattern


SMALL_PATTERNS: Final[FairCache[str, Pattern]] = FairCache(CACHE_BYTES * 3 // 4)
LARGE_PATTERNS: Final[FairCache[str, Pattern]] = FairCache(CACHE_BYTES // 4, parts=4)
"""Compiled patterns by their text; the oldest patterns of an owner are evicted first, because a lookup does not count as a use."""


def _compile_and_cache(pattern: str, owner: str) -> Pattern:
    size = _bounded_size(pattern)
    if re2 is None:
        raise CelRuntimeError(WITHOUT_RE2)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory = _LEAST_MEMORY + _INSTRUCTION_BYTES * size
    try:
        regexp = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        detail = error.args[0] if error.args else "not accepted"
        shown = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise CelRuntimeError(f"invalid regular expression {pattern[:60]!r}: {shown[:200]}") from None
    finally:
        re2.purge()
    compiled = Pattern(regexp, max(regexp.programsize, regexp.reverseprogramsize), memory)
    cache = SMALL_PATTERNS if compiled.memory <= _SMALL else LARGE_PATTERNS
    cache.put(pattern, compiled, compiled.memory + 4 * len(pattern), owner)
    return compiled


def _bounded_size(pattern: str) -> int:
    """Return the estimated size, unless the pattern is refused before RE2 sees it."""
    if len(pattern) > MAX_LENGTH:
        raise CelRuntimeError(
            f"invalid regular expression: it has {len(pattern)} characters, at most {MAX_LENGTH} are accepted"
        )
    if pattern.count("(") > _MAX_NESTING:
        # Brackets in classes count as groups, too.
        depths = accumulate(_DEPTHS.get(character, 0) for character in _ESCAPED.sub("", pattern))
        if max(depths, default=0) > _MAX_NESTING:
            raise CelRuntimeError(f"invalid regular expression: it nests deeper than {_MAX_NESTING} levels")
    try:
        size = estimated_size(pattern)
    except ValueError as error:
        raise CelRuntimeError(f"invalid regular expression {pattern[:60]!r}: {error}") from None
    if size > MAX_INSTRUCTIONS:
        raise CelRuntimeError(
            f"invalid regular expression {pattern[:60]!r}: it expands to about {size} instructions, "
            f"at most {MAX_INSTRUCTIONS} are accepted"
        )
    return size
