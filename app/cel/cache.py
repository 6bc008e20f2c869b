"""Compiled programs by expression and purpose, bounded, with failures remembered too."""

from collections import OrderedDict
from collections.abc import Callable

from app.cel.environment import LATEST, Release
from app.cel.errors import CelCompileError
from app.cel.program import Program, compile_expression


class ProgramCache:
    """A least-recently-used cache; one caller at a time."""

    def __init__(
        self,
        max_entries: int = 4096,
        *,
        emulate: Release = LATEST,
        rewrite: Callable[[str], str] | None = None,
    ) -> None:
        """Begin with nothing; all programs are compiled for the libraries of one release, after `rewrite` if it is given."""
        self._max_entries = max_entries
        self._emulate = emulate
        self._rewrite = rewrite
        self._entries: OrderedDict[tuple[str, bool], Program | CelCompileError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, expression: str, *, derived: bool = False) -> Program:
        """The program of a selector, or of a derived attribute.

        Raises:
            CelCompileError: The expression is not valid; it is not compiled again to find that out.
        """
        key = (expression, derived)
        known = self._entries.get(key)
        if known is None:
            known = self._compile(key)
        else:
            self._entries.move_to_end(key)
        if isinstance(known, Program):
            return known
        raise CelCompileError(known.reason, known.source, known.offset)

    def _compile(self, key: tuple[str, bool]) -> Program | CelCompileError:
        expression, derived = key
        if self._rewrite is not None:
            expression = self._rewrite(expression)
        try:
            entry: Program | CelCompileError = compile_expression(expression, derived=derived, emulate=self._emulate)
        except CelCompileError as error:
            entry = error.with_traceback(None)
        self._entries[key] = entry
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return entry
