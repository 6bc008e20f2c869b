"""Maps: hashing a long key takes long, and so does a key among others with the same hash."""

from collections.abc import Mapping
from typing import Any, Final

from dra_extender.cel.runtime.addresses import Cidr, IpAddress
from dra_extender.cel.runtime.cost import EvaluationFrame
from dra_extender.cel.runtime.times import Duration, Timestamp
from dra_extender.cel.runtime.values import DoubleKey

_LONG: Final = 64
_OF_ONE_HASH: Final[Mapping[type, int]] = {Duration: 16, Timestamp: 800, DoubleKey: 160}
"""Units for the most keys of a type that have one hash: Python reduces numbers modulo 2**61 - 1."""
_ANY_NUMBER: Final = frozenset({IpAddress, Cidr})
"""Types with so many values of one hash that all keys of a map may have it."""


def key_work(key: Any, size: int) -> int:
    """What looking for a dict key takes at worst, in a map of so many entries, above a few units."""
    kind = type(key)
    if kind is str:
        return len(key) >> 4 if len(key) > _LONG else 0
    if kind in _ANY_NUMBER:
        return 3 * size
    return min(_OF_ONE_HASH.get(kind, 0), 4 * size)


def charge_key(frame: EvaluationFrame, key: Any, size: int) -> None:
    """Charge looking for a dict key."""
    work = key_work(key, size)
    if work:
        frame.begin_call("a map's key", work)
