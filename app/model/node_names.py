from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Annotated, Final, overload

import msgspec

from app.model.base import ModelError

_DECODE: Final = msgspec.json.Decoder(list[Annotated[str, msgspec.Meta(max_length=253)]]).decode
_BETWEEN: Final = b'","'
_FIRST_PIECE: Final = 512
_GROWTH: Final = 4


class NodeNames(Sequence[str]):
    """Names of nodes in a JSON list that is decoded as far as it is looked at: mostly the first few of thousands are enough.

    Any access raises ModelError where the list is not one of strings of at most 253 characters.
    """

    __slots__ = ("_decoded", "_raw")

    def __init__(self, raw: bytes) -> None:
        """`raw`: a JSON list without spaces between its items."""
        self._raw = raw
        self._decoded: Sequence[str] | None = None

    @classmethod
    def read(cls, raw: bytes) -> "NodeNames | None":
        """None for anything in which the borders between names cannot be found.

        Nothing but unescaped strings without commas will do: these have two quotes for each comma, and two more.
        """
        plain = raw[:2] == b'["' and raw[-2:] == b'"]' and b"\\" not in raw
        return cls(raw) if plain and raw.count(b'"') == 2 * (raw.count(b",") + 1) else None

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def turned(self, number: int) -> Iterable[str]:
        """All names, beginning somewhere; where, depends on the number alone."""
        raw = self._raw
        border = raw.find(_BETWEEN, 1 + number % len(raw))
        if border < 0:
            return chain.from_iterable(self._pieces(1, len(raw) - 1))
        return chain.from_iterable(chain(self._pieces(border + 2, len(raw) - 1), self._pieces(1, border + 1)))

    def _pieces(self, start: int, end: int) -> Iterator[Sequence[str]]:
        """What stands between these places, in pieces that become larger."""
        raw, size = self._raw, _FIRST_PIECE
        while (border := raw.find(_BETWEEN, start + size, end)) >= 0:
            yield _names(raw[start : border + 1])
            start, size = border + 2, size * _GROWTH
        yield _names(raw[start:end])

    def _all(self) -> Sequence[str]:
        if self._decoded is None:
            self._decoded = _names(self._raw[1:-1])
        return self._decoded


def turned(names: Sequence[str], number: int) -> Iterable[str]:
    """All names, beginning at a place that the number decides."""
    if isinstance(names, NodeNames):
        return names.turned(number)
    start = number % len(names) if names else 0
    return chain(islice(names, start, None), islice(names, start))


def _names(items: bytes) -> list[str]:
    try:
        return _DECODE(b"[%b]" % items)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ModelError(f"names of nodes: {problem}") from problem
