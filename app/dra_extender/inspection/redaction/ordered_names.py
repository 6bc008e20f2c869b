"""Other names in the order of the names that they replace."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final

_DIGITS: Final = "0123456789abcdef"
_LENGTH: Final = 11
_MARK: Final = "r"
_BELOW: Final = ("0", "-0", ".0", "A", "+", "")


class UnorderableNameError(ValueError):
    """There is no name between two that have to stay; the message has these two."""


class OrderedNames:
    """Learns names with `of`; after `resolve`, `of` answers with the other names.

    The other names compare as the names do, are as different, and say nothing of them.  They are words of letters and digits that
    begin with a letter where no name has to stay.  Names that have to stay are given to `keep` before `resolve`.
    """

    def __init__(self, ending: str = "") -> None:
        """Every other name ends with `ending`."""
        self._ending = ending
        self._known: set[str] = set()
        self._kept: set[str] = set()
        self._others: dict[str, str] = {}
        self._resolved = False

    @property
    def kept(self) -> frozenset[str]:
        """The names that stay and occur."""
        return frozenset(self._kept & self._known)

    @property
    def others(self) -> dict[str, str]:
        """The other name of each name, after `resolve`."""
        return self._others

    def keep(self, *names: str) -> None:
        """Have these names stay as they are."""
        self._kept.update(names)

    def of(self, name: str) -> str:
        """The other name; before `resolve`, the name itself.  The empty text stays."""
        if not name:
            return name
        if self._resolved:
            return self._others[name]
        self._known.add(name)
        return name

    def resolve(self, random: Random) -> None:
        """Give a name to each name.

        Raises:
            UnorderableNameError: names have to stay that leave no room for others between them.
        """
        self._resolved = True
        self._others = {name: name for name in self._kept}
        fences = sorted(self._kept)
        parts = _parts(sorted(self._known - self._kept), fences)
        for (lower, upper), names in zip(pairwise(["", *fences, ""]), parts, strict=True):
            if names:
                prefix = _prefix(lower, upper)
                self._others.update(zip(names, _drawn(random, prefix, len(names), self._ending), strict=True))

    def end(self, name: str, ending: str) -> None:
        """After `resolve`: put this behind the other name of a name that does not stay."""
        if name and name not in self._kept:
            self._others[name] += ending


def _parts(names: Sequence[str], fences: Sequence[str]) -> Iterator[list[str]]:
    """The names below the first fence, between each two, and above the last."""
    rest = iter(names)
    name = next(rest, None)
    for fence in [*fences, None]:
        part = []
        while name is not None and (fence is None or name < fence):
            part.append(name)
            name = next(rest, None)
        yield part


def _prefix(lower: str, upper: str) -> str:
    """A beginning such that every text that begins so stands between the two (an empty upper one: above the lower)."""
    if not upper:
        return lower + "0" if lower else ""
    bases = [lower] if not upper.startswith(lower) else [upper[:end] for end in range(len(lower), len(upper))]
    for base in bases:
        for ending in _BELOW:
            found = base + ending
            if lower < found < upper and not upper.startswith(found):
                return found
    raise UnorderableNameError(f"{lower!r} and {upper!r} have to stay, and no name stands between them")


def _drawn(random: Random, prefix: str, count: int, ending: str) -> list[str]:
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(random.choices(_DIGITS, k=_LENGTH)))
    return [f"{prefix}{_MARK}{each}{ending}" for each in sorted(found)]
