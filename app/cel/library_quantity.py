"""The Kubernetes quantity library."""

from typing import Final

from app.cel.cost import first_traversed
from app.cel.declarations import function, method, overload, weighed
from app.cel.errors import CelRuntimeError
from app.cel.quantities import (
    Quantity,
    QuantitySum,
    added,
    as_float,
    as_integer,
    is_quantity,
    quantity,
    subtracted,
    whole_number,
)
from app.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING


def _compare(one: Quantity, other: Quantity) -> int:
    return (one.nano > other.nano) - (one.nano < other.nano)


def _as_integer(value: Quantity) -> int:
    number = as_integer(value)
    if number is None:
        raise CelRuntimeError("cannot convert value to integer")
    return number


def _add_number(one: Quantity, number: int) -> QuantitySum:
    return added(one, whole_number(number))


def _sub_number(one: Quantity, number: int) -> QuantitySum:
    return subtracted(one, whole_number(number))


_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)

FUNCTIONS: Final = (
    weighed(80, function("quantity", overload((STRING,), QUANTITY, quantity), extra=first_traversed)),
    weighed(80, function("isQuantity", overload((STRING,), BOOL, is_quantity), extra=first_traversed)),
    function("sign", overload((QUANTITY,), INT, lambda value: (value.nano > 0) - (value.nano < 0))),
    function("isGreaterThan", method(_PAIR, BOOL, lambda one, other: one.nano > other.nano)),
    function("isLessThan", method(_PAIR, BOOL, lambda one, other: one.nano < other.nano)),
    function("compareTo", method(_PAIR, INT, _compare)),
    function("asInteger", method((QUANTITY,), INT, _as_integer)),
    function("isInteger", method((QUANTITY,), BOOL, lambda value: as_integer(value) is not None)),
    function("asApproximateFloat", method((QUANTITY,), DOUBLE, as_float)),
    function("add", method(_PAIR, QUANTITY, added), method(_WITH_INT, QUANTITY, _add_number)),
    function("sub", method(_PAIR, QUANTITY, subtracted), method(_WITH_INT, QUANTITY, _sub_number)),
)
