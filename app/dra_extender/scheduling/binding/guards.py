"""Guards of devices that another scheduler allocated while a claim of ours had them (`dra_extender.ledger.guard_index` says why).

A guard claim keeps such a device after our claim is released.  Until our claim may be released, a reservation for that guard claim
keeps its allocation, whatever happens to its pod: kube-controller-manager removes the reservation of a deleted pod and, with the
last one, the allocation; another scheduler's pending pod would be given the device before the guard claim is allocated.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec
import structlog

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.events import AllocationEnded, GuardObserved, GuardReservationObserved, Subscription
from dra_extender.ledger.guard_index import (
    DEVICE_ANNOTATION,
    Guard,
    annotation_text,
    guard_reservations,
    name_of_guard,
    reservation_for,
    whole_devices,
)
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation_snapshot import is_snapshotted
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import with_only_device, without_allocation
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import MAX_RESERVATIONS
from dra_extender.scheduling.binding.competitors import Competitors
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.cluster import Claims, Clock, ClusterError, ConflictError, NotFoundError
from dra_extender.scheduling.ports.errors import RetryableError

MOST_GUARDS: Final = 256
GUARD_LABEL: Final = "dra-extender.io/guard"
GUARD_REQUEST: Final = "guard"
LOOK_SECONDS: Final = 0.25
MOST_WAIT_SECONDS: Final = 10.0
"""How long a release waits for competitors: kube-scheduler's longest backoff (`podMaxBackoffSeconds`, 10 by default).

