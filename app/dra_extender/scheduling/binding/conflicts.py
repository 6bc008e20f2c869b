"""Conflicts between allocations of different claims, as two schedulers in one cluster can store them.

The API server relates no two claims.  Its watch delivers the writes of claims in one order, the same for every replica.  So of two
conflicting allocations of this program the one delivered later yields.  Another scheduler knows no such rule: until the Binding our
allocation yields to its.  The rule of the search decides what is a conflict (`dra_extender.allocator.rules.violations`).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.compatible_only_with import IsTrue, first_incompatible
from dra_extender.allocator.rules.violations import CAPACITY, COUNTERS, DEVICE, NODE, pool_violation, published_pool
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.guard_index import guard_reservations, whole_devices
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import wait_for_any
from dra_extender.ledger.slices import SliceIndex
from dra_extender.ledger.usage import Reduced, UsageTable
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.allocation_snapshot import is_snapshotted
from dra_extender.model.device import PoolId
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.scheduling.binding.guards import (
    LOOK_SECONDS,
    MOST_WAIT_SECONDS,
    GuardClaims,
    GuardReservations,
)
from dra_extender.scheduling.binding.reservations import Unreserve
from dra_extender.scheduling.call_budget import Awaited, CallBudget
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import ClaimReleasedError, RetryableError
from dra_extender.scheduling.ports.options import Options, YieldPolicy
from dra_extender.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from dra_extender.scheduling.binding.bind import BindSession

FOREIGN: Final = "foreign"
OWN: Final = "own"
NO_WRITER: Final = "none"
NEIGHBOURS: Final = "neighbours"
_LOG = structlog.get_logger(__name__)

PoolOf = Callable[[PoolId], Pool]


class AllocationConflict(NamedTuple):
    """A double allocation: its kind, the device or counter set as driver/pool/name, and the writer of the other allocation.

    `writer` is FOREIGN (another scheduler), OWN (this program, here or in another replica), or NO_WRITER: the slices as
    published now have less than this allocation takes.
    """

    kind: str
    what: str
    writer: str = FOREIGN

    @property
    def text(self) -> str:
        """Describe the conflict, for example `another writer allocated device gpu.example.com/node-1/gpu-0 first`."""
        if self.kind == NODE:
            return f"device {self.what} was bound to another node first"
        if self.writer == FOREIGN:
            return f"another writer allocated {self.kind} {self.what} first"
        if self.kind == NEIGHBOURS:
            return f"device {self.what} is not compatible with devices beside it that were allocated first"
        if self.writer == OWN:
            return f"{self.kind} {self.what} was allocated to another claim of this scheduler first"
        return f"{self.kind} {self.what}: less is published than was allocated"


def pool_reader(slices: SliceIndex, node: NodePools | None = None) -> PoolOf:
    """Return a function that reads pools as the search sees them from this node; others, and pools with a problem, as published."""
    pools = {} if node is None else {pool.pool_id: pool for pool in node.pools if pool.problem is None}

    def pool_of(pool_id: PoolId) -> Pool:
        pool = pools.get(pool_id)
        if pool is None:
            pool = pools[pool_id] = published_pool(pool_id, slices.of_pool(pool_id))
        return pool

    return pool_of


def find_violation(
    holdings: Iterable[DeviceHolding], usage: Usage, pool_of: PoolOf, is_compatible: IsTrue | None = None
) -> AllocationConflict | None:
    """Return the first rule that these holdings violate together with the usage, which does not include them.

    `is_compatible` checks `compatibleOnlyWith` among the devices of one pool; None checks nothing.
    """
    by_pool: dict[PoolId, list[DeviceHolding]] = {}
    for holding in holdings:
        if not holding.admin:
            by_pool.setdefault(holding.pool_id, []).append(holding)
    for pool_id, pool_holdings in by_pool.items():
        pool, used = pool_of(pool_id), usage.pool(pool_id)
        violation = pool_violation(pool, used, pool_holdings)
        if violation is not None:
            return AllocationConflict(violation.kind, "/".join((*pool_id, violation.name)))
        if is_compatible is not None and (
            pool.has_compatibility_rules
            or usage.has_compatibility_rules(pool_id)
            or any(holding.compatible_only_with is not None for holding in pool_holdings)
        ):
            name = first_incompatible(pool, used, pool_holdings, is_compatible)
            if name is not None:
                return AllocationConflict(NEIGHBOURS, "/".join((*pool_id, name)))
    return None


def find_conflict(
    record: ClaimRecord,
    claims: ClaimIndex,
    slices: SliceIndex,
    node: NodePools | None = None,
    is_compatible: IsTrue | None = None,
) -> AllocationConflict | None:
    """Return the conflict of this stored allocation with allocations to which it must yield; None if there is none.

    It yields to foreign allocations, to allocations of this program that were delivered before this one, and to deleted
    claims that pods still use.  Amounts and groups without a snapshot are those of the slices as `node` sees them now.
    """
    holdings, pool_of = record.holdings, pool_reader(slices, node)
    # Almost always there is no conflict with all that is known, which is indexed; only else the writers matter.
    if find_violation(holdings, Reduced(claims.usage, record.counted), pool_of, is_compatible) is None:
        return None
    competing, foreign = UsageTable(), UsageTable()
    for candidate in _claims_of_same_pools(record, claims):
        is_foreign = not is_snapshotted(candidate.claim) and candidate.claim.status.allocation is not None
        is_earlier = is_snapshotted(candidate.claim) and 0 < candidate.allocated_version < record.allocated_version
        if is_foreign or candidate.orphaned or is_earlier:
            competing.add(candidate.holdings)
        if is_foreign:
            foreign.add(candidate.holdings)
    conflict = find_violation(holdings, competing, pool_of, is_compatible)
    if conflict is None:
        return None
    for writer, usage in ((NO_WRITER, UsageTable()), (FOREIGN, foreign)):
        cause = find_violation(holdings, usage, pool_of, is_compatible)
        if cause is not None:
            return cause._replace(writer=writer)
    return conflict._replace(writer=OWN)


def find_conflicting_claims(
    record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex
) -> tuple[AllocationConflict, tuple[ClaimRecord, ...]] | None:
    """Return the conflict of this allocation with others, earlier or later ones, and the other claims in it."""
    holdings, pool_of = record.holdings, pool_reader(slices)
    conflict = find_violation(holdings, Reduced(claims.usage, record.counted), pool_of)
    if conflict is None:
        return None
    usage = UsageTable()
    conflicting = []
    for candidate in _claims_of_same_pools(record, claims):
        alone = UsageTable()
        alone.add(candidate.holdings)
        usage.add(candidate.holdings)
        if conflict.kind in (COUNTERS, CAPACITY) or find_violation(holdings, alone, pool_of) is not None:
            conflicting.append(candidate)
    stored = find_violation(holdings, usage, pool_of)
    return None if stored is None else (stored, tuple(conflicting))


def _claims_of_same_pools(record: ClaimRecord, claims: ClaimIndex) -> Iterator[ClaimRecord]:
    pools = {holding.pool_id for holding in record.holdings}
    for candidate in claims.counted():
        if candidate is not record and any(holding.pool_id in pools for holding in candidate.holdings):
            yield candidate


class _Loss(NamedTuple):
    """A conflict, and a pod that could be given the lost device even so; None if none could."""

    conflict: AllocationConflict
    competitor: Pod | None

    @property
    def text(self) -> str:
        """Name the lost device, and the pod that competes for it."""
        if self.competitor is None:
            return self.conflict.text
        scheduler = self.competitor.scheduler_name or "default-scheduler"
        return f"{self.conflict.text}; pod {self.competitor.key} of scheduler {scheduler} waits for such a device"


@dataclass(eq=False)
class ConflictYield:
    """Releases the claims of a bind whose devices were allocated to another claim first, and begins a backoff of the node.

    If the other claim is another scheduler's, the release waits for pods that could be given the device, too (`YieldPolicy`).
    """

    ledger: Ledger
    clock: Clock
    allocator: NodeAllocator
    unreserve: Unreserve
    backoff: DeviceBackoff
    guards: GuardClaims
    reservations: GuardReservations
    metrics: Metrics
    options: Options

    async def release_conflicting(self, bind: "BindSession") -> bool:
        """Return if the bind may go on: True if no claim is in conflict, False if another pod runs with one that is.

        Raises:
            ClaimReleasedError: there was a conflict; every claim of the pod with one is released.
            RetryableError: the bind should end; another scheduler's claim has a device until the bind's deadline; or the API server
                refused a write.
        """
        bind.check()
        budget: CallBudget | None = None
        # Once more after each wait: meanwhile another of the claims may be in conflict.
        while True:
            overlapping = [claim for claim in bind.claims if self._overlap(claim, bind) is not None]
            if all(self._runs_elsewhere(claim, bind.pod) for claim in overlapping):
                return not overlapping
            if budget is None:
                seconds_left = bind.deadline - self.clock.monotonic()
                budget = CallBudget(self.clock, min(seconds_left, MOST_WAIT_SECONDS))
            text = ""
            for claim in bind.claims:
                loss = await self._wait_while_unsafe(claim, bind, budget)
                if loss is None:
                    continue
                conflict = loss.conflict
                text = f"claim {claim.name}: {loss.text}"
                self.metrics.allocation_overlaps.labels(conflict.kind, "yielded", conflict.writer).inc()
                _LOG.warning(
                    "an allocation overlaps another one and is released",
                    claim=claim.name,
                    node=bind.node,
                    **conflict._asdict(),
                )
                await self.unreserve.release(claim, bind.pod, guard_reservations(claim.record.claim))
            if text:
                self.backoff.bind_undone(bind.pod.uid, bind.node)
                raise ClaimReleasedError(text)

    async def wait_for_guards(self, placement: ClaimPlacement, bind: "BindSession") -> None:
        """Return when no guard claim that is due to be deleted has a device of this placement.

        Its deletion would remove the device from the other scheduler's set again, if it came after our write.
        """
        if not len(self.ledger.guards):
            return
        devices = whole_devices(placement.holdings)
        until = min(bind.deadline, self.clock.monotonic() + MOST_WAIT_SECONDS)
        while leaving := [device for device in devices if self.guards.is_leaving(device)]:
            if self.clock.monotonic() >= until:
                _LOG.warning("a guard claim is not deleted; its device is allocated all the same", devices=leaving)
                return
            await wait_for_any((bind.recheck,), LOOK_SECONDS)
            bind.check()

    async def _wait_while_unsafe(self, claim: FoundClaim, bind: "BindSession", budget: CallBudget) -> _Loss | None:
        """Return None if there is no conflict (any more), otherwise the loss when a release harms no other pod.

        The end of the budget ends the wait for other pods, and all looks at them are charged to it.
        Guard claims are prepared before the wait, so that the release is followed by one write only.  While a
        competitor waits, or a pod is not judged yet, the claim is reserved for a guard claim, too, so that a deletion
        of the pod does not release it.
        """
        conflict = self._conflict(claim, bind)
        prepared, competitor = False, None
        while conflict is not None:
            is_foreign_device = (conflict.kind, conflict.writer) == (DEVICE, FOREIGN)
            if not prepared:
                await self.guards.prepare(whole_devices(claim.record.holdings))
                prepared = True
            elif self.options.yield_policy is YieldPolicy.WAIT and is_foreign_device:
                if self.clock.monotonic() >= bind.deadline:
                    raise RetryableError(
                        f"claim {claim.name}: {conflict.text}; pod {bind.pod.key} waits for the end of that allocation"
                    )
                await wait_for_any((bind.recheck,), LOOK_SECONDS)
            elif not is_foreign_device:
                return _Loss(conflict, None)
            else:
                budget.open_slice(self.options.search_slice_seconds)
                judged = self.reservations.find_competitor(claim.record, bind.pod.scheduler_name, budget, competitor)
                if isinstance(judged, Awaited):
                    await self.reservations.add(claim.record, bind.pod)
                    await asyncio.sleep(0)
                else:
                    competitor = judged
                    if competitor is None or budget.seconds_left <= 0:
                        return _Loss(conflict, competitor)
                    await self.reservations.add(claim.record, bind.pod)
                    await wait_for_any((bind.recheck,), LOOK_SECONDS)
            bind.check()
            conflict = self._conflict(claim, bind)
        return None

    def _conflict(self, claim: FoundClaim, bind: "BindSession") -> AllocationConflict | None:
        """Return the conflict for which the claim has to be released; None if there is none."""
        overlap = self._overlap(claim, bind)
        return None if overlap is None or self._runs_elsewhere(claim, bind.pod) else overlap

    def _overlap(self, claim: FoundClaim, bind: "BindSession") -> AllocationConflict | None:
        node = self.ledger.nodes.get(bind.node)
        pools = None if node is None else self.allocator.pools_of(node)
        return find_conflict(
            claim.record, self.ledger.claims, self.ledger.slices, pools, self.allocator.compatibility_check
        )

    def _runs_elsewhere(self, claim: FoundClaim, pod: Pod) -> bool:
        """Return whether another pod that uses this claim is bound: then its allocation cannot be released."""
        pods = self.ledger.pods
        for consumer in claim.record.claim.status.reserved_for:
            if is_group(consumer):
                if pods.another_runs(pod, consumer.name):
                    return True
            elif consumer.uid != pod.uid and (user := pods.by_uid(consumer.uid)) is not None and user.node_name:
                return True
        return False
