"""Long lists of values in little memory."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")

FEW: Final = 16
"""Lists that are no longer than this stay tuples."""
_LONG_BYTES: Final = 4096
_FASTEST: Final = 1


class CompressedList(Sequence[T], Generic[T]):
    """A long list of values of the model, kept as JSON and decoded for each reader; it takes a fraction of the memory.

    JSON longer than 4 KiB is compressed, so that a list takes less than its object.

    Two are equal if they have the same entries; one is never equal to a tuple.
    """

    __slots__ = ("_compressed", "_count", "_data", "_kind")

    def __init__(self, values: Sequence[T], kind: type[T]) -> None:
        data = msgspec.json.encode(values)
        self._compressed = len(data) > _LONG_BYTES
        self._data = zlib.compress(data, _FASTEST) if self._compressed else data
        self._count = len(values)
        self._kind = kind

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._values())

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._values()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompressedList) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def _values(self) -> tuple[T, ...]:
        data = zlib.decompress(self._data) if self._compressed else self._data
        values: tuple[T, ...] = msgspec.json.decode(data, type=tuple[self._kind, ...])  # type: ignore[name-defined]
        return values


def packed(values: tuple[T, ...], kind: type[T], parts: int = 0) -> Sequence[T]:
    """Return the values as a tuple if they and the `parts` of all of them together are few, else compressed."""
    return values if max(len(values), parts) <= FEW else CompressedList(values, kind)