In that time it tries each pod again that can be placed, while it counts the device as taken.  A pod that waits for longer finds no
device, and may do so for hours.
"""
_CLASS: Final = "wake-up.dra-extender.io"
_RETRY_SECONDS: Final = 1.0
_LOG = structlog.get_logger(__name__)


class _Due(NamedTuple):
    """A guard claim that must be looked at.

    `device`: None if the guard claim does not say for which device it was made.  `is_lost`: the other scheduler's set may have lost
    the device, so that an allocation of the guard claim must follow.
    """

    device: DeviceId | None
    is_lost: bool


class GuardClaims:
    """Allocates a guard claim for each device that a claim of another scheduler has, and a claim of ours had and lost.

    A guard claim is deleted when no claim of another scheduler has its device.  Every news of a guard claim is a reason to check
    that, in whatever order the news come.  If another allocation of that scheduler crosses its end, a new one is allocated.
    """

    def __init__(self, ledger: Ledger, claims: Claims, namespace: str, *, makes_guards: bool = True) -> None:
        """`namespace`: where guard claims are, the service's own.  `makes_guards`: if not, those of an earlier run are deleted."""
        self._ledger = ledger
        self._claims = claims
        self._namespace = namespace
        self._makes_guards = makes_guards
        self._due: dict[str, _Due] = {}
        self._some_due = asyncio.Event()

    def subscribe(self) -> tuple[Subscription, ...]:
        """Look at each allocation that ends, and at each news of a guard claim, until the subscriptions are closed."""
        subscribe = self._ledger.events.subscribe
        return (
            subscribe(AllocationEnded, lambda event: self._allocation_ended(event.devices)),
            subscribe(
                GuardObserved, lambda event: self._note(event.guard.name, _Due(event.guard.made_for, is_lost=False))
            ),
        )

    async def prepare(self, devices: Iterable[DeviceId]) -> None:
        """Create the guard claims of these devices, as far as other schedulers' claims have them, before they are needed."""
        guards = self._ledger.guards
        for device in sorted(devices):
            if guards.of_device(device) is None and len(guards) < MOST_GUARDS and self.needed((device,)):
                with suppress(ClusterError, ModelError):
                    await self._create(device)

    async def keep_guards(self) -> None:
        """Keep guard claims as needed until cancelled.

        Those that are allocated stay as they are: a new allocation would begin with a release.
        """
        for guard in self._ledger.guards.all():
            self._note(guard.name, _Due(guard.made_for, is_lost=False))
        while True:
            await self._some_due.wait()
            self._some_due.clear()
            due, self._due = self._due, {}
            outcomes = await asyncio.gather(*(self._write_due(name, guard) for name, guard in due.items()))
            if not all(outcomes):
                await asyncio.sleep(_RETRY_SECONDS)

    def needed(self, devices: Iterable[DeviceId]) -> frozenset[DeviceId]:
        """Return the devices that a claim of another scheduler has to itself; none if no guard claims are made."""
        return self._exclusive_devices(devices, by_us=False) if self._makes_guards else frozenset()

    def is_leaving(self, device: DeviceId) -> bool:
        """Return whether the device has a guard claim that is not needed any more, and whose deletion is not delivered yet."""
        return self._ledger.guards.of_device(device) is not None and not self.needed((device,))

    def _exclusive_devices(self, devices: Iterable[DeviceId], *, by_us: bool) -> frozenset[DeviceId]:
        """Return the devices that a claim has to itself; each claim is looked at once, however many devices are asked for."""
        usage = self._ledger.claims.usage
        used = {device for device in devices if usage.pool(device[:2]).get(device[2])}
        records = self._ledger.claims.records() if used else ()
        return frozenset(
            device
            for record in records
            if is_snapshotted(record.claim) is by_us
            for device in whole_devices(record.holdings).intersection(used)
        )

    def _allocation_ended(self, devices: Iterable[DeviceId]) -> None:
        for device in sorted(devices):
            driver, pool, name = device
            if (
                self._ledger.claims.usage.pool((driver, pool)).get(name)
                or self._ledger.guards.of_device(device) is not None
            ):
                self._note(name_of_guard(device), _Due(device, is_lost=True))

    def _note(self, name: str, due: _Due) -> None:
        earlier = self._due.get(name)
        if earlier is not None:
            due = _Due(due.device or earlier.device, due.is_lost or earlier.is_lost)
        self._due[name] = due
        self._some_due.set()

    async def _write_due(self, name: str, due: _Due) -> bool:
        """Allocate or delete the guard claim as it is due; return False if that failed and is due again."""
        guard, device = self._ledger.guards.by_name(name), due.device
        try:
            if device is None or not self.needed((device,)):
                if guard is not None:
                    try:
                        await self._claims.delete(self._namespace, guard.name, guard.uid)
                    except NotFoundError:
                        self._forget(guard)
            elif due.is_lost or (
                # A guard claim that was made before our claim is released waits for that release.
                guard is not None and guard.device != device and not self._exclusive_devices((device,), by_us=True)
            ):
                await self._allocate(device, guard)
        except (ClusterError, ModelError) as problem:
            _LOG.warning(
                "a guard claim could not be written", device=device and annotation_text(device), problem=str(problem)
            )
            self._note(name, due)
            return False
        return True

    async def _allocate(self, device: DeviceId, guard: Guard | None) -> None:
        if guard is None:
            if len(self._ledger.guards) >= MOST_GUARDS:
                _LOG.warning(
                    "no guard claim is made: there are too many", device=annotation_text(device), most=MOST_GUARDS
                )
                return
            try:
                guard = await self._create(device)
            except ConflictError:
                guard = await self._read(name_of_guard(device))
        if guard.device is not None:
            guard = await self._update(guard, without_allocation(guard.raw))
        await self._update(guard, with_only_device(guard.raw, GUARD_REQUEST, device))
        _LOG.info("a guard claim keeps a device that another scheduler's claim has", device=annotation_text(device))

    async def _create(self, device: DeviceId) -> Guard:
        request = {"name": GUARD_REQUEST, "exactly": {"deviceClassName": _CLASS}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name_of_guard(device),
                "namespace": self._namespace,
                "labels": {GUARD_LABEL: "device", "app.kubernetes.io/managed-by": "dra-extender"},
                "annotations": {DEVICE_ANNOTATION: annotation_text(device)},
            },
            "spec": {"devices": {"requests": [request]}},
        }
        return self._ledger.guard_stored(await self._claims.create(self._namespace, msgspec.json.encode(body)))

    async def _read(self, name: str) -> Guard:
        return self._ledger.guard_stored(await self._claims.read(self._namespace, name))

    async def _update(self, guard: Guard, body: bytes) -> Guard:
        try:
            return self._ledger.guard_stored(await self._claims.update_status(self._namespace, guard.name, body))
        except ConflictError:
            await self._read(guard.name)
            raise
        except NotFoundError:
            self._forget(guard)
            raise

    def _forget(self, guard: Guard) -> None:
        """Forget a guard claim that does not exist: its deletion may have been delivered before the answer that named it."""
        self._ledger.claim_gone(self._namespace, guard.name, guard.uid)


class _Reserved(NamedTuple):
    """A claim that is reserved for a guard claim: what looks at other pods may cost, and a pod that competed at the last one."""

    budget: CallBudget
    competitor: Pod | None = None


