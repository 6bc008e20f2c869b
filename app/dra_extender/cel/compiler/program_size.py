"""The bytes of a compiled program: the sum over all that its closures hold."""

from collections.abc import Iterable
from sys import getsizeof
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any, Final

from dra_extender.cel.runtime.integers import Uint
from dra_extender.cel.runtime.semver import Semver
from dra_extender.cel.runtime.values import Optional

_UNCOUNTED: Final = frozenset({type, bool, type(None), BuiltinFunctionType})
_PLAIN: Final = frozenset({str, bytes, int, float, Uint, Semver})
_SEQUENCES: Final = frozenset({tuple, list, frozenset, set})
_GC_HEADER: Final = 16
_FUNCTION_BYTES: Final = getsizeof(lambda: None) + _GC_HEADER
_CELL_BYTES: Final = getsizeof(CellType()) + _GC_HEADER
_TUPLE_BYTES: Final = getsizeof(())
_PLACE_BYTES: Final = getsizeof((None,)) - _TUPLE_BYTES
_SHARED: Final = frozenset({*range(-5, 257)})


def program_size(*roots: Any) -> int:
    """The bytes that go with these functions: closures, cells and values in them, but not what programs share.

    Takes about half a microsecond for each object.
    """
    total = 0
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in _UNCOUNTED or id(item) in seen or (kind is int and item in _SHARED):
            continue
        seen.add(id(item))
        if kind is FunctionType:
            total += _function_size(item, pending)
        elif kind in _PLAIN:
            total += getsizeof(item)
        elif kind in _SEQUENCES:
            total += getsizeof(item)
            pending += item
        elif kind is dict or kind is Optional:
            total += getsizeof(item)
            pending += _contents(item)
    return total


def _function_size(function: FunctionType, pending: list[Any]) -> int:
    """The bytes of a function with its cells; what the cells and defaults hold is left to be measured."""
    size = 0
    closure = function.__closure__
    if closure is not None:
        pending += [part for cell in closure if type(part := cell.cell_contents) not in _UNCOUNTED]
        size = _FUNCTION_BYTES + _TUPLE_BYTES + (_PLACE_BYTES + _CELL_BYTES) * len(closure)
    if function.__defaults__:
        pending.append(function.__defaults__)
        size = size or _FUNCTION_BYTES
    return size


def _contents(item: dict[Any, Any] | Optional) -> Iterable[Any]:
    return (*item.keys(), *item.values()) if isinstance(item, dict) else (item.value,)
