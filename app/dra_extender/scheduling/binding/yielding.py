"""Before the Binding, allocations yield to other claims that were given the same device first (see `conflicts`)."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog

from dra_extender.allocator.rules.verdict import DEVICE
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.guard_index import guard_reservations, whole_devices
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.scheduling.binding.conflicts import FOREIGN, AllocationConflict, find_conflict
from dra_extender.scheduling.binding.guards import (
    LOOK_SECONDS,
    MOST_WAIT_SECONDS,
    GuardClaims,
    GuardReservations,
)
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.reservations import ClaimReleasedError, Unreserve
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options, YieldPolicy
from dra_extender.scheduling.time_slices import CallBudget, Pending
from dra_extender.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from dra_extender.scheduling.binding.bind import BindSession

_LOG = structlog.get_logger(__name__)


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


class ConflictYield:
    """Releases the claims of a bind whose devices were allocated to another claim first, and begins a backoff of the node.

    If the other claim is another scheduler's, the release waits for pods that could be given the device, too (`YieldPolicy`).
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        allocator: NodeAllocator,
        unreserve: Unreserve,
        backoff: DeviceBackoff,
        guards: GuardClaims,
        reservations: GuardReservations,
        metrics: Metrics,
        options: Options,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._allocator = allocator
        self._unreserve = unreserve
        self._backoff = backoff
        self._guards = guards
        self._reservations = reservations
        self._metrics = metrics
        self._policy = options.yield_policy
        self._slice_seconds = options.search_slice_seconds

    async def release_conflicting(self, bind: "BindSession") -> None:
        """Return if the bind may go on: no claim is in conflict, or another pod runs with it already.

        Raises:
            ClaimReleasedError: there was a conflict; every claim of the pod with one is released.
            RetryableError: the bind should end; another scheduler's claim has a device until the bind's deadline; or the API server
                refused a write.
        """
        bind.check()
        text = ""
        now = self._clock.monotonic()
        budget = CallBudget(self._clock, min(bind.deadline - now, MOST_WAIT_SECONDS))
        for claim in bind.claims:
            loss = await self._wait_while_unsafe(claim, bind, budget)
            if loss is None:
                continue
            conflict = loss.conflict
            text = f"claim {claim.name}: {loss.text}"
            self._metrics.allocation_overlaps.labels(conflict.kind, "yielded", conflict.writer).inc()
            _LOG.warning(
                "an allocation overlaps another one and is released",
                claim=claim.name,
                node=bind.node,
                **conflict._asdict(),
            )
            await self._unreserve.release(claim, bind.pod, guard_reservations(claim.record.claim))
        if text:
            self._backoff.bind_undone(bind.pod.uid, bind.node)
            raise ClaimReleasedError(text)

    async def wait_for_guards(self, record: ClaimRecord, bind: "BindSession") -> None:
        """Return when no guard claim that is due to be deleted has a device of this pending allocation.

        Its deletion would remove the device from the other scheduler's set again, if it came after our write.

        Raises:
            RetryableError: the bind should end.
        """
        if record.pending is None or not len(self._ledger.guards):
            return
        devices = whole_devices(record.pending.holdings)
        until = min(bind.deadline, self._clock.monotonic() + MOST_WAIT_SECONDS)
        while leaving := [device for device in devices if self._guards.is_leaving(device)]:
            if self._clock.monotonic() >= until:
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
        conflict, prepared, competitor = self._conflict(claim, bind), False, None
        while conflict is not None:
            is_foreign_device = (conflict.kind, conflict.writer) == (DEVICE, FOREIGN)
            if not prepared:
                await self._guards.prepare(whole_devices(claim.record.holdings))
                prepared = True
            elif self._policy is YieldPolicy.WAIT and is_foreign_device:
                if self._clock.monotonic() >= bind.deadline:
                    raise RetryableError(
                        f"claim {claim.name}: {conflict.text}; pod {bind.pod.key} waits for the end of that allocation"
                    )
                await wait_for_any((bind.recheck,), LOOK_SECONDS)
            elif not is_foreign_device:
                return _Loss(conflict, None)
            else:
                budget.open_slice(self._slice_seconds)
                judged = self._reservations.find_competitor(claim.record, bind.pod.scheduler_name, budget, competitor)
                if isinstance(judged, Pending):
                    await self._reservations.add(claim.record, bind.pod)
                    await asyncio.sleep(0)
                else:
                    competitor = judged
                    if competitor is None or budget.seconds_left <= 0:
                        return _Loss(conflict, competitor)
                    await self._reservations.add(claim.record, bind.pod)
                    await wait_for_any((bind.recheck,), LOOK_SECONDS)
            bind.check()
            conflict = self._conflict(claim, bind)
        return None

    def _conflict(self, claim: FoundClaim, bind: "BindSession") -> AllocationConflict | None:
        node = self._ledger.nodes.get(bind.node)
        pools = None if node is None else self._allocator.pools_of(node)
        conflict = find_conflict(
            claim.record, self._ledger.claims, self._ledger.slices, pools, self._allocator.compatibility_check
        )
        return None if conflict is None or self._unreserve.runs_elsewhere(claim, bind.pod) else conflict
