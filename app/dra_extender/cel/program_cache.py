"""Compiled programs by expression, and the errors of expressions that do not compile; bounded in bytes."""

from collections.abc import Callable
from sys import getsizeof
from typing import Final

from dra_extender.cel.budget import REWRITE_UNITS, Budget
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.program import Program, compile_expression

PROGRAM_BYTES: Final = 16 * 1024 * 1024
_CLASS_SHARE: Final = 4
"""The divisor of the bytes for expressions of DeviceClasses."""
_FAILURE_BYTES: Final = 1_000

_Entry = Program | CelCompileError


class ProgramCache:
    """A least-recently-used cache of programs.

    Expressions of DeviceClasses (owner "") have a quarter of the bytes to themselves; namespaces share the rest. A full cache
    evicts programs of the namespace that holds the most bytes.
    """

    def __init__(
        self,
        max_bytes: int = PROGRAM_BYTES,
        *,
        emulate: Release = LATEST,
        rewrite: Callable[[str], str] | None = None,
    ) -> None:
        """Begin empty; programs use the libraries of one release. `rewrite` changes an expression before it is compiled."""
        self._emulate = emulate
        self._rewrite = rewrite
        share = max_bytes // _CLASS_SHARE
        self._class_programs: FairCache[tuple[str, bool], _Entry] = FairCache(share)
        self._namespace_programs: FairCache[tuple[str, bool], _Entry] = FairCache(max_bytes - share)

    def __len__(self) -> int:
        return len(self._class_programs) + len(self._namespace_programs)

    @property
    def held(self) -> int:
        """The estimated bytes of all entries."""
        return self._class_programs.held + self._namespace_programs.held

    def compile(
        self, expression: str, *, derived: bool = False, budget: Budget | None = None, owner: str = ""
    ) -> Program:
        """Return the program of a selector, or of a derived attribute.

        Args:
            expression: Its text.
            derived: Compile for `Program.attribute` instead of `Program.matches`.
            budget: Charged for compiling; a cached program costs nothing.
            owner: The namespace that the cache charges for the program, or empty for administrators.

        Raises:
            CelCompileError: The expression is not valid; the error is cached, too.
            CelBudgetError: The budget was spent before the expression was compiled.
        """
        key = (expression, derived)
        known = self._class_programs.get(key) or self._namespace_programs.get(key)
        if known is None:
            if budget is not None:
                budget.afford("the compilation")
            known = self._compile(key, budget, owner)
            cache = self._namespace_programs if owner else self._class_programs
            cache.put(key, known, getsizeof(expression) + _size(known), owner)
        if isinstance(known, Program):
            return known
        raise CelCompileError(known.reason, known.source, known.offset)

    def _compile(self, key: tuple[str, bool], budget: Budget | None, owner: str) -> _Entry:
        expression, derived = key
        if self._rewrite is not None:
            if budget is not None:
                budget.spend(REWRITE_UNITS * len(expression))
            expression = self._rewrite(expression)
        try:
            return compile_expression(expression, derived=derived, emulate=self._emulate, budget=budget, owner=owner)
        except CelCompileError as error:
            return error.with_traceback(None)


def _size(entry: _Entry) -> int:
    """Return the estimated bytes of a program or an error, without the expression."""
    if isinstance(entry, Program):
        return entry.size
    return 3 * getsizeof(entry.reason) + _FAILURE_BYTES
