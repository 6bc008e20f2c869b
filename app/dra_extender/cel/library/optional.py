"""Optional values; the selections `.?` and `[?]` belong to the compiler."""

from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import BOOL, list_of, optional_of, variable
from dra_extender.cel.values.times import Duration, Timestamp, parse_timestamp
from dra_extender.cel.values.values import NONE, Optional

_ZERO_TIMES: Final = (Duration(0), parse_timestamp("0001-01-01T00:00:00Z"))


def _is_empty(value: Any) -> bool:
    """Whether a value is the zero of its type, for optional.ofNonZeroValue."""
    if isinstance(value, str | bytes | list | tuple | dict | int | float):
        return not value
    if isinstance(value, Duration | Timestamp):
        return value in _ZERO_TIMES
    return value is None


def _value(item: Optional) -> Any:
    if not item.present:
        raise CelRuntimeError("optional.none() dereference")
    return item.value


def _first(values: list[Any]) -> Optional:
    return Optional(present=True, value=values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return Optional(present=True, value=values[-1]) if values else NONE


def _unwrap(frame: EvaluationFrame, values: list[Any]) -> list[Any]:
    unwrapped: list[Any] = []
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        frame.spend(_ELEMENT_WORK * len(piece))
        if not all(isinstance(item, Optional) for item in piece):
            raise CelRuntimeError("unwrap: an element is not optional")
        unwrapped.extend(item.value for item in piece if item.present)
    return unwrapped


def some(value: Any) -> Optional:
    """An optional that holds a value."""
    return Optional(present=True, value=value)


_PIECE: Final = 64
"""Elements that are unwrapped between two checks of the limits."""
_ELEMENT_WORK: Final = 8
_V: Final = variable("V")
_OPTIONAL: Final = optional_of(_V)
_LIST: Final = list_of(_V)
_OPTIONALS: Final = list_of(_OPTIONAL)

LAZY: Final = frozenset({"or", "orValue"})
"""Functions that evaluate their argument only if their target is empty, and cost nothing."""

FUNCTIONS: Final = (
    function("optional.of", overload((_V,), _OPTIONAL, some)),
    function(
        "optional.ofNonZeroValue", overload((_V,), _OPTIONAL, lambda value: NONE if _is_empty(value) else some(value))
    ),
    function("optional.none", overload((), _OPTIONAL, lambda: NONE)),
    function("value", method((_OPTIONAL,), _V, _value)),
    function("hasValue", method((_OPTIONAL,), BOOL, lambda item: item.present)),
    function("or", method((_OPTIONAL, _OPTIONAL), _OPTIONAL, lambda one, other: one if one.present else other)),
    function("orValue", method((_OPTIONAL, _V), _V, lambda item, other: item.value if item.present else other)),
    function("first", method((_LIST,), _OPTIONAL, _first)),
    function("last", method((_LIST,), _OPTIONAL, _last)),
    function("optional.unwrap", overload((_OPTIONALS,), _LIST, _unwrap, metered=True)),
    function("unwrapOpt", method((_OPTIONALS,), _LIST, _unwrap, metered=True)),
)
