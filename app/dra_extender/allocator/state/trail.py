from collections.abc import MutableMapping
from typing import Any, Final

_ABSENT: Final = object()
_APPENDED: Final = object()


class Trail:
    """The one undo mechanism of a search: every change of search state goes through it and can be taken back.

    Changes are recorded as (container, key, old value) and undone in reverse order, so a refused device and a failed branch
    leave exactly the state they found.
    """

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._changes)

    def put(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set `table[key]`."""
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
