"""The trail of a search: its changes of state, to be undone in reverse order."""

from collections.abc import MutableMapping
from typing import Any, Final

_ABSENT: Final = object()
_APPENDED: Final = object()


class Trail:
    """Records every change of the search state as (container, key, old value).

    Undoing to a mark restores the state at that mark exactly, after a device that was excluded as after a branch that failed.
    """

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        """Return the present state, for `undo_to`."""
        return len(self._changes)

    def put(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        self._changes.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def append(self, sequence: list[Any], value: Any) -> None:
        """Append to a list that is only ever changed through this trail."""
        self._changes.append((sequence, None, _APPENDED))
        sequence.append(value)

    def undo_to(self, mark: int) -> None:
        """Undo every change made since `mark`, the latest first."""
        changes = self._changes
        while len(changes) > mark:
            container, key, old = changes.pop()
            if old is _APPENDED:
                container.pop()
            elif old is _ABSENT:
                del container[key]
            else:
                container[key] = old
