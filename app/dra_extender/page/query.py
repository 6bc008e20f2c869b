"""What the query of an address asks for: a page of a long list, or a pod."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from dra_extender.model.metadata import split_key

T = TypeVar("T")

_DIGITS: Final = 6


Query = Mapping[str, str]


class QueryError(ValueError):
    """The query cannot be meant; the message names the field, and says what was expected."""


class ListPart(NamedTuple):
    """A page of a list of `total` entries, `first` to `last` of them, both counted from 1."""

    page: int
    pages: int
    first: int
    last: int
    total: int

    def of(self, entries: Sequence[T]) -> Sequence[T]:
        """The entries on this page."""
        return entries[self.first - 1 : self.last]


def part_of(total: int, size: int, page: int) -> ListPart:
    """Page `page` of `total` entries with `size` on each; a list without entries has one page.

    Raises:
        QueryError: there is no such page.
    """
    pages = max(1, -(-total // size))
    if not 1 <= page <= pages:
        raise QueryError(f"page: expected 1 to {pages}, got {page}")
    first = (page - 1) * size + 1
    return ListPart(page, pages, first, min(total, page * size), total)


def number(query: Query, name: str) -> int:
    """The number that is asked for under this name, such as a page; 1 if none is.

    Raises:
        QueryError: it is no number from 1.
    """
    text = query.get(name, "")
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise QueryError(f"{name}: expected a number from 1, got {text[:40]!r}")
    return int(text)


def pod_key(query: Query) -> tuple[str, str] | None:
    """Namespace and name of the pod that is asked for; None if none is.

    Raises:
        QueryError: expected both.
    """
    text = query.get("pod", "")
    namespace, name = split_key(text)
    if not text:
        return None
    if not (namespace and name):
        raise QueryError(f"pod: expected namespace/name, got {text[:80]!r}")
    return namespace, name
