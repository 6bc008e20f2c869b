"""Reservations of our claims for guard claims: they keep an allocation that must not end yet, whatever happens to its pod.

A pod that waits to yield may be deleted.  kube-controller-manager then removes its reservation and, with the last one, the
allocation; another scheduler's pending pod would be given the device before a guard claim is allocated.
"""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

import structlog

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.events import GuardReservationObserved, Subscription
from dra_extender.ledger.index.guards import guard_reservations, reservation_for, whole_devices
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import MAX_RESERVATIONS
from dra_extender.scheduling.binding.competitors import Competitors
from dra_extender.scheduling.binding.guard_claims import GuardClaims
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.search_time.time_slices import CallBudget

LOOK_SECONDS: Final = 0.25
MOST_WAIT_SECONDS: Final = 10.0
"""How long a release waits for competitors: kube-scheduler's longest backoff (`podMaxBackoffSeconds`, 10 by default).

In that time it tries each pod again that can be placed, while it counts the device as taken.  A pod that waits for longer finds no
device, and may do so for hours.
"""
_RETRY_SECONDS: Final = 1.0
_LOG = structlog.get_logger(__name__)


class _Reserved(NamedTuple):
    """A claim that is reserved for a guard claim: what looks at other pods may cost, and a pod that competed at the last one."""

    budget: CallBudget
    competitor: Pod | None = None


class GuardReservations:
    """Reserves our claims for guard claims, and ends these reservations as soon as the end of the allocation harms no other pod.

    That is when no other scheduler's claim has the device any more, when none of its pods could be given the device, or after
    `MOST_WAIT_SECONDS`.  While a pod uses the claim, too, its bind may release both; the reservation alone ends after that time.
    The allocation ends with the last reservation.  All of it follows from the stored claims, so that a restart carries on.
    """

    def __init__(
        self, context: SchedulingContext, writer: ClaimWriter, guards: GuardClaims, competitors: Competitors
    ) -> None:
        self._ledger = context.ledger
        self._clock = context.clock
        self._slice_seconds = context.options.search_slice_seconds
        self._writer = writer
        self._guards = guards
        self._competitors = competitors
        self._schedulers: dict[str, str] = {}
        self._reserved: dict[str, _Reserved] = {}
        self._some_reserved = asyncio.Event()
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Look at each claim that is reserved for a guard claim from now on."""
        self.stop()
        subscribe = self._ledger.events.subscribe
        self._subscription = subscribe(GuardReservationObserved, lambda event: self._note(event.record))

    def stop(self) -> None:
        """Look at no further claim."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._reserved.clear()

    def competitor(
        self, record: ClaimRecord, scheduler: str, budget: CallBudget, known: Pod | None = None
    ) -> Pod | None:
        """Return a pod to which a scheduler other than this one could give a device twice if the claim were released now.

        Raises:
            SearchPaused: the slice of the budget is over.
        """
        return self._competitors.find(self._lost(record), scheduler, budget, known)

    async def add(self, record: ClaimRecord, pod: Pod) -> None:
        """Reserve the claim of this pod for the guard claim of a device that another scheduler's claim has, too.

        Does nothing if it is reserved so already, there is no such guard claim, or the API server refuses it.
        """
        if guard_reservations(record.claim):
            return
        guards = (self._ledger.guards.of(device) for device in sorted(self._lost(record)))
        guard = next((guard for guard in guards if guard is not None), None)
        if guard is None:
            return
        try:
            await self._writer.reserve(record, ((reservation_for(guard), MAX_RESERVATIONS),))
            self._schedulers[record.claim.metadata.uid] = pod.scheduler_name
        except RetryableError as problem:
            _LOG.warning("a claim could not be reserved for a guard claim", claim=_name(record), problem=str(problem))

    async def run(self) -> None:
        """End reservations until cancelled."""
        for record in self._ledger.claims.records():
            if guard_reservations(record.claim):
                self._note(record)
        while True:
            await self._some_reserved.wait()
            done = await asyncio.gather(*map(self._attempt, tuple(self._reserved)))
            if not self._reserved:
                self._schedulers.clear()
                self._some_reserved.clear()
            await asyncio.sleep(LOOK_SECONDS if all(done) else _RETRY_SECONDS)

    def _note(self, record: ClaimRecord) -> None:
        self._reserved.setdefault(record.claim.metadata.uid, self._new())
        self._some_reserved.set()

    def _new(self) -> _Reserved:
        return _Reserved(CallBudget(self._clock, MOST_WAIT_SECONDS))

    def _lost(self, record: ClaimRecord) -> Collection[DeviceId]:
        return self._guards.needed(whole_devices(record.holdings))

    async def _attempt(self, uid: str) -> bool:
        """End the reservation of this claim if it may end; return whether the API server took every write."""
        record = self._ledger.claims.by_uid(uid)
        guards = frozenset[str]() if record is None else guard_reservations(record.claim)
        if record is None or not guards:
            self._reserved.pop(uid, None)
            return True
        consumers = record.claim.status.reserved_for
        # kube-controller-manager may be slow: what it removes later would end the allocation unseen.
        ended = guards.union(pod.uid for pod in consumers if self._ledger.pods.was_deleted(pod.uid))
        if not self._may_end(record, is_used=any(consumer.uid not in ended for consumer in consumers)):
            return True
        try:
            await self._writer.release(record, ended)
        except RetryableError as problem:
            _LOG.warning(
                "the reservation for a guard claim could not be ended", claim=_name(record), problem=str(problem)
            )
            return False
        return True

    def _may_end(self, record: ClaimRecord, *, is_used: bool) -> bool:
        uid = record.claim.metadata.uid
        reserved = self._reserved.get(uid) or self._new()
        if reserved.budget.seconds_left <= 0 or not self._lost(record):
            return True
        if is_used:
            return False
        reserved.budget.open_slice(self._slice_seconds)
        try:
            competitor = self.competitor(record, self._schedulers.get(uid, ""), reserved.budget, reserved.competitor)
        except SearchPaused:
            return False
        self._reserved[uid] = reserved._replace(competitor=competitor)
        return competitor is None


def _name(record: ClaimRecord) -> str:
    return "/".join(record.claim.metadata.key)
