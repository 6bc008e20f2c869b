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
        """Return the program of a selector, or of a derived attribute; arguments are those of `compile_expression`.

        `budget` is charged for compiling, a cached program costs nothing. If it was spent before, it is a CelBudgetError. An
        expression that is not valid is a CelCompileError, which is cached, too.
        """
        key = (expression, derived)
        known = self._class_programs.get(key) or self._namespace_programs.get(key)
        if known is None:
            if budget is not None:
                budget.afford("the compilation")
                budget.spend(0 if self._rewrite is None else REWRITE_UNITS * len(expression))
            text = expression if self._rewrite is None else self._rewrite(expression)
            size = getsizeof(expression)
            try:
                known = compile_expression(text, derived=derived, emulate=self._emulate, budget=budget, owner=owner)
                size += known.size
            except CelCompileError as error:
                known = error.with_traceback(None)
                size += 3 * getsizeof(error.reason) + _FAILURE_BYTES
            (self._namespace_programs if owner else self._class_programs).put(key, known, size, owner)
        if isinstance(known, Program):
            return known
        raise CelCompileError(known.reason, known.source, known.offset)
