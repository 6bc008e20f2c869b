"""The Kubernetes quantity library."""

from typing import Final

from dra_extender.cel.cost import first_traversed
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import TEXT, NativeFunction
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from dra_extender.cel.values.quantity import (
    MAX_LENGTH,
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


def _text_work(text: str) -> int:
    return _READ_WORK + 2 * min(len(text), MAX_LENGTH) + (len(text) >> 8)


def _number_work(*amounts: Quantity) -> int:
    return _DECIMAL_WORK if any(amount.decimal or amount.scale > _SCALE for amount in amounts) else _WORK


_READ_WORK: Final = 150
_WORK: Final = 60
_SCALE: Final = 18
_DECIMAL_WORK: Final = 200
"""The work of numbers with up to two thousand digits."""
READ: Final = NativeFunction("quantity", (TEXT,), quantity, _text_work)
ASK: Final = NativeFunction("isQuantity", (TEXT,), is_quantity, _text_work)
ADD: Final = NativeFunction("add", (QUANTITY.name, QUANTITY.name), added, _number_work)
SUBTRACT: Final = NativeFunction("sub", (QUANTITY.name, QUANTITY.name), subtracted, _number_work)
AS_FLOAT: Final = NativeFunction("asApproximateFloat", (QUANTITY.name,), as_float, _number_work)

_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)

FUNCTIONS: Final = (
    function("quantity", overload((STRING,), QUANTITY, READ), extra=first_traversed),
    function("isQuantity", overload((STRING,), BOOL, ASK), extra=first_traversed),
    function("sign", overload((QUANTITY,), INT, lambda value: (value.nano > 0) - (value.nano < 0))),
    function("isGreaterThan", method(_PAIR, BOOL, lambda one, other: one.nano > other.nano)),
    function("isLessThan", method(_PAIR, BOOL, lambda one, other: one.nano < other.nano)),
    function("compareTo", method(_PAIR, INT, _compare)),
    function("asInteger", method((QUANTITY,), INT, _as_integer)),
    function("isInteger", method((QUANTITY,), BOOL, lambda value: as_integer(value) is not None)),
    function("asApproximateFloat", method((QUANTITY,), DOUBLE, AS_FLOAT)),
    function("add", method(_PAIR, QUANTITY, ADD), method(_WITH_INT, QUANTITY, _add_number)),
    function("sub", method(_PAIR, QUANTITY, SUBTRACT), method(_WITH_INT, QUANTITY, _sub_number)),
)
