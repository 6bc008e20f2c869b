"""Long lists in parts: which page is shown, of how many."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class PageError(ValueError):
    """There is no such page; the message says which there are."""


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
        PageError: there is no such page.
    """
    pages = max(1, -(-total // size))
    if not 1 <= page <= pages:
        raise PageError(f"page: expected 1 to {pages}, got {page}")
    first = (page - 1) * size + 1
    return ListPart(page, pages, first, min(total, page * size), total)


def page_number(text: str) -> int:
    """The number in the query of an address; 1 if it has none.

    Raises:
        PageError: it is no number.
    """
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= 9):  # noqa: PLR2004 - more than any list has
        raise PageError(f"page: expected a number, got {text[:40]!r}")
    return int(text)
