"""Guard claims: they keep devices that another scheduler allocated while a claim of ours had them."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import structlog

from dra_extender.ledger.events import AllocationEnded, GuardObserved, Subscription
from dra_extender.ledger.index.guards import DEVICE_ANNOTATION, Guard, annotation_text, name_of_guard, whole_devices
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import with_only_device, without_allocation
from dra_extender.model.device import DeviceId
from dra_extender.model.snapshot import is_snapshotted
from dra_extender.scheduling.ports.cluster import Claims, ClusterError, ConflictError, NotFoundError

MOST_GUARDS: Final = 256
GUARD_LABEL: Final = "dra-extender.io/guard"
GUARD_REQUEST: Final = "guard"
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
    that, in whatever order the news come.  If another allocation of that scheduler crosses its end, a new one
    is allocated.  See `dra_extender.ledger.index.guards` for the reason.
    """

    def __init__(self, ledger: Ledger, claims: Claims, namespace: str, *, makes_guards: bool = True) -> None:
        """`namespace`: where guard claims are, the service's own.  `makes_guards`: if not, those of an earlier run are deleted."""
        self._ledger = ledger
        self._claims = claims
        self._namespace = namespace
        self._makes_guards = makes_guards
        self._due: dict[str, _Due] = {}
        self._some_due = asyncio.Event()
        self._subscriptions: tuple[Subscription, ...] = ()

    def start(self) -> None:
        """Look at each allocation that ends, and at each news of a guard claim, from now on."""
        self.stop()
        subscribe = self._ledger.events.subscribe
        self._subscriptions = (
            subscribe(AllocationEnded, lambda event: self.ended(event.devices)),
            subscribe(GuardObserved, lambda event: self._add_due(event.guard)),
        )

    def stop(self) -> None:
        """Look at no further allocation and at no further guard claim."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = ()

    def ended(self, devices: Iterable[DeviceId]) -> None:
        """Have the guard claims of these devices looked at: an allocation of each device has ended."""
        for device in sorted(devices):
            driver, pool, name = device
            held = self._ledger.claims.usage.pool((driver, pool)).get(name)
            if held or self._ledger.guards.of(device) is not None:
                self._note(name_of_guard(device), _Due(device, is_lost=True))

    async def prepare(self, devices: Iterable[DeviceId]) -> None:
        """Create the guard claims of these devices, as far as other schedulers' claims have them, before they are needed."""
        for device in sorted(devices):
            guards = self._ledger.guards
            if guards.of(device) is None and len(guards) < MOST_GUARDS and self.is_needed(device):
                with suppress(ClusterError, ModelError):
                    self._take_over(await self._claims.create(self._namespace, _body(self._namespace, device)))

    async def run(self) -> None:
        """Keep guard claims as needed until cancelled.

        Those that are allocated stay as they are: a new allocation would begin with a release.
        """
        for guard in self._ledger.guards.all():
            self._add_due(guard)
        while True:
            await self._some_due.wait()
            self._some_due.clear()
            due, self._due = self._due, {}
            done = await asyncio.gather(*(self._attempt(name, known) for name, known in due.items()))
            if not all(done):
                await asyncio.sleep(_RETRY_SECONDS)

    def _add_due(self, guard: Guard) -> None:
        self._note(guard.name, _Due(guard.made_for, is_lost=False))

    def _note(self, name: str, due: _Due) -> None:
        known = self._due.get(name)
        if known is not None:
            due = _Due(due.device or known.device, due.is_lost or known.is_lost)
        self._due[name] = due
        self._some_due.set()

    async def _attempt(self, name: str, due: _Due) -> bool:
        """Write what is due for the guard claim; whether that was possible.  Otherwise it is due again."""
        guard, device = self._ledger.guards.by_name(name), due.device
        try:
            if device is None or not self.is_needed(device):
                if guard is not None:
                    await self._remove(guard)
            elif due.is_lost or self._lacks_device(guard, device):
                await self._allocate(device, guard)
        except (ClusterError, ModelError) as problem:
            _LOG.warning(
                "a guard claim could not be written", device=device and annotation_text(device), problem=str(problem)
            )
            self._note(name, due)
            return False
        return True

    def is_needed(self, device: DeviceId) -> bool:
        """Whether guard claims are made, and a claim of another scheduler has the device to itself."""
        return bool(self.needed((device,)))

    def needed(self, devices: Iterable[DeviceId]) -> frozenset[DeviceId]:
        """Return the devices for which `is_needed`, after one look at each claim however many devices are asked for."""
        usage = self._ledger.claims.usage
        used = {device for device in devices if usage.pool(device[:2]).get(device[2])} if self._makes_guards else ()
        records = self._ledger.claims.records() if used else ()
        return frozenset(
            device
            for record in records
            if not is_snapshotted(record.claim)
            for device in whole_devices(record.holdings).intersection(used)
        )

    def is_leaving(self, device: DeviceId) -> bool:
        """Return whether the device has a guard claim that is not needed any more, and whose deletion is not delivered yet."""
        return self._ledger.guards.of(device) is not None and not self.is_needed(device)

    def _lacks_device(self, guard: Guard | None, device: DeviceId) -> bool:
        """Whether the guard claim is not allocated, though no claim of ours has the device any more.

        A guard claim that was made before ours is released waits for that release.
        """
        if guard is None or guard.device == device:
            return False
        return not any(is_snapshotted(record.claim) for record in self._records_with(device))

    def _records_with(self, device: DeviceId) -> Iterator[ClaimRecord]:
        """Yield the claims that have the device to themselves."""
        driver, pool, name = device
        if self._ledger.claims.usage.pool((driver, pool)).get(name):
            for record in self._ledger.claims.records():
                if device in whole_devices(record.holdings):
                    yield record

    async def _allocate(self, device: DeviceId, guard: Guard | None) -> None:
        if guard is None:
            if len(self._ledger.guards) >= MOST_GUARDS:
                _LOG.warning(
                    "no guard claim is made: there are too many", device=annotation_text(device), most=MOST_GUARDS
                )
                return
            try:
                guard = self._take_over(await self._claims.create(self._namespace, _body(self._namespace, device)))
            except ConflictError:
                guard = self._take_over(await self._claims.read(self._namespace, name_of_guard(device)))
        if guard.device is not None:
            guard = await self._write(guard, without_allocation(guard.raw))
        await self._write(guard, with_only_device(guard.raw, GUARD_REQUEST, device))
        _LOG.info("a guard claim keeps a device that another scheduler's claim has", device=annotation_text(device))

    async def _remove(self, guard: Guard) -> None:
        try:
            await self._claims.delete(self._namespace, guard.name, guard.uid)
        except NotFoundError:
            self._forget(guard)

    async def _write(self, guard: Guard, body: bytes) -> Guard:
        try:
            return self._take_over(await self._claims.update_status(self._namespace, guard.name, body))
        except ConflictError:
            self._take_over(await self._claims.read(self._namespace, guard.name))
            raise
        except NotFoundError:
            self._forget(guard)
            raise

    def _forget(self, guard: Guard) -> None:
        """The guard claim does not exist: its deletion may have been delivered before the answer that named it."""
        self._ledger.claim_gone(self._namespace, guard.name, guard.uid)

    def _take_over(self, raw: bytes) -> Guard:
        return self._ledger.guard_stored(raw)


def _body(namespace: str, device: DeviceId) -> bytes:
    request = {"name": GUARD_REQUEST, "exactly": {"deviceClassName": _CLASS}}
    return msgspec.json.encode(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name_of_guard(device),
                "namespace": namespace,
                "labels": {GUARD_LABEL: "device", "app.kubernetes.io/managed-by": "dra-extender"},
                "annotations": {DEVICE_ANNOTATION: annotation_text(device)},
            },
            "spec": {"devices": {"requests": [request]}},
        }
    )
