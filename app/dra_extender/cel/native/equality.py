"""CEL equality and the keys of maps.

Equality differs from that of Python: a bool is no number, and a quantity or version compares with its own type only. Looking up a
long key takes long, and so does a key among others with the same hash: both are charged.
"""

from collections.abc import Mapping
from typing import Any, Final

from dra_extender.cel.cost import COMPARISON_WORK, EvaluationFrame
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.lists import Elements as Elements
from dra_extender.cel.native.lists import index_of, same_elements, types_of
from dra_extender.cel.native.strings import SAME
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.named_formats import NamedFormat
from dra_extender.cel.values.network import Cidr, IpAddress, Url
from dra_extender.cel.values.quantity import Quantity, QuantitySum
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.times import Duration, Timestamp
from dra_extender.cel.values.values import LISTS, MAPS, NUMBERS, DoubleKey, Optional, entry, no_overload

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
_CONTAINERS: Final = LISTS | MAPS | {Optional}
_LONG_KEY: Final = 64
_OF_ONE_HASH: Final[Mapping[type, int]] = {Duration: 16, Timestamp: 800, DoubleKey: 160}
"""Units for the most keys of a type that can have one hash: Python reduces numbers modulo 2**61 - 1."""
_ANY_NUMBER: Final = frozenset({IpAddress, Cidr})
"""Types of whose values any number has one hash."""


def equal(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    """Return whether two values are equal; numbers compare across types, everything else only within its type.

    If `one` is of a strict type, and `other` of another type or a sum of quantities, it is a CelRuntimeError. With both sides
    swapped the result is false, or that of a comparison.
    """
    kind, other_kind = type(one), type(other)
    if kind in STRICT:
        if other_kind is _STRICT_PEERS[kind]:
            return _strictly_equal(frame, one, other)
        if other is None:
            return False
        raise no_overload(one, other)
    if kind in _CONTAINERS:
        return _equal_containers(frame, one, other)
    if kind is other_kind:
        if kind in _TEXTS and len(one) == len(other) >= _LONG:
            return bool(SAME.call(frame, one, other))
        return bool(one == other)
    if kind in NUMBERS and other_kind in NUMBERS:
        return float(one) == float(other) if float in {kind, other_kind} else bool(one == other)
    return False


def _strictly_equal(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    """Return whether two values of a strict type are equal; the length of versions and URLs is charged."""
    if type(one) is Semver or type(one) is Url:
        frame.spend(len(one.text))
    return bool(one == other)


def _equal_containers(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    """Return whether two containers are equal; a pair that occurs again, as in a tree that shares branches, is compared once."""
    pairs = frame.same
    if pairs is None:
        frame.same = set()
        try:
            return _equal_contents(frame, one, other)
        finally:
            frame.same = None
    pair = (id(one), id(other))
    if pair in pairs:
        return True
    if not _equal_contents(frame, one, other):
        return False
    if len(pairs) < _MOST_PAIRS:
        pairs.add(pair)
    return True


def _equal_contents(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    if type(one) in LISTS:
        if type(other) not in LISTS or len(one) != len(other):
            return False
        if len(one) > _FEW and _compares_natively(frame, one) and _compares_natively(frame, other):
            return same_elements(frame, one, other)
        for left, right in zip(one, other, strict=True):
            frame.spend(COMPARISON_WORK)
            if not elements_equal(frame, left, right):
                return False
        return True
    if type(one) in MAPS:
        return type(other) in MAPS and len(one) == len(other) and _equal_maps(frame, one, other)
    if not isinstance(other, Optional) or one.present is not other.present:
        return False
    frame.spend(1)
    return not one.present or equal(frame, one.value, other.value)


def _equal_maps(frame: EvaluationFrame, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    for key, value in one.items():
        frame.spend(COMPARISON_WORK + key_work(key, len(other)))
        other_value = _value_of_key(other, key)
        if other_value is _ABSENT or not elements_equal(frame, value, other_value):
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


def elements_equal(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    """Return whether two values inside of containers are equal; a strict type and another type are unequal there, not an error."""
    if type(one) in STRICT:
        return type(other) in STRICT and _strictly_equal(frame, one, other)
    return equal(frame, one, other)


def equal_or_false(frame: EvaluationFrame, one: Any, other: Any) -> bool:
    """Return whether two values are equal; false if there is no such comparison."""
    try:
        return equal(frame, one, other)
    except CelRuntimeError as error:
        if type(error) is CelRuntimeError:
            return False
        raise


def first_index(frame: EvaluationFrame, element: Any, values: Elements, *, mirrored: bool = False) -> int:
    """Return the index of the first element equal to `element`, or -1; `mirrored` puts the elements on the left side."""
    kind = type(element)
    if len(values) > _FEW and (kind in _INTEGERS or kind in _STRINGS) and _compares_natively(frame, values):
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
