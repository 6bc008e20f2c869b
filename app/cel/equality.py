"""CEL equality, which differs from Python's: a bool is no number, and quantities and versions refuse strangers."""

from typing import Any, Final

from app.cel.addresses import Cidr, IpAddress
from app.cel.cost import Frame
from app.cel.errors import CelRuntimeError
from app.cel.named_formats import NamedFormat
from app.cel.semver import Semver
from app.cel.urls import Url
from app.cel.values import LISTS, MAPS, NUMBERS, Optional, Quantity, no_overload

STRICT: Final = frozenset({Quantity, Semver, IpAddress, Cidr, Url, NamedFormat})
"""Types that refuse to be compared with others."""

_CONTAINERS: Final = LISTS | MAPS | {Optional}


def equal(frame: Frame, one: Any, other: Any) -> bool:
    """Whether two values are equal; numbers compare across types, everything else only within its type.

    Raises:
        CelRuntimeError: A quantity or version on the left meets another type; the mirrored comparison is just false.
        CelCostError: The values are too large to compare.
    """
    kind, other_kind = type(one), type(other)
    if kind in STRICT:
        if kind is other_kind:
            return bool(one == other)
        if other is None:
            return False
        raise no_overload(one, other)
    if kind in _CONTAINERS:
        return _equal_containers(frame, one, other)
    if kind is other_kind:
        return bool(one == other)
    if kind in NUMBERS and other_kind in NUMBERS:
        return float(one) == float(other) if float in {kind, other_kind} else bool(one == other)
    return False


def _equal_containers(frame: Frame, one: Any, other: Any) -> bool:
    if type(one) in LISTS:
        if type(other) not in LISTS or len(one) != len(other):
            return False
        frame.spend(len(one))
        return all(_element_equal(frame, left, right) for left, right in zip(one, other, strict=True))
    if type(one) in MAPS:
        if type(other) not in MAPS or len(one) != len(other):
            return False
        frame.spend(len(one))
        return all(key in other and _element_equal(frame, value, other[key]) for key, value in one.items())
    if not isinstance(other, Optional) or one.present is not other.present:
        return False
    frame.spend(1)
    return not one.present or equal(frame, one.value, other.value)


def _element_equal(frame: Frame, one: Any, other: Any) -> bool:
    """Inside of containers strangers are not equal rather than an error."""
    if type(one) in STRICT:
        return bool(one == other)
    return equal(frame, one, other)


def matches(frame: Frame, one: Any, other: Any) -> bool:
    """Whether two values are equal, where a comparison that does not exist counts as "no"."""
    try:
        return equal(frame, one, other)
    except CelRuntimeError as error:
        if type(error) is CelRuntimeError:
            return False
        raise


def contains_element(frame: Frame, element: Any, values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list has an element equal to this one."""
    frame.spend(len(values))
    return any(matches(frame, element, value) for value in values)
