"""Plans for gangs as the ledger stands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from app.allocator.state import Usage
from app.ledger.ledger import Ledger
from app.scheduling.cool_downs import CoolDowns
from app.scheduling.deadline import time_is_up
from app.scheduling.gang_board import Seat
from app.scheduling.gang_members import Candidate, members_of
from app.scheduling.gang_offers import Offered
from app.scheduling.gang_places import LedgerPlaces, Means
from app.scheduling.gang_plan import GangPlan, PlanLimitError
from app.scheduling.likeness import Likeness
from app.scheduling.options import Options
from app.scheduling.ports import Clock
from app.scheduling.searching import Searching

_REMEMBERED: Final = 10_000


class Planned(NamedTuple):
    """Seats by pod UID, none if the gang does not fit.

    `limited`: it is not known whether it fits.  `unsettled`: only holds that are about to settle stand in the way.
    """

    seats: Mapping[str, Seat] = {}
    limited: bool = False
    unsettled: bool = False


class GangPlanning:
    """Plans the members of a gang, and remembers how many of a kind there is room for on nodes that are alike."""

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
        self._means = Means(ledger, searching, likeness, {})
        self._cool_downs = cool_downs
        self._clock = clock
        self._options = options

    def __call__(
        self,
        asked: str,
        candidates: Sequence[Candidate],
        needed: int,
        offered: Offered,
        seconds: float,
    ) -> Planned:
        """Seats for all candidates, or for `needed` of them at least; the pod with the UID `asked` may be left out, too."""
        members = members_of(candidates, offered.to)
        cooling = frozenset(device for each in candidates for device in self._cool_downs.of(each.pod.uid))
        out_of_time = time_is_up(self._clock, seconds)
        if len(self._means.capacities) > _REMEMBERED:
            self._means.capacities.clear()

        def planned(usage: Usage) -> Mapping[str, Seat]:
            places = LedgerPlaces(self._means, candidates, offered, usage, cooling, out_of_time)
            return GangPlan(members, offered.nodes, places).seats(needed) or {}

        return self._outcome(planned, asked)

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
