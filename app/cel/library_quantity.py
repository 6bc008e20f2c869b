"""The Kubernetes quantity library."""

from typing import Final

from app.cel.cost import first_traversed
from app.cel.declarations import function, method, overload, weighed
from app.cel.errors import CelRuntimeError
from app.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from app.cel.values import MAX_INT, MIN_INT, Quantity, QuantitySum
from app.model.quantity import NANO, QuantityError, parse_quantity


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(parse_quantity(text))
    except QuantityError as error:
        raise CelRuntimeError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _compare(one: Quantity, other: Quantity) -> int:
    return (one.nano > other.nano) - (one.nano < other.nano)


def _is_integer(value: Quantity) -> bool:
    return value.nano % NANO == 0 and MIN_INT <= value.nano // NANO <= MAX_INT


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise CelRuntimeError("cannot convert value to integer")
    return value.nano // NANO


_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)

FUNCTIONS: Final = (
    weighed(80, function("quantity", overload((STRING,), QUANTITY, _quantity), extra=first_traversed)),
    weighed(80, function("isQuantity", overload((STRING,), BOOL, _is_quantity), extra=first_traversed)),
    function("sign", overload((QUANTITY,), INT, lambda value: (value.nano > 0) - (value.nano < 0))),
    function("isGreaterThan", method(_PAIR, BOOL, lambda one, other: one.nano > other.nano)),
    function("isLessThan", method(_PAIR, BOOL, lambda one, other: one.nano < other.nano)),
    function("compareTo", method(_PAIR, INT, _compare)),
    function("asInteger", method((QUANTITY,), INT, _as_integer)),
    function("isInteger", method((QUANTITY,), BOOL, _is_integer)),
    function("asApproximateFloat", method((QUANTITY,), DOUBLE, lambda value: value.nano / NANO)),
    function(
        "add",
        method(_PAIR, QUANTITY, lambda one, other: QuantitySum(one.nano + other.nano)),
        method(_WITH_INT, QUANTITY, lambda one, number: QuantitySum(one.nano + number * NANO)),
    ),
    function(
        "sub",
        method(_PAIR, QUANTITY, lambda one, other: QuantitySum(one.nano - other.nano)),
        method(_WITH_INT, QUANTITY, lambda one, number: QuantitySum(one.nano - number * NANO)),
    ),
)
