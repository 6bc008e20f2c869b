"""The decision of a bind, and the claims about which no bind may decide now."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from dra_extender.allocator.rules.held_devices import with_current_snapshot
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.conflicts import AllocationConflict, find_violation, pool_reader
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, extended_need, named
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.preconditions import excluded, fully_reserved, sort_claims
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.evaluation.backoff import BackoffUsage, DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.holds.service import HoldService, with_own_shares
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.time_slices import CallBudget

Decided = Sequence[tuple[FoundClaim, ClaimPlacement]]


class BindDecision:
    """Decides the placements of a pod's claims on the node of a bind: the held ones if they are still valid, else new ones.

    A placement that the check after the write would undo is not written at all.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, backoff: DeviceBackoff, holds: HoldService) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._backoff = backoff
        self._holds = holds

    def decide(
        self, pod: Pod, node_name: str, pod_claims: tuple[FoundClaim, ...], budget: CallBudget
    ) -> Decided | UnreadSpecs:
        """Return placements for the claims that have no allocation yet; end holds that are not valid any more."""
        ledger = self._ledger
        node = ledger.nodes.get(node_name)
        if node is None:
            raise RetryableError(f"node {node_name} is not known yet")
        claims = sort_claims(pod_claims, ledger)
        rejection = (
            self._unserved(pod, node, pod_claims)
            or fully_reserved(pod_claims, ledger)
            or excluded(pod, node, claims, ledger)
        )
        if rejection is not None:
            raise RetryableError(named(pod, rejection).text)
        undecided = (*claims.held, *claims.open)
        if not undecided:
            return ()
        placements = self._held_placements(undecided, node_name)
        if placements is not None:
            placements = self._with_current_snapshot(placements, node)
            if self._conflict(placements, node) is None:
                return placements
        demand = self._allocator.demand(undecided, budget)
        if isinstance(demand, UnreadSpecs):
            return demand
        for claim in claims.held:
            self._holds.release_claim(claim.uid)
        if isinstance(demand, Rejection):
            raise RetryableError(named(pod, demand).text)
        in_backoff = self._backoff.devices_of(pod.uid)
        usage = BackoffUsage(ledger.usage(), in_backoff)
        answer = self._allocator.search_in_call(demand, node, usage, budget, in_backoff)
        if isinstance(answer, NoFit):
            text = named(pod, answer.rejections[0]).text
            raise RetryableError(f"pod does not fit on node {node_name} any more: {text}")
        new_placements = zip(undecided, map(with_own_shares, answer.claims), strict=True)
        placed = self._with_current_snapshot(list(new_placements), node)
        conflict = self._conflict(placed, node)
        if conflict is not None:
            self._backoff.bind_undone(pod.uid, node_name)
            raise RetryableError(f"pod does not fit on node {node_name} any more: {conflict.kind} {conflict.what}")
        return placed

    def _unserved(self, pod: Pod, node: Node, pod_claims: tuple[FoundClaim, ...]) -> Rejection | None:
        """Return why these claims do not serve the pod's extended resources on the node as it is now."""
        need = extended_need(pod, self._ledger)
        special = None if need is None else need.on(node)
        if isinstance(special, Rejection):
            return special
        spec_digests = [claim.record.spec_digest for claim in pod_claims if claim.label == EXTENDED_LABEL]
        if spec_digests != ([] if special is None else [special.claim.record.spec_digest]):
            return Rejection(code=Code.EXTENDED_RESOURCE, detail=f"node {node.name} serves it differently now")
        return None

    def _held_placements(self, undecided: tuple[FoundClaim, ...], node: str) -> Decided | None:
        """Return the held placements, if each claim has one here and nothing that was read to decide it has changed since."""
        state = self._ledger.state.version(node)
        placements = []
        for claim in undecided:
            hold = self._ledger.holds.get(claim.uid)
            if hold is None or node not in hold.placements or hold.versions.get(node) != state:
                return None
            placements.append((claim, hold.placements[node]))
        return placements

    def _with_current_snapshot(self, decided: Decided, node: Node) -> Decided:
        """Return the placements with snapshots of the present allocations, without holds of other pods."""
        if not any(holding.share_id for _, placement in decided for holding in placement.holdings):
            return decided
        usage, pool_of = self._ledger.claims.usage, pool_reader(self._ledger.slices, self._allocator.pools_of(node))

        def current(placement: ClaimPlacement) -> ClaimPlacement:
            holdings = (
                with_current_snapshot(holding, pool_of(holding.pool_id), usage.pool(holding.pool_id))
                for holding in placement.holdings
            )
            return replace(placement, holdings=tuple(holdings))

        return [(claim, current(placement)) for claim, placement in decided]

    def _conflict(self, decided: Decided, node: Node) -> AllocationConflict | None:
        """Return the conflict of these placements with allocations that would undo them after the write; None if there is none."""
        holdings = [holding for _, placement in decided for holding in placement.holdings]
        pool_of = pool_reader(self._ledger.slices, self._allocator.pools_of(node))
        return find_violation(holdings, self._ledger.claims.usage, pool_of, self._allocator.compatibility_check)


class PendingClaims:
    """The claims about which no bind may decide now: their allocation is being written, its fate is unknown, or they are locked.

    `changed` fires when a write is over and when a lock ends.
    """

    def __init__(self, ledger: Ledger, writer: ClaimWriter, supervisor: Supervisor) -> None:
        self.changed = Notifier()
        self._ledger = ledger
        self._writer = writer
        self._supervisor = supervisor
        self._locked: set[str] = set()
        self._in_doubt: dict[str, asyncio.Task[None]] = {}

    @contextmanager
    def lock_claim(self, claim_uid: str) -> Iterator[None]:
        """Keep binds from deciding about this claim; one that needs it waits for the end of the block."""
        self._locked.add(claim_uid)
        try:
            yield
        finally:
            self._locked.discard(claim_uid)
            self.changed.fire()

    def is_busy(self, record: ClaimRecord) -> bool:
        """Return whether another bind writes the claim, or the claim is locked."""
        return record.pending is not None or record.claim.metadata.uid in self._locked

    def end(self, record: ClaimRecord) -> None:
        """Note that the write of this claim is over, stored or given up."""
        self._ledger.end_pending(record.claim.metadata.uid)
        self.changed.fire()

    def end_unwritten(self, claims: Sequence[FoundClaim]) -> None:
        """Give up what is still pending of these claims, except allocations that may be stored (`resolve`)."""
        for claim in claims:
            if claim.record.pending is not None and claim.uid not in self._in_doubt:
                self.end(claim.record)

    def resolve(self, record: ClaimRecord) -> None:
        """Read in the background what the API server stored; until then the allocation stays pending, and no other pod gets it."""
        uid = record.claim.metadata.uid
        task = self._in_doubt[uid] = self._supervisor.begin(BackgroundTask.BIND, self._writer.read_stored(record))

        def resolved(_: asyncio.Task[None]) -> None:
            del self._in_doubt[uid]
            self.end(record)

        task.add_done_callback(resolved)

    async def drain(self) -> None:
        """Stop reading what the API server stored; the next process finds it by its watch."""
        for task in tuple(self._in_doubt.values()):
            task.cancel()
        await asyncio.gather(*self._in_doubt.values(), return_exceptions=True)