@dataclass(eq=False)
class GuardReservations:
    """Reserves our claims for guard claims, and ends these reservations as soon as the end of the allocation harms no other pod.

    That is when no other scheduler's claim has the device any more, when none of its pods could be given the device, or after
    `MOST_WAIT_SECONDS`.  While a pod uses the claim, too, its bind may release both; the reservation alone ends after that time.
    The allocation ends with the last reservation.  All of it follows from the stored claims, so that a restart carries on.
    """

    ledger: Ledger
    clock: Clock
    writer: ClaimWriter
    guards: GuardClaims
    competitors: Competitors
    slice_seconds: float
    _schedulers: dict[str, str] = field(default_factory=dict, init=False)
    _reserved: dict[str, _Reserved] = field(default_factory=dict, init=False)
    _some_reserved: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def subscribe(self) -> tuple[Subscription, ...]:
        """Look at each claim that is reserved for a guard claim, until the subscription is closed."""
        subscribe = self.ledger.events.subscribe
        return (subscribe(GuardReservationObserved, lambda event: self._note(event.record)),)

    def forget_all(self) -> None:
        """End no reservation until further ones are noted; the next term looks at the stored claims again."""
        self._reserved.clear()

    def find_competitor(
        self, record: ClaimRecord, scheduler: str, budget: CallBudget, candidate: Pod | None = None
    ) -> Pod | Literal[Awaited.TIME_SLICE] | None:
        """Return a pod to which a scheduler other than this one could give a device twice if the claim were released now."""
        return within_slice(partial(self.competitors.find, self._lost(record), scheduler, budget, candidate))

    async def add(self, record: ClaimRecord, pod: Pod) -> None:
        """Reserve the claim of this pod for the guard claim of a device that another scheduler's claim has, too.

        Does nothing if it is reserved so already, there is no such guard claim, or the API server refuses it.
        """
        if guard_reservations(record.claim):
            return
        guards = (self.ledger.guards.of_device(device) for device in sorted(self._lost(record)))
        guard = next((guard for guard in guards if guard is not None), None)
        if guard is None:
            return
        try:
            await self.writer.reserve(record, ((reservation_for(guard), MAX_RESERVATIONS),))
            self._schedulers[record.claim.metadata.uid] = pod.scheduler_name
        except RetryableError as problem:
            _LOG.warning(
                "a claim could not be reserved for a guard claim",
                claim=record.claim.metadata.full_name,
                problem=str(problem),
            )

    async def keep_ending(self) -> None:
        for record in self.ledger.claims.records():
            if guard_reservations(record.claim):
                self._note(record)
        while True:
            await self._some_reserved.wait()
            outcomes = await asyncio.gather(*map(self._end_if_due, tuple(self._reserved)))
            if not self._reserved:
                self._schedulers.clear()
                self._some_reserved.clear()
            await asyncio.sleep(LOOK_SECONDS if all(outcomes) else _RETRY_SECONDS)

    def _note(self, record: ClaimRecord) -> None:
        self._reserved.setdefault(record.claim.metadata.uid, _Reserved(CallBudget(self.clock, MOST_WAIT_SECONDS)))
        self._some_reserved.set()

    def _lost(self, record: ClaimRecord) -> frozenset[DeviceId]:
        return self.guards.needed(whole_devices(record.holdings))

    async def _end_if_due(self, uid: str) -> bool:
        """End the reservation of this claim if it may end; return whether the API server took every write."""
        record = self.ledger.claims.by_uid(uid)
        guards = frozenset[str]() if record is None else guard_reservations(record.claim)
        if record is None or not guards:
            self._reserved.pop(uid, None)
            return True
        consumers = record.claim.status.reserved_for
        # kube-controller-manager may be slow: what it removes later would end the allocation unseen.
        ended = guards.union(pod.uid for pod in consumers if self.ledger.pods.was_deleted(pod.uid))
        reserved = self._reserved.get(uid) or _Reserved(CallBudget(self.clock, MOST_WAIT_SECONDS))
        if reserved.budget.seconds_left > 0 and self._lost(record):
            if any(consumer.uid not in ended for consumer in consumers):
                return True
            reserved.budget.open_slice(self.slice_seconds)
            scheduler = self._schedulers.get(uid, "")
            competitor = self.find_competitor(record, scheduler, reserved.budget, reserved.competitor)
            if isinstance(competitor, Awaited):
                return True
            self._reserved[uid] = reserved._replace(competitor=competitor)
            if competitor is not None:
                return True
        try:
            await self.writer.release(record, ended)
        except RetryableError as problem:
            _LOG.warning(
                "the reservation for a guard claim could not be ended",
                claim=record.claim.metadata.full_name,
                problem=str(problem),
            )
            return False
        return True
