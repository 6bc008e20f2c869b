"""Compiled programs by expression, bounded, with failures remembered too."""

from collections import OrderedDict

from app.cel.errors import CelCompileError
from app.cel.program import Program, compile_expression


class ProgramCache:
    """A least-recently-used cache; one caller at a time."""

    def __init__(self, max_entries: int = 4096) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[str, Program | CelCompileError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, expression: str) -> Program:
        """The program of an expression.

        Raises:
            CelCompileError: The expression is not valid; it is not compiled again to find that out.
        """
        known = self._entries.get(expression)
        if known is None:
            known = self._compile(expression)
        else:
            self._entries.move_to_end(expression)
        if isinstance(known, Program):
            return known
        raise CelCompileError(known.reason, known.source, known.offset)

    def _compile(self, expression: str) -> Program | CelCompileError:
        try:
            entry: Program | CelCompileError = compile_expression(expression)
        except CelCompileError as error:
            entry = error.with_traceback(None)
        self._entries[expression] = entry
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return entry
