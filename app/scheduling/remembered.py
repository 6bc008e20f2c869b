"""Answers are remembered, not recomputed.

An outcome is stored under what was asked (the demand's signature), the node and the node's version, so that replicas of one
workload share it and a filter call costs little more than looking up.  Nodes under holds have an entry of their own, which
the end of the hold does not spoil.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from app.model.allocation import Placement
from app.model.rejection import Rejection


@dataclass(slots=True)
class Outcome:
    """The allocator's answer for one node, the versions it is good for, and what is derived from it once."""

    state: int
    hold: int
    placement: Placement | None
    rejection: Rejection | None
    text: str
    score: int


@dataclass(slots=True)
class Table:
    """Outcomes of one signature by node: without holds on the node, and under holds.

    `scored` tells that nodes differ for this signature (some placement draws on counters), so that all have to be looked at.
    """

    free: dict[str, Outcome] = field(default_factory=dict)
    held: dict[str, Outcome] = field(default_factory=dict)
    scored: bool = False

    def __len__(self) -> int:
        return len(self.free) + len(self.held)


class Remembered:
    """Tables by signature, least recently used first out when there are more than `limit` outcomes in all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tables: OrderedDict[bytes, Table] = OrderedDict()

    def table(self, signature: bytes) -> Table:
        """The outcomes for this signature."""
        table = self._tables.get(signature)
        if table is None:
            self._trim()
            table = self._tables[signature] = Table()
        else:
            self._tables.move_to_end(signature)
        return table

    def _trim(self) -> None:
        total = sum(len(table) for table in self._tables.values())
        while total > self._limit and self._tables:
            _, oldest = self._tables.popitem(last=False)
            total -= len(oldest)
