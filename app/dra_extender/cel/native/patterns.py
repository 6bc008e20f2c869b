"""Compiled regular expressions: always RE2, whose time is linear in the text, never Python's own.

Their size is bounded before RE2 sees them, and the memory of those that are kept is counted as the most that RE2 may take
for them while they are in use.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
import re2

from dra_extender.cel.native.pattern_size import estimated_size
from dra_extender.cel.runtime.cost import EvaluationFrame
from dra_extender.cel.support.errors import CelCostError, CelRuntimeError
from dra_extender.runtime.caches import FairCache

PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
MAX_INSTRUCTIONS: Final = 5_000
"""Most instructions that a pattern may expand to, by the estimate: RE2 compiles these within 2.5 ms."""
MAX_LENGTH: Final = 3_000
"""Most characters of a pattern."""
SCAN_LIMIT: Final = 500_000
"""Most instructions times bytes of one search: RE2 takes 5 to 9 ns for each at worst."""
CACHE_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of all patterns that are kept."""

_CALL_WORK: Final = 120
_PATTERN_WORK: Final = 1_200
_CHARACTER_WORK: Final = 60
_INSTRUCTION_WORK: Final = 36
"""1.5 us: 730 ns were measured at worst, forwards and backwards together."""
_ENTERED: Final = 8
"""Instructions for which each byte counts beside those of the program."""
_MAX_NESTING: Final = 500
_SHORT: Final = 128
"""Characters up to which what a pattern costs is remembered."""
_SMALL: Final = 128 * 1024
_LEAST_MEMORY: Final = 48 * 1024
_INSTRUCTION_BYTES: Final = 192
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


class Pattern(msgspec.Struct, frozen=True):
    """A compiled pattern; `size` counts its instructions, `memory` the bytes that RE2 may take for it."""

    regexp: Any
    size: int
    memory: int

    def scan_work(self, length: int) -> int:
        """What one search through so many bytes takes.

        Raises:
            CelCostError: More than one search may take.
        """
        product = (self.size + _ENTERED) * (length + 1)
        if product > SCAN_LIMIT:
            raise CelCostError(
                f"the evaluation was stopped: a regular expression of {self.size} instructions searches {length} bytes, "
                f"at most {SCAN_LIMIT} for their product are accepted"
            )
        return _CALL_WORK + product * 2 // 5


def pattern_cost(pattern: str) -> int:
    """Units of work for estimating and compiling a pattern, whether or not it is accepted or cached."""
    if len(pattern) > MAX_LENGTH:
        return _PATTERN_WORK
    return _cached_cost(pattern) if len(pattern) <= _SHORT else _uncached_cost(pattern)


@lru_cache(maxsize=1024)
def _cached_cost(pattern: str) -> int:
    return _uncached_cost(pattern)


def _uncached_cost(pattern: str) -> int:
    return _compile_work(pattern, _size(pattern) or MAX_INSTRUCTIONS)


def compile_pattern(pattern: str, owner: str = "") -> Pattern:
    """The compiled pattern, from the cache if it is there.

    Args:
        pattern: Its text.
        owner: Whose share of the cache it takes: a namespace, or empty for administrators.

    Raises:
        CelRuntimeError: RE2 does not accept it, or it expands to too many instructions.
    """
    return cached_pattern(pattern) or _compile_and_cache(pattern, owner)


def cached_pattern(pattern: str) -> Pattern | None:
    """The compiled pattern, if the cache has it."""
    return SMALL_PATTERNS.peek(pattern) or LARGE_PATTERNS.peek(pattern)


def pattern_in(frame: EvaluationFrame, pattern: str) -> Pattern:
    """The compiled pattern for a search; a constant pattern that the cache has evicted is charged and compiled again.

    The budget of the call pays for that, and not the evaluation: which patterns the cache has depends on other expressions.
    Without such a budget, the evaluation pays.

    Raises:
        CelRuntimeError: As `compile_pattern`.
        CelCostError: There is not that much left; nothing was compiled.
    """
    known = cached_pattern(pattern)
    if known is not None:
        return known
    if frame.charged is not pattern:
        if frame.budget is None:
            charge_pattern(frame, pattern)
        else:
            frame.budget.spend_on_compiling(pattern_cost(pattern))
    return _compile_and_cache(pattern, frame.owner)


def is_pattern(pattern: str, owner: str = "") -> bool:
    """Whether it is accepted."""
    try:
        compile_pattern(pattern, owner)
    except CelRuntimeError:
        return False
    return True


def charge_pattern(frame: EvaluationFrame, pattern: str) -> None:
    """Charge the compilation of a pattern that is only known now, whether or not it is cached.

    Raises:
        CelCostError: The evaluation has not that much left; nothing was compiled.
    """
    if len(pattern) <= MAX_LENGTH:
        frame.spend(_CHARACTER_WORK * len(pattern))
    frame.spend(pattern_cost(pattern))
    frame.charged = pattern


SMALL_PATTERNS: Final[FairCache[str, Pattern]] = FairCache(CACHE_BYTES * 3 // 4)
LARGE_PATTERNS: Final[FairCache[str, Pattern]] = FairCache(CACHE_BYTES // 4, largest=4)
"""Compiled patterns by their text; an owner's first patterns are evicted first, because looking one up does not count as a use."""


def _compile_and_cache(pattern: str, owner: str) -> Pattern:
    compiled = _compiled(pattern)
    kept = SMALL_PATTERNS if compiled.memory <= _SMALL else LARGE_PATTERNS
    kept.put(pattern, compiled, compiled.memory + 4 * len(pattern), owner)
    return compiled


def _compile_work(pattern: str, size: int) -> int:
    return _PATTERN_WORK + _CHARACTER_WORK * len(pattern) + _INSTRUCTION_WORK * min(size, MAX_INSTRUCTIONS)


def _size(pattern: str) -> int | None:
    """The estimate, None for what is refused without it."""
    try:
        return estimated_size(pattern)
    except ValueError:
        return None


def _compiled(pattern: str) -> Pattern:
    size = _bounded_size(pattern)
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
    return Pattern(regexp, max(regexp.programsize, regexp.reverseprogramsize), memory)


def _bounded_size(pattern: str) -> int:
    """The estimated size.

    Raises:
        CelRuntimeError: The pattern is refused before RE2 sees it.
    """
    if len(pattern) > MAX_LENGTH:
        raise CelRuntimeError(
            f"invalid regular expression: it has {len(pattern)} characters, at most {MAX_LENGTH} are accepted"
        )
    if pattern.count("(") > _MAX_NESTING and _nesting(pattern) > _MAX_NESTING:
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
