"""The search as a recursive function over small tables, written as upstream's is; the reference of property tests.

A demand is a list of claims, a claim a list of requests, a request a list of options (several are alternatives in order).
An option is (count, matching): the number of devices or "all", and the set of locations that match.  Devices draw
`costs[location]` from one budget.  It shares nothing with the program.
"""

from dataclasses import dataclass, field

Option = tuple[int | str, frozenset[int]]
Request = list[Option]
Demanded = list[list[Request]]

LIMIT = 32


class TooManyError(Exception):
    pass


@dataclass
class Reference:
    demanded: Demanded
    costs: list[int]
    budget: int
    steps: int = 0
    picks: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(claim, request, option, location)"""

    def run(self) -> bool:
        return self.step(0, 0, None, 0, 0)

    def step(self, claim: int, request: int, option: int | None, picked: int, start: int) -> bool:
        self.steps += 1
        if claim == len(self.demanded):
            return True
        if request == len(self.demanded[claim]):
            try:
                return self.step(claim + 1, 0, None, 0, 0)
            except TooManyError:
                return False
        options = self.demanded[claim][request]
        if len(options) > 1 and option is None:
            return self.alternatives(claim, request)
        count, matching = options[option or 0]
        all_mode = sorted(matching)
        wanted = len(all_mode) if isinstance(count, str) else count
        if count == "all" and not all_mode:
            return False
        if picked >= wanted:
            return self.step(claim, request + 1, None, 0, 0)
        if sum(pick[0] == claim for pick in self.picks) + wanted - picked > LIMIT:
            raise TooManyError
        candidates = [all_mode[picked]] if count == "all" else [each for each in all_mode if each >= start]
        return self.devices(candidates, (claim, request, option, picked))

    def alternatives(self, claim: int, request: int) -> bool:
        only_too_many = True
        for index in range(len(self.demanded[claim][request])):
            try:
                found = self.step(claim, request, index, 0, 0)
            except TooManyError:
                continue
            only_too_many = False
            if found:
                return True
        if only_too_many:
            raise TooManyError
        return False

    def devices(self, candidates: list[int], place: tuple[int, int, int | None, int]) -> bool:
        claim, request, option, picked = place
        for location in candidates:
            drawn = sum(self.costs[pick[3]] for pick in self.picks)
            if any(pick[3] == location for pick in self.picks) or drawn + self.costs[location] > self.budget:
                continue
            before = len(self.picks)
            self.picks.append((claim, request, option or 0, location))
            try:
                if self.step(claim, request, option, picked + 1, location + 1):
                    return True
            except TooManyError:
                del self.picks[before:]
                raise
            del self.picks[before:]
        return False
