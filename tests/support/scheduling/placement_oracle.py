"""What the plan of a gang asks, answered from claims and slices alone."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, Placement
from dra_extender.model.device import DeviceId
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.evaluation.backoff import BackoffUsage
from dra_extender.scheduling.gang.members import GangMember
from dra_extender.scheduling.gang.placements import Pausable, PlacementOracle

from tests.support.allocator.building import Held, allocate, demand_of, pools_of

T = TypeVar("T")


class MadePlacements(PlacementOracle):
    """Answers without `allowed`; a pool that is named like no node is one that every node reaches."""

    def __init__(self, slices: Sequence[ResourceSlice], claims: Mapping[str, ResourceClaim]) -> None:
        self.slices = slices
        self.claims = dict(claims)
        self.at: dict[str, Node] = {}
        self.undecided = False
        self.asked = 0

    def ask(
        self, claims: Sequence[str], node: str, kept: Sequence[DeviceHolding], without: frozenset[DeviceId]
    ) -> Pausable[Mapping[str, ClaimPlacement] | None]:
        yield from ()
        self.asked += 1
        at = self.at[node]
        demand = demand_of(*(self.claims[uid] for uid in claims))
        found = allocate(demand, at, pools_of(self.slices, at), BackoffUsage(Held(*kept), without))
        return dict(zip(claims, found.claims, strict=True)) if isinstance(found, Placement) else None

    def usable(self, placement: ClaimPlacement, node: str) -> bool:
        return placement.allocation.usable_on(node, self.at[node].labels)

    def reach(self, holding: DeviceHolding) -> Hashable | None:
        return None if holding.pool in self.at else holding.device

    def symmetry_class(self, node: str) -> Hashable | None:
        return None

    def capacity(
        self, members: Sequence[GangMember], node: str, symmetry_class: Hashable | None
    ) -> Pausable[int | None]:
        yield from ()
        return None

    def pause_due(self) -> bool:
        return False

    def out_of_time(self) -> bool:
        return False


def until_solved(search: Pausable[T]) -> T:
    """Let the search go on after each pause until it ends."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: T = end.value
            return found
