"""CEL equality and the keys of maps.

Equality differs from that of Python: a bool is no number, and a quantity or version compares with its own type only. Looking up a
long key takes long, and so does a key among others with the same hash: both are charged.
"""

from collections.abc import Mapping
from typing import Any, Final

from dra_extender.cel.cost import COMPARISON_WORK, EvaluationFrame
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.lists import Elements, index_of, same_elements, types_of
from dra_extender.cel.native.strings import SAME
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.named_formats import NamedFormat
from dra_extender.cel.values.network import Cidr, IpAddress, Url
from dra_extender.cel.values.quantity import Quantity, QuantitySum
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.times import Duration, Timestamp
from dra_extender.cel.values.values import CONTAINERS, LISTS, MAPS, NUMBERS, DoubleKey, Optional, entry, no_overload

STRICT: Final = frozenset({Quantity, QuantitySum, Semver, IpAddress, Cidr, Url, NamedFormat})
"""Types that have no equality with other types: comparing them is an error, as in cel-go's libraries of Kubernetes."""
_STRICT_PEERS: Final[Mapping[type, type]] = {**{kind: kind for kind in STRICT}, QuantitySum: Quantity}
"""The one type that a value of a strict type compares with, if it stands on the left."""

_ABSENT: Final = object()
_FEW: Final = 8
_LONG: Final = 128
_MOST_PAIRS: Final = 1_000
_INTEGERS: Final = frozenset({int, Uint})
_STRINGS: Final = frozenset({str})
_TEXTS: Final = frozenset({str, bytes})
_NESTED: Final = CONTAINERS | {Optional}
_LONG_KEY: Final = 64
_OF_ONE_HASH: Final[Mapping[type, int]] = {Duration: 16, Timestamp: 800, DoubleKey: 160}
"""Units for the most keys of a type that can have one hash: Python reduces numbers modulo 2**61 - 1."""
_ANY_NUMBER: Final = frozenset({IpAddress, Cidr})
"""Types of whose values any number has one hash."""


def equal(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    """Return whether two values are equal; numbers compare across types, everything else only within its type.

    If `left` is of a strict type, and `right` of another type or a sum of quantities, it is a CelRuntimeError. With both sides
    swapped the result is false, or that of a comparison.
    """
    kind, right_kind = type(left), type(right)
    if kind in STRICT:
        if right_kind is _STRICT_PEERS[kind]:
            return _strictly_equal(frame, left, right)
        if right is None:
            return False
        raise no_overload(left, right)
    if kind in _NESTED:
        return _equal_containers(frame, left, right)
    if kind is right_kind:
        if kind in _TEXTS and len(left) == len(right) >= _LONG:
            return bool(SAME.call(frame, left, right))
        return bool(left == right)
    if kind in NUMBERS and right_kind in NUMBERS:
        return float(left) == float(right) if float in {kind, right_kind} else bool(left == right)
    return False


def _strictly_equal(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    """Return whether two values of a strict type are equal; the length of versions and URLs is charged."""
    if type(left) is Semver or type(left) is Url:
        frame.spend(len(left.text))
    return bool(left == right)


def _equal_containers(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    """Return whether two containers are equal; a pair that occurs again, as in a tree that shares branches, is compared once."""
    pairs = frame.same
    if pairs is None:
        frame.same = set()
        try:
            return _equal_contents(frame, left, right)
        finally:
            frame.same = None
    pair = (id(left), id(right))
    if pair in pairs:
        return True
    if not _equal_contents(frame, left, right):
        return False
    if len(pairs) < _MOST_PAIRS:
        pairs.add(pair)
    return True


def _equal_contents(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    frame.spend(COMPARISON_WORK)
    if type(left) in LISTS:
        if type(right) not in LISTS or len(left) != len(right):
            return False
        if len(left) > _FEW and _compares_natively(frame, left) and _compares_natively(frame, right):
            return same_elements(frame, left, right)
        for left_element, right_element in zip(left, right, strict=True):
            frame.spend(COMPARISON_WORK)
            if not elements_equal(frame, left_element, right_element):
                return False
        return True
    if type(left) in MAPS:
        return type(right) in MAPS and len(left) == len(right) and _equal_maps(frame, left, right)
    if not isinstance(right, Optional) or left.present is not right.present:
        return False
    return not left.present or equal(frame, left.value, right.value)


def _equal_maps(frame: EvaluationFrame, left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    for key, value in left.items():
        frame.spend(COMPARISON_WORK + key_work(key, len(right)))
        right_value = _value_of_key(right, key)
        if right_value is _ABSENT or not elements_equal(frame, value, right_value):
            return False
    return True


def _value_of_key(values: Mapping[Any, Any], key: Any) -> Any:
    """Return the value of another map's dict key; a marker object if there is none."""
    if type(key) is not DoubleKey:
        return values.get(key, _ABSENT)
    try:
        return entry(values, key.value)
    except KeyError:
        return _ABSENT


def _compares_natively(frame: EvaluationFrame, values: Elements) -> bool:
    """Return whether Python compares the elements as CEL does, which is faster."""
    kinds = types_of(frame, values)
    return kinds <= _INTEGERS or kinds <= _STRINGS


def elements_equal(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    """Return whether two values inside of containers are equal; a strict type and another type are unequal there, not an error."""
    if type(left) in STRICT:
        return type(right) in STRICT and _strictly_equal(frame, left, right)
    return equal(frame, left, right)


def equal_or_false(frame: EvaluationFrame, left: Any, right: Any) -> bool:
    """Return whether two values are equal; false if there is no such comparison."""
    try:
        return equal(frame, left, right)
    except CelRuntimeError as error:
        if type(error) is CelRuntimeError:
            return False
        raise


def first_index(frame: EvaluationFrame, element: Any, values: Elements, *, mirrored: bool = False) -> int:
    """Return the index of the first element equal to `element`, or -1; `mirrored` puts the elements on the left side."""
    kind = type(element)
    if len(values) > _FEW and (kind in _INTEGERS or kind in _STRINGS) and _compares_natively(frame, values):
        frame.spend(COMPARISON_WORK)
        if (kind in _STRINGS) is not (type(values[0]) in _STRINGS):
            return -1
        return index_of(frame, values, element)
    for place, value in enumerate(values):
        frame.spend(COMPARISON_WORK)
        if equal_or_false(frame, value, element) if mirrored else equal_or_false(frame, element, value):
            return place
    return -1


def contains_element(frame: EvaluationFrame, element: Any, values: Elements) -> bool:
    return first_index(frame, element, values) >= 0


def key_work(key: Any, size: int) -> int:
    """Return the work of looking up a dict key in a map of this size at worst; 0 for short keys."""
    kind = type(key)
    if kind is str:
        return len(key) >> 4 if len(key) > _LONG_KEY else 0
    if kind in _ANY_NUMBER:
        return 3 * size
    return min(_OF_ONE_HASH.get(kind, 0), 4 * size)


def charge_key(frame: EvaluationFrame, key: Any, size: int) -> None:
    work = key_work(key, size)
    if work:
        frame.begin_call("a map's key", work)
