"""Small random gangs, each with nodes of its own, and a planner that finds out by trying everything whether one fits."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

HALF: Final = "half"
WHOLE: Final = "whole"
ANY: Final = "any"
_UNITS: Final = 2

Place = tuple[int, int]
"""A node and a card of it, by number."""


@dataclass(frozen=True, slots=True)
class RandomGang:
    """A gang, and the nodes that are for it alone.

    `nodes`: for each card of each node whether it can be had whole, too; in halves every card can.  `wishes`: what each member
    wants.  `shares`: all members use half a card together, so that they have to be on its node.
    """

    name: str
    nodes: tuple[tuple[bool, ...], ...]
    wishes: tuple[str, ...]
    min_count: int
    shares: bool

    @property
    def members(self) -> list[str]:
        """Names of the pods."""
        return [f"{self.name}-{index}" for index in range(len(self.wishes))]

    def fits(self) -> bool:
        """Whether enough members can have what they want at once; every choice of members and cards is tried."""
        everywhere = [(node, card) for node, cards in enumerate(self.nodes) for card in range(len(cards))]
        for seated in itertools.combinations(self.wishes, self.min_count):
            wanted = (*seated, HALF) if self.shares else seated
            for places in itertools.product(everywhere, repeat=len(wanted)):
                if self.shares and len({node for node, _ in places}) > 1:
                    continue
                if self._dealt(wanted, places):
                    return True
        return False

    def _dealt(self, wanted: Sequence[str], places: Sequence[Place]) -> bool:
        """Whether these cards suffice; who takes anything takes half a card."""
        left = dict.fromkeys(places, _UNITS)
        for wish, (node, card) in zip(wanted, places, strict=True):
            if wish == WHOLE and not self.nodes[node][card]:
                return False
            left[node, card] -= _UNITS if wish == WHOLE else 1
        return min(left.values()) >= 0


def random_gangs(count: int, chance: Random) -> list[RandomGang]:
    """So many gangs, called gang0 and so on."""
    return [_gang(f"gang{index}", chance) for index in range(count)]


def _gang(name: str, chance: Random) -> RandomGang:
    nodes = tuple(tuple(chance.random() < 0.6 for _ in range(chance.choice((0, 1, 2, 2)))) for _ in range(2))
    wishes = tuple(chance.choice((HALF, ANY, WHOLE)) for _ in range(chance.randint(2, 4)))
    min_count = max(len(wishes) - chance.choice((0, 0, 1)), 2)
    return RandomGang(name, nodes, wishes, min_count, shares=chance.random() < 0.3)
