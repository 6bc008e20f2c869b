"""Plans for gangs as the ledger stands, and what is remembered of those that failed."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.allocator.state import Usage
from app.ledger.ledger import Ledger
from app.model.pod_group import PodGroup
from app.scheduling.cool_downs import CoolDowns
from app.scheduling.deadline import time_is_up
from app.scheduling.gang_board import Member, Seat
from app.scheduling.gang_members import Candidate, members_of
from app.scheduling.gang_offers import Offered
from app.scheduling.gang_places import LedgerPlaces
from app.scheduling.gang_plan import GangPlan, PlanLimitError
from app.scheduling.likeness import Likeness
from app.scheduling.options import Options
from app.scheduling.ports import Clock
from app.scheduling.searching import Searching

_REMEMBERED: Final = 1_000
_LIMIT_SECONDS: Final = 10.0


class Planned(NamedTuple):
    """Seats by pod UID, none if the gang does not fit.

    `limited`: it is not known whether it fits.  `unsettled`: only holds that are about to settle stand in the way.
    """

    seats: Mapping[str, Seat] = {}
    limited: bool = False
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class _Failure:
    """A plan that failed: everything it could read, the outcome, and until when that counts (monotonic; None: for ever)."""

    facts: Hashable
    outcome: Planned
    until: float | None


class GangPlanning:
    """Plans the members of a gang.  Each of many members asks, so a plan that failed is not tried again on the same facts."""

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        likeness: Likeness,
        cool_downs: CoolDowns,
        clock: Clock,
        options: Options,
    ) -> None:
        """`likeness` tells which nodes need not be tried themselves."""
        self._ledger = ledger
        self._searching = searching
        self._likeness = likeness
        self._cool_downs = cool_downs
        self._clock = clock
        self._options = options
        self._failures: OrderedDict[tuple[str, str], _Failure] = OrderedDict()

    def __call__(
        self,
        group: PodGroup,
        asked: str,
        candidates: Sequence[Candidate],
        needed: int,
        offered: Offered,
        seconds: float,
    ) -> Planned:
        """Seats for all candidates, or for `needed` of them at least; the pod with the UID `asked` may be left out, too."""
        key, now = group.metadata.key, self._clock.monotonic()
        members = members_of(candidates, offered.to)
        cooling = frozenset(device for each in candidates for device in self._cool_downs.of(each.pod.uid))
        facts = self._facts(members, needed, cooling)
        known = self._failures.get(key)
        if known is not None and known.facts == facts and (known.until is None or now < known.until):
            return known.outcome
        out_of_time = time_is_up(self._clock, seconds)

        def planned(usage: Usage) -> Mapping[str, Seat]:
            places = LedgerPlaces(
                self._ledger, self._searching, self._likeness, candidates, offered, usage, cooling, out_of_time
            )
            return GangPlan(members, offered.nodes, places).seats(needed) or {}

        outcome = self._outcome(planned, asked)
        if outcome.limited or not (outcome.seats or outcome.unsettled):
            self._failures[key] = _Failure(facts, outcome, now + _LIMIT_SECONDS if outcome.limited else None)
            self._failures.move_to_end(key)
            if len(self._failures) > _REMEMBERED:
                self._failures.popitem(last=False)
        else:
            self._failures.pop(key, None)
        return outcome

    def _outcome(self, planned: Callable[[Usage], Mapping[str, Seat]], asked: str) -> Planned:
        try:
            seats = planned(self._ledger.usage())
        except PlanLimitError:
            return Planned(limited=True)
        if asked in seats or not self._ledger.holds.unsettled:
            return Planned(seats)
        try:
            return Planned(seats, unsettled=asked in planned(self._ledger.usage_without_unsettled()))
        except PlanLimitError:
            return Planned(seats)

    def _facts(self, members: Sequence[Member], needed: int, cooling: frozenset[Hashable]) -> Hashable:
        """Equal as long as a plan would find the same: who wants what where, and everything that is free."""
        ledger = self._ledger
        return (
            tuple((member.uid, member.kind) for member in members),
            needed,
            cooling,
            ledger.state.since(-1)[1],
            ledger.held.since(-1)[1],
            ledger.progress.classes,
            ledger.serves_extended_resources,
        )
