"""Finds what a pod that fits nowhere would get if holds ended that may end."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, Placement
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.holds.stale import HoldViews
from dra_extender.scheduling.time_slices import CallBudget


class PlacementsWithoutHolds(NamedTuple):
    """What the pod would get without loose holds (`placements`), and if stale holds were revoked (`revocable`).

    On the `narrowing` nodes it would fit if holds that are about to narrow to one node went elsewhere.
    """

    placements: tuple[ClaimPlacement, ...] = ()
    revocable: tuple[ClaimPlacement, ...] = ()
    narrowing: Collection[str] = ()


def search_without_holds(
    ledger: Ledger,
    allocator: NodeAllocator,
    views: HoldViews,
    demand: Demand,
    under_holds: Sequence[str],
    nodes: Sequence[str],
    budget: CallBudget,
) -> PlacementsWithoutHolds:
    """Search the nodes under holds; also the other `nodes` that reach devices of stale gangs at the permit.

    Raises:
        SearchPaused: the slice is over.
    """

    def fitting(names: Iterable[str], usage: Usage, under: Hashable) -> Iterator[tuple[str, Placement]]:
        for name in names:
            node = ledger.nodes.get(name)
            if node is not None:
                answer = allocator.search_in_call(demand, node, usage, budget, under)
                if isinstance(answer, Placement):
                    yield name, answer

    concerned = _reaching(ledger, views.freed, under_holds, nodes) if views.freed else under_holds
    fits = dict(fitting(concerned, views.without_loose(ledger), ("loose", views.loose, views.freed)))
    revocable: tuple[ClaimPlacement, ...] = ()
    if fits and views.has_stale:
        stale = fitting(fits, views.without_stale(ledger), ("stale", views.stale, views.freed))
        revocable = next((placement.claims for _, placement in stale), ())
    narrowing: Collection[str] = fits
    if views.multi_node != views.loose:
        narrowing = dict(fitting(fits, views.without_multi_node(ledger), ("narrowing", views.multi_node)))
    placements = tuple(claim for placement in fits.values() for claim in placement.claims)
    return PlacementsWithoutHolds(placements, revocable, narrowing)


def _reaching(
    ledger: Ledger, freed: Iterable[DeviceHolding], under_holds: Sequence[str], nodes: Sequence[str]
) -> Sequence[str]:
    """Return the nodes under holds, and those that reach the pools in which something would be freed."""
    reached: set[str] = set()
    for pool_id in {holding.pool_id for holding in freed}:
        reaching = ledger.slices.nodes_of(pool_id)
        if reaching is None:
            return nodes
        reached |= reaching
    reached.difference_update(under_holds)
    return [*under_holds, *(name for name in nodes if name in reached)]
