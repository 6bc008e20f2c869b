"""What a pod that fits nowhere would get if holds ended that may end."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, Placement
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.fairness.stale_holds import StaleHolds
from dra_extender.scheduling.search_time.time_slices import CallBudget


class PlacementsBehindHolds(NamedTuple):
    """The placements that the pod would get without loose holds (`behind`), and if stale holds were revoked (`revocable`).

    On the `narrowing` nodes it would fit if holds that are about to narrow to one node went elsewhere.
    """

    behind: tuple[ClaimPlacement, ...] = ()
    revocable: tuple[ClaimPlacement, ...] = ()
    narrowing: Collection[str] = ()


_NOTHING = PlacementsBehindHolds()


class BehindHolds:
    """Searches nodes once more, without the holds that may end."""

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, stale: StaleHolds) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._stale = stale

    def search(
        self, demand: Demand, under_holds: Sequence[str], nodes: Sequence[str], budget: CallBudget
    ) -> PlacementsBehindHolds:
        """Search the nodes under holds; also the other `nodes` that reach devices of stale gangs at the permit.

        Raises:
            SearchPaused: the slice is over.
        """
        ledger, views = self._ledger, self._stale.views()
        if views.is_empty:
            return _NOTHING

        def fitting(names: Iterable[str], usage: Usage, under: Hashable) -> Iterator[tuple[str, Placement]]:
            return self._fitting(demand, names, usage, budget, under)

        concerned = under_holds if not views.freed else self._reaching(views.freed, under_holds, nodes)
        loose = ("loose", views.loose, views.freed)
        fits = dict(fitting(concerned, views.without_loose(ledger), loose))
        behind = tuple(claim for placement in fits.values() for claim in placement.claims)
        revocable: tuple[ClaimPlacement, ...] = ()
        if fits and views.has_stale:
            stale = ("stale", views.stale, views.freed)
            first = next(fitting(fits, views.without_stale(ledger), stale), None)
            revocable = () if first is None else first[1].claims
        narrowing: Collection[str] = fits
        if views.multi_node != views.loose:
            narrowing = dict(fitting(fits, views.without_multi_node(ledger), ("narrowing", views.multi_node)))
        return PlacementsBehindHolds(behind, revocable, narrowing)

    def _fitting(
        self, demand: Demand, names: Iterable[str], usage: Usage, budget: CallBudget, under: Hashable
    ) -> Iterator[tuple[str, Placement]]:
        """Search these nodes under this usage, which `under` stands for; yields those that fit."""
        for name in names:
            node = self._ledger.nodes.get(name)
            if node is not None:
                answer = self._allocator.search_in_call(demand, node, usage, budget, under)
                if isinstance(answer, Placement):
                    yield name, answer

    def _reaching(
        self, freed: Iterable[DeviceHolding], under_holds: Sequence[str], nodes: Sequence[str]
    ) -> Iterable[str]:
        """The nodes under holds, and those that reach the pools in which something would be freed."""
        reached: set[str] = set()
        for pool_id in {each.pool_id for each in freed}:
            found = self._ledger.slices.nodes_of(pool_id)
            if found is None:
                return nodes
            reached |= found
        reached.difference_update(under_holds)
        return [*under_holds, *(name for name in nodes if name in reached)]
