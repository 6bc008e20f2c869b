from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """What speaks for an allocation beyond that it fits; those of several claims are added up.

    `alternatives`: the sum of 8 - index over the chosen alternatives of `firstAvailable` requests.  `waits`: some device has to
    fulfil binding conditions first.  `counter_sets`: how many counter sets are drawn on, `joined` of these by others already.
    """

    alternatives: int = 0
    waits: bool = False
    counter_sets: int = 0
    joined: int = 0

    def __add__(self, other: "ScoreTerms") -> "ScoreTerms":
        """Both together."""
        return ScoreTerms(
            self.alternatives + other.alternatives,
            self.waits or other.waits,
            self.counter_sets + other.counter_sets,
            self.joined + other.joined,
        )

    def __bool__(self) -> bool:
        """Whether there is anything by which nodes could differ."""
        return bool(self.alternatives or self.waits or self.counter_sets)
