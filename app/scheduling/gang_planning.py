"""Plans for gangs as the ledger stands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from app.allocator.state import Usage
from app.ledger.ledger import Ledger
from app.model.allocation import ClaimPlacement
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
from app.scheduling.stale_holds import StaleHolds

_REMEMBERED: Final = 10_000


class Planned(NamedTuple):
    """Seats by pod UID, none if the gang does not fit.

    `limited`: it is not known whether it fits.  `unsettled`: only holds that are about to settle stand in the way.  `behind` and
    `revocable`: see Attempt.
    """

    seats: Mapping[str, Seat] = {}
    limited: bool = False
    unsettled: bool = False
    behind: tuple[ClaimPlacement, ...] = ()
    revocable: tuple[ClaimPlacement, ...] = ()


class GangPlanning:
    """Plans the members of a gang, and remembers how many of a kind there is room for on nodes that are alike."""

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        likeness: Likeness,
        cool_downs: CoolDowns,
        stale: StaleHolds,
        clock: Clock,
        options: Options,
    ) -> None:
        """`likeness` tells which nodes need not be tried themselves."""
        self._ledger = ledger
        self._means = Means(ledger, searching, likeness, {})
        self._cool_downs = cool_downs
        self._stale = stale
        self._clock = clock
        self._options = options

    def __call__(
        self,
        asked: str,
        candidates: Sequence[Candidate],
        needed: int,
        offered: Offered,
        seconds: float,
        unit: str = "",
    ) -> Planned:
        """Seats for all candidates, or for `needed` of them at least; the pod with the UID `asked` may be left out, too.

        `unit`: the UID of their PodGroup, whose own holds are not in its way.
        """
        members = members_of(candidates, offered.to)
        cooling = frozenset(device for each in candidates for device in self._cool_downs.of(each.pod.uid))
        out_of_time = time_is_up(self._clock, seconds)
        if len(self._means.capacities) > _REMEMBERED:
            self._means.capacities.clear()

        def planned(usage: Usage) -> Mapping[str, Seat]:
            places = LedgerPlaces(self._means, candidates, offered, usage, cooling, out_of_time)
            return GangPlan(members, offered.nodes, places).seats(needed) or {}

        return self._outcome(planned, asked, unit)

    def _outcome(self, planned: Callable[[Usage], Mapping[str, Seat]], asked: str, unit: str) -> Planned:
        ledger = self._ledger
        try:
            seats = planned(ledger.usage())
        except PlanLimitError:
            return Planned(limited=True)
        views = self._stale.views(besides=unit)
        if asked in seats or views.is_empty:
            return Planned(seats)
        try:
            behind = planned(views.without_loose(ledger))
            if asked not in behind:
                return Planned(seats)
            revocable = planned(views.without_stale(ledger)) if views.has_stale else {}
            unsettled = bool(views.unsettled) and asked in planned(views.without_unsettled(ledger))
        except PlanLimitError:
            return Planned(seats)
        found = _placements(revocable) if asked in revocable else ()
        return Planned(seats, unsettled=unsettled, behind=_placements(behind), revocable=found)


def _placements(seats: Mapping[str, Seat]) -> tuple[ClaimPlacement, ...]:
    return tuple(placement for seat in seats.values() for placement in seat.placements.values())
