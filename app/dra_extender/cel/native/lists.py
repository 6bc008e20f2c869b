"""Native calls on lists: they work on pieces, and limits and deadline are checked between two pieces."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import pairwise
from typing import Any, Final

from dra_extender.cel.cost import PIECE, EvaluationFrame
from dra_extender.cel.native.call import NativeFunction

Elements = list[Any] | tuple[Any, ...]

_TEXTS: Final = frozenset({str, bytes})
_SORTED_PIECE: Final = 1_000
_COMPARED_WORK: Final = 4
"""The work of comparing two elements of a type that defines its own order."""
_ORDERED_WORK: Final = 14
"""The work of looking whether two elements have an order, and of comparing them."""
_DISTINCT_PIECE: Final = 32
_COPY_WORK: Final = 16
"""The work of copying no element."""
_LONG: Final = 64


def _index_of(values: Elements, value: Any, start: int, end: int) -> int:
    try:
        return values.index(value, start, end)
    except ValueError:
        return -1


COPY: Final = NativeFunction(
    "a copy",
    lambda values, start, end: [*values[start:end]],
    lambda _, start, end: _COPY_WORK + max(0, end - start),
)
TYPES: Final = NativeFunction(
    "types",
    lambda values, start, end: set(map(type, values[start:end])),
    lambda _, start, end: 2 * max(0, end - start),
)
SAME_LISTS: Final = NativeFunction(
    "==", lambda left, right: tuple(left) == tuple(right), lambda left, right: len(left) + len(right)
)
INDEX_OF: Final = NativeFunction("in", _index_of, lambda _, __, start, end: 2 * max(0, end - start))
NUMBERS_OF_RANGE: Final = NativeFunction(
    "lists.range",
    lambda start, end: list(range(start, end)),
    lambda start, end: 3 * max(0, end - start) // 2,
)
LENGTHS: Final = NativeFunction(
    "lengths",
    lambda values, start, end: sum(map(len, values[start:end])),
    lambda _, start, end: 2 * max(0, end - start),
)
SORT: Final = NativeFunction(
    "sort",
    lambda keys, start, end: sorted(range(start, end), key=keys.__getitem__),
    lambda _, start, end: sort_work(max(0, end - start)),
)


def sort_work(count: int) -> int:
    """Return the work of sorting this many elements, if none is long."""
    return _COMPARED_WORK * count * count.bit_length()


def pieces(length: int) -> Iterator[tuple[int, int]]:
    """Return the start and the end of each piece of a list of this length."""
    return ((start, min(start + PIECE, length)) for start in range(0, length, PIECE))


def concatenated(frame: EvaluationFrame, *lists: Elements) -> list[Any]:
    """Return a new list with the elements of all lists."""
    frame.require_list(sum(map(len, lists)))
    elements: list[Any] = []
    for values in lists:
        for start, end in pieces(len(values)):
            elements += COPY.call(frame, values, start, end)
    return elements


def types_of(frame: EvaluationFrame, values: Elements) -> set[type]:
    if len(values) <= PIECE:
        return set(TYPES.call(frame, values, 0, len(values)))
    kinds: set[type] = set()
    for start, end in pieces(len(values)):
        kinds |= TYPES.call(frame, values, start, end)
    return kinds


def charge_texts(frame: EvaluationFrame, values: Elements, start: int, end: int, shift: int) -> None:
    """Charge the characters of texts before they are read, a unit for each 2**shift."""
    frame.spend(LENGTHS.call(frame, values, start, end) >> shift)


def number_range(frame: EvaluationFrame, count: int) -> list[int]:
    numbers: list[int] = []
    for start, end in pieces(count):
        numbers += NUMBERS_OF_RANGE.call(frame, start, end)
    return numbers


def index_of(frame: EvaluationFrame, values: Elements, value: Any) -> int:
    """Return the index of the first element that equals `value` in Python, -1 if there is none; elements are numbers or texts."""
    length = len(value) if type(value) in _TEXTS else 0
    for start, end in pieces(len(values)):
        if length > _LONG:
            frame.begin_call("a search for a long text in a list", (end - start) * (length >> 7))
        place: int = INDEX_OF.call(frame, values, value, start, end)
        if place >= 0:
            return place
    return -1


def same_elements(frame: EvaluationFrame, left: Elements, right: Elements) -> bool:
    """Return whether two lists of one length are equal in Python; elements are numbers or texts."""
    texts = bool(left) and type(left[0]) in _TEXTS
    for start, end in pieces(len(left)):
        if texts:
            charge_texts(frame, left, start, end, 7)
        if not SAME_LISTS.call(frame, left[start:end], right[start:end]):
            return False
    return True


def sorted_indexes(frame: EvaluationFrame, keys: Elements) -> Iterable[int]:
    """Return the indexes of keys of one type in ascending order of the keys; the sort is stable."""
    if type(keys[0]) in _TEXTS:
        for start, end in pieces(len(keys)):
            frame.begin_call(
                "a sort of long texts", LENGTHS.call(frame, keys, start, end) * len(keys).bit_length() >> 5
            )
    if len(keys) <= _SORTED_PIECE:
        return list(SORT.call(frame, keys, 0, len(keys)))
    runs = [
        SORT.call(frame, keys, start, min(start + _SORTED_PIECE, len(keys)))
        for start in range(0, len(keys), _SORTED_PIECE)
    ]
    step = _MERGE_WORK + _COMPARED_WORK * len(runs).bit_length()
    order = []
    for place in merge(*runs, key=keys.__getitem__):
        frame.spend(step)
        order.append(place)
    return order


_MERGE_WORK: Final = 10


def distinct_by_hash(frame: EvaluationFrame, values: Elements) -> list[Any]:
    """Return the distinct elements in their order; Python compares their one type as CEL does. Hash collisions are charged."""
    if type(values[0]) in _TEXTS:
        for start, end in pieces(len(values)):
            charge_texts(frame, values, start, end, 4)
    unique: dict[Any, None] = {}
    for start in range(0, len(values), _DISTINCT_PIECE):
        piece = values[start : start + _DISTINCT_PIECE]
        frame.spend(_DISTINCT_PIECE + len(piece) * len(unique))
        unique.update(dict.fromkeys(piece))
    return list(unique)


def adjacent_pairs(frame: EvaluationFrame, values: Elements) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of each element and the next; the comparison of the two is charged."""
    for left, right in pairwise(values):
        frame.spend(ordering_work(left, right))
        yield left, right


def ordering_work(left: Any, right: Any) -> int:
    """Return the work of ordering two elements; texts are compared up to the end of the shorter one."""
    if type(left) in _TEXTS and type(right) in _TEXTS:
        return _ORDERED_WORK + (min(len(left), len(right)) >> 4)
    return _ORDERED_WORK
