"""Stale holds, and gangs that are stale at the permit: they wait too long, and end for a pod that fits only without them."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, Placement
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.evaluation.filter_result import FilterResult, WithoutHolds
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.holds.fairness import HoldFairness
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.ports.cluster import Clock

if TYPE_CHECKING:
    from dra_extender.scheduling.gang.permit import Permit, WaitingMembers

PERMIT_SECONDS: Final = 15.0
"""A gang at the permit is stale when no member has arrived for so long: kube-scheduler backs pods off for 10 s at most."""


class RevocationScope(Enum):
    """The stale holds to revoke: those on the very devices, those in their pools, or all."""

    DEVICES = auto()
    POOLS = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class EndableHolds:
    """The holds that may end before their pod is bound, as UIDs of claims, and what is in use once they have ended.

    `loose` holds may end any moment: no nomination keeps them, and no bind has begun.  `multi_node` holds keep several nodes, and
    their pods go to one of these.  `stale` holds are loose ones that may be revoked.  `freed` are the allocations of members of
    stale gangs at the permit, which can be evicted.
    """

    loose: frozenset[str]
    multi_node: frozenset[str]
    stale: frozenset[str]
    freed: tuple[DeviceHolding, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.loose or self.freed)

    @property
    def has_stale(self) -> bool:
        return bool(self.stale or self.freed)


_HELD_FOR_OTHERS: Final = Rejection(code=Code.DEVICES_HELD)
_NOTHING: Final = EndableHolds(frozenset(), frozenset(), frozenset())


@dataclass(eq=False)
class StaleHolds:
    """Finds and revokes holds that last longer than binds take, that no nomination keeps, and whose bind has not begun.

    All holds of a pod are revoked together, and so is the plan of a gang with its members at the permit.

    `binding`: UIDs of the pods that are being bound, as they are at the time of each question.
    """

    ledger: Ledger
    allocator: NodeAllocator
    fairness: HoldFairness
    permit: "Permit"
    binding: Collection[str]
    holds: HoldService
    clock: Clock
    _progress: dict[str, float] = field(default_factory=dict, init=False)
    _subscribers: list[Callable[[str], None]] = field(default_factory=list, init=False)

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call the handler with the UID of each pod or PodGroup whose holds are revoked."""
        self._subscribers.append(handler)

    def progressed(self, unit: str) -> None:
        """Record progress of a gang: a further member was offered its node."""
        self._progress[unit] = self.clock.monotonic()
        if len(self._progress) > 2 * len(self.ledger.holds) + 1:
            units = {hold.unit for hold in self.ledger.holds.all()} | {unit}
            self._progress = {gang_uid: at for gang_uid, at in self._progress.items() if gang_uid in units}

    def endable_holds(self, ignored_unit: str = "") -> EndableHolds:
        """Return which of the present holds may end; those of the gang or pod with the UID `ignored_unit` are left out."""
        if not len(self.ledger.holds) and not self.permit.has_members:
            return _NOTHING
        holds = [hold for hold in self.ledger.holds.all() if not ignored_unit or hold.unit != ignored_unit]
        # A nomination keeps a hold, and so does a bind that has begun.
        loose = [hold for hold in holds if not (hold.nominated or any(uid in self.binding for uid in hold.pods))]
        return EndableHolds(
            loose=frozenset(hold.claim_uid for hold in loose),
            multi_node=frozenset(hold.claim_uid for hold in holds if not hold.is_single_node),
            stale=frozenset(hold.claim_uid for hold in loose if self._is_stale(hold)),
            freed=tuple(
                holding
                for gang in self._stale_gangs()
                if gang.uid != ignored_unit
                for holding in self._allocated_at_permit(gang)
            ),
        )

    def search_without_holds(
        self,
        demand: Demand,
        under_holds: Sequence[str],
        nodes: Sequence[str],
        budget: CallBudget,
        result: FilterResult,
    ) -> None:
        """Find out whether the pod, which fits on none of the `nodes`, would fit but for holds that may end.

        The nodes under holds are searched, and the other nodes that reach devices of stale gangs at the permit.
        """
        ledger, endable = self.ledger, self.endable_holds()
        if endable.is_empty:
            return

        def fitting(names: Iterable[str], usage: Usage, usage_key: Hashable) -> Iterator[tuple[str, Placement]]:
            for name in names:
                node = ledger.nodes.get(name)
                if node is not None:
                    answer = self.allocator.search_in_call(demand, node, usage, budget, usage_key)
                    if isinstance(answer, Placement):
                        yield name, answer

        freed = endable.freed
        concerned = _reaching(ledger, freed, under_holds, nodes) if freed else under_holds
        fits = dict(fitting(concerned, ledger.usage_without(endable.loose, freed), ("loose", endable.loose, freed)))
        loose = tuple(claim for placement in fits.values() for claim in placement.claims)
        stale: tuple[ClaimPlacement, ...] = ()
        if fits and endable.has_stale and not result.without_holds.stale:
            fits_then = fitting(fits, ledger.usage_without(endable.stale, freed), ("stale", endable.stale, freed))
            stale = next((placement.claims for _, placement in fits_then), ())
        if endable.multi_node != endable.loose:
            fits = dict(fitting(fits, ledger.usage_without(endable.multi_node), ("multi node", endable.multi_node)))
        for name in fits:
            result.reject(name, _HELD_FOR_OTHERS)
        result.without_holds = result.without_holds.merged(WithoutHolds(loose, stale, multi_node=bool(fits)))

    def revoke(self, placements: Sequence[ClaimPlacement], scope: RevocationScope) -> None:
        """Revoke the stale holds that stand in the way of these placements."""
        holds = self.ledger.holds
        wanted_holdings = [holding for placement in placements for holding in placement.holdings]
        for claim_uid in sorted(self.endable_holds().stale):
            hold = holds.get(claim_uid)
            if hold is not None and _conflict(wanted_holdings, holds.holdings(claim_uid), scope):
                self._publish_revoked(hold.unit)
                if hold.unit and hold.unit not in hold.pods:
                    self.permit.evict(hold.unit)
                self.holds.release_pods(*sorted(hold.pods))
        for gang in self._stale_gangs():
            if _conflict(wanted_holdings, list(self._allocated_at_permit(gang)), scope):
                self._publish_revoked(gang.uid)
                self.permit.evict(gang.uid)

    def _is_stale(self, hold: Hold) -> bool:
        """Return whether the hold has lasted too long without progress; that of a gang is not while a member is being bound."""
        since = max(hold.since, self._progress.get(hold.unit, hold.since))
        if self.clock.monotonic() - since <= self.fairness.stale_after:
            return False
        if hold.unit in hold.pods or not hold.unit:
            return True
        gang = self.permit.waiting_gang(hold.unit)
        if gang is not None:
            return self._is_stale_at_permit(gang)
        return self._groups_of(self.binding).isdisjoint(self._groups_of(hold.pods))

    def _groups_of(self, pods: Iterable[str]) -> set[tuple[str, str]]:
        known_pods = (self.ledger.pods.by_uid(uid) for uid in pods)
        return {(pod.namespace, pod.pod_group) for pod in known_pods if pod is not None and pod.pod_group is not None}

    def _stale_gangs(self) -> Sequence["WaitingMembers"]:
        return [gang for gang in self.permit.waiting_gangs() if self._is_stale_at_permit(gang)]

    def _is_stale_at_permit(self, gang: "WaitingMembers") -> bool:
        since = max(gang.since, self._progress.get(gang.uid, gang.since))
        if self.clock.monotonic() - since <= PERMIT_SECONDS:
            return False
        members = self.ledger.pods.members(gang.namespace, gang.name)
        return not any(pod.uid in self.binding and pod.uid not in gang.members for pod in members)

    def _allocated_at_permit(self, gang: "WaitingMembers") -> Iterable[DeviceHolding]:
        """Yield the allocations of the members at the permit, which release them when they are evicted."""
        for record in self.ledger.claims.used_only_by((*gang.members, gang.uid)):
            yield from record.holdings

    def _publish_revoked(self, unit: str) -> None:
        self.fairness.revoked(unit)
        for handler in self._subscribers:
            handler(unit)


def _conflict(needed: Iterable[DeviceHolding], holdings: Sequence[DeviceHolding], scope: RevocationScope) -> bool:
    if scope is RevocationScope.ALL:
        return bool(holdings)
    if scope is RevocationScope.POOLS:
        return not {holding.pool_id for holding in needed}.isdisjoint(holding.pool_id for holding in holdings)
    devices = {holding.device_id for holding in needed}
    return any(holding.device_id in devices for holding in holdings)


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
