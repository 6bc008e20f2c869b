"""The counter sets of a pool: what remains of their counters (KEP-4815)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dra_extender.allocator.pools.pools import CounterTotals
from dra_extender.allocator.state.trail import Trail
from dra_extender.model.device import CounterConsumption

CounterKey = tuple[str, str]
"""(counter set, counter)."""


@dataclass(frozen=True, slots=True)
class CounterBalance:
    """A counter that a device draws on: what remains of it and what is requested, in nano-units."""

    counter_set: str
    counter: str
    remaining: int
    requested: int


def amounts_drawn(consumption: Sequence[CounterConsumption]) -> Sequence[tuple[CounterKey, int]]:
    """Return what a device draws from each counter, with the sum where it lists one twice."""
    if len(consumption) == 1:
        name = consumption[0].counter_set
        return [((name, counter), amount) for counter, amount in consumption[0].counters]
    amounts: dict[CounterKey, int] = {}
    for entry in consumption:
        for counter, amount in entry.counters:
            key = (entry.counter_set, counter)
            amounts[key] = amounts.get(key, 0) + amount
    return list(amounts.items())


class CounterTable:
    """The remaining amounts of the counters of one pool during one search, in nano-units.

    As in upstream's allocator, a counter that the held devices overdraw blocks every device of the pool that draws on counters.
    """

    __slots__ = ("_overdrawn", "_remaining")

    def __init__(self, totals: CounterTotals, held_entries: Iterable[tuple[str, CounterConsumption]]) -> None:
        """Start from the declared totals less what held devices draw; counters that are not declared any more are ignored."""
        remaining = {(name, counter): total for name, counters in totals.items() for counter, total in counters.items()}
        for _, entry in held_entries:
            for counter, amount in entry.counters:
                key = (entry.counter_set, counter)
                if key in remaining:
                    remaining[key] -= amount
        self._remaining: dict[CounterKey, int] = remaining
        self._overdrawn = [key for key, amount in remaining.items() if amount < 0]

    @property
    def remaining(self) -> Mapping[CounterKey, int]:
        """Return what is left of each counter; less than nothing where it is overdrawn."""
        return self._remaining

    def draw(self, consumption: Sequence[CounterConsumption], trail: Trail) -> bool:
        """Draw what a device consumes; False if a counter does not suffice (the caller then undoes)."""
        remaining = self._remaining
        draws = amounts_drawn(consumption)
        for key, amount in draws:
            if remaining[key] < amount:
                return False
        for key, amount in draws:
            trail.put(remaining, key, remaining[key] - amount)
        return not self._overdrawn or all(remaining[key] >= 0 for key in self._overdrawn)

    def most_that_fit(self, entries: Sequence[CounterConsumption]) -> int:
        """Return how many of these consumptions of one counter set fit at most, by each counter alone; never too low."""
        counters = {counter for entry in entries for counter, _ in entry.counters}
        bound = len(entries)
        for counter in counters:
            amounts = sorted(dict(entry.counters).get(counter, 0) for entry in entries)
            remaining = self._remaining[entries[0].counter_set, counter]
            fitting = [count for count, total in enumerate(accumulate(amounts), start=1) if total <= remaining]
            bound = min(bound, max(fitting, default=0))
        return bound

    def balances(self, consumption: Sequence[CounterConsumption]) -> Iterator[CounterBalance]:
        """Yield what remains of each counter that a device would draw on, whether or not it suffices."""
        for key, amount in amounts_drawn(consumption):
            yield CounterBalance(counter_set=key[0], counter=key[1], remaining=self._remaining[key], requested=amount)

    def shortage(self, consumption: Sequence[CounterConsumption]) -> CounterBalance | None:
        """Return the first counter that a device would overdraw, or that is overdrawn already."""
        amounts = dict(amounts_drawn(consumption))
        for key in (*amounts, *self._overdrawn):
            amount = amounts.get(key, 0)
            if self._remaining[key] < amount:
                return CounterBalance(
                    counter_set=key[0], counter=key[1], remaining=self._remaining[key], requested=amount
                )
        return None
