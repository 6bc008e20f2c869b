"""Weighted decisions, the same for the same seed."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")
Json = dict[str, Any]

TIMEOUT_MS: Final = 1500
"""What each node of a scenario may take."""

_USUAL: Final[Mapping[str, float]] = {
    "admin": 0.08,
    "alternatives": 0.25,
    "attributes": 0.9,
    "binding": 0.06,
    "capacity": 0.25,
    "config": 0.15,
    "constraints": 0.2,
    "counters": 0.25,
    "defects": 0.2,
    "derived": 0.12,
    "groups": 0.12,
    "past": 0.5,
    "selectors": 0.2,
    "shareable": 0.3,
    "skip": 0.05,
    "switches": 0.3,
    "taints": 0.15,
}

FAMILIES: Final[Mapping[str, Mapping[str, float]]] = {
    "admin": {"admin": 0.5, "counters": 0.5, "past": 0.8},
    "basic": {"capacity": 0, "counters": 0, "derived": 0, "defects": 0.6, "switches": 0},
    "binding": {"binding": 0.5},
    "capacity": {"capacity": 0.8, "shareable": 0.75, "past": 0.8, "switches": 0.1},
    "capacity-counters": {"capacity": 0.6, "shareable": 0.7, "counters": 0.9, "groups": 0.4, "past": 0.8},
    "config": {"config": 0.9, "alternatives": 0.5},
    "constraints": {"constraints": 0.95, "attributes": 0.9},
    "counters": {"counters": 0.9},
    "derived": {"derived": 0.7, "constraints": 0.95, "switches": 0.1},
    "features": {"switches": 1, "binding": 0.2, "capacity": 0.5, "shareable": 0.5, "counters": 0.4, "groups": 0.3},
    "groups": {"groups": 0.7, "counters": 0.95, "past": 0.8, "switches": 0.15},
    "groups-off": {"groups": 0.1, "counters": 0.95, "past": 0.8, "switches": 0},
    "mixed": dict.fromkeys(_USUAL, 0.4),
    "pools": {"defects": 1, "past": 0.3},
    "taints": {"taints": 0.6},
}
"""How likely each topic is in a family, where it differs from the usual."""


_GENTLE: Final[Mapping[str, float]] = {"constraints": 0.7, "defects": 0.3, "selectors": 0.5, "taints": 0.6}
"""How much less likely what keeps devices away is in scenarios that mostly fit."""


class Chance:
    """One scenario's source of decisions; three of five are `gentle`, so that claims get something more often than not."""

    def __init__(self, random: Random, family: str) -> None:
        self.random = random
        self._weights = {**_USUAL, **FAMILIES[family]}
        self.gentle = self.rarely(0.6)
        if self.gentle:
            self._weights |= {topic: self._weights[topic] * less for topic, less in _GENTLE.items()}
        self._names: dict[str, list[str]] = {}
        self._topics: dict[str, bool] = {}

    def of(self, topic: str) -> bool:
        """Whether the topic comes up this time."""
        return self.random.random() < self._weights[topic]

    def rarely(self, probability: float = 0.05) -> bool:
        """Whether something unusual happens."""
        return self.random.random() < probability

    def here(self, topic: str) -> bool:
        """Whether the topic comes up in this scenario at all; always the same answer."""
        if topic not in self._topics:
            self._topics[topic] = self.of(topic)
        return self._topics[topic]

    def without(self, topics: Sequence[str]) -> None:
        """Let these topics come up rarely from now on."""
        self._weights |= {topic: self._weights[topic] / 20 for topic in topics}

    def familiar(self, kind: str, names: Sequence[str], most: int) -> list[str]:
        """Some of the names, the same whenever this scenario asks for this kind; now and then one is missing."""
        if kind not in self._names:
            self._names[kind] = self.some(names, most)
        found = self._names[kind]
        return [name for name in found if not self.rarely(0.08)]

    def among(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """Between one and `most` of the values, in any order."""
        return self.random.sample(values, self.random.randint(1, min(most, len(values))))

    def between(self, least: int, most: int) -> int:
        """A number, bounds included."""
        return self.random.randint(least, most)
