"""Integers of 64 bits: their bounds, the unsigned ones, and the errors of numbers that do not fit."""

from typing import Final

from dra_extender.cel.errors import CelRuntimeError

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


def integer(value: int) -> int:
    """Return the value, if it is an int64."""
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelRuntimeError("integer overflow")


def unsigned(value: int) -> Uint:
    """Return the value, if it is a uint64."""
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise CelRuntimeError("unsigned integer overflow")
