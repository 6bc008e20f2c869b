"""Compiled programs by expression and purpose, and the errors of expressions that do not compile; bounded in bytes."""

from collections.abc import Callable
from sys import getsizeof
from typing import Final

from dra_extender.cel.library.environment import LATEST, Release
from dra_extender.cel.program import Program, compile_expression
from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.runtime.compile_limits import REWRITE_UNITS
from dra_extender.cel.support.errors import CelCompileError
from dra_extender.runtime.caches import FairCache

PROGRAM_BYTES: Final = 16 * 1024 * 1024
_OF_CLASSES: Final = 4
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
        """Begin empty; programs are compiled for the libraries of one release, after `rewrite` if it is given."""
        self._emulate = emulate
        self._rewrite = rewrite
        share = max_bytes // _OF_CLASSES
        self._of_classes: FairCache[tuple[str, bool], _Entry] = FairCache(share)
        self._of_namespaces: FairCache[tuple[str, bool], _Entry] = FairCache(max_bytes - share)

    def __len__(self) -> int:
        return len(self._of_classes) + len(self._of_namespaces)

    @property
    def held(self) -> int:
        """The bytes of all entries, by estimate."""
        return self._of_classes.held + self._of_namespaces.held

    def compile(
        self, expression: str, *, derived: bool = False, budget: Budget | None = None, owner: str = ""
    ) -> Program:
        """The program of a selector, or of a derived attribute.

        Args:
            expression: Its text.
            derived: Compile for `Program.attribute` instead of `Program.matches`.
            budget: What the caller may spend, on compiling too; a program that is kept costs nothing.
            owner: Whose share of the cache the program takes: a namespace, or empty for administrators.

        Raises:
            CelCompileError: The expression is not valid; it is not compiled again to find that out.
            CelBudgetError: The budget was spent before; nothing is said about the expression.
        """
        key = (expression, derived)
        known = self._of_classes.get(key) or self._of_namespaces.get(key)
        if known is None:
            if budget is not None:
                budget.afford("the compilation")
            known = self._compile(key, budget, owner)
            kept = self._of_namespaces if owner else self._of_classes
            kept.put(key, known, getsizeof(expression) + _size(known), owner)
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
    """The bytes of a program or a failure beside the expression, by estimate."""
    if isinstance(entry, Program):
        return entry.size
    return 3 * getsizeof(entry.reason) + _FAILURE_BYTES
