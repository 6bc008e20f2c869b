"""Guard claims: they keep devices that another scheduler allocated while a claim of ours had them."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from dra_extender.ledger.events import AllocationEnded, Subscription
from dra_extender.ledger.index.guards import DEVICE_ANNOTATION, Guard, annotation_text, name_of_guard, whole_devices
from dra_extender.ledger.ledger import Ledger
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


class GuardClaims:
    """Allocates a guard claim for each device that a claim of another scheduler has, and a claim of ours had and lost.

    The guard claim goes when the other scheduler's allocation does.  If yet another allocation of that scheduler crosses its end,
    it is allocated anew.  See `dra_extender.ledger.index.guards` for the reason.
    """

    def __init__(self, ledger: Ledger, claims: Claims, namespace: str) -> None:
        """`namespace`: where guard claims are, the service's own."""
        self._ledger = ledger
        self._claims = claims
        self._namespace = namespace
        self._due: dict[DeviceId, None] = {}
        self._some_due = asyncio.Event()
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Look at each allocation that ends from now on."""
        self.stop()
        self._subscription = self._ledger.events.subscribe(AllocationEnded, lambda event: self.ended(event.devices))

    def stop(self) -> None:
        """Look at no further allocation."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def ended(self, devices: Iterable[DeviceId]) -> None:
        """An allocation of each of these devices has ended."""
        for device in sorted(devices):
            driver, pool, name = device
            held = self._ledger.claims.usage.pool((driver, pool)).get(name)
            if held or self._ledger.guards.of(device) is not None:
                self._due[device] = None
                self._some_due.set()

    async def prepare(self, devices: Iterable[DeviceId]) -> None:
        """Create the guard claims of these devices, as far as other schedulers' claims have them, before they are needed."""
        for device in sorted(devices):
            guards = self._ledger.guards
            if guards.of(device) is None and len(guards) < MOST_GUARDS and self._is_needed(device):
                with suppress(ClusterError, ModelError):
                    self._take_over(await self._claims.create(self._namespace, _body(self._namespace, device)))

    async def run(self) -> None:
        """Keep guard claims as needed until cancelled."""
        for guard in self._ledger.guards.all():
            if guard.made_for is None:
                await self._attempt(None, guard)
            else:
                self._due[guard.made_for] = None
                self._some_due.set()
        while True:
            await self._some_due.wait()
            self._some_due.clear()
            due, self._due = self._due, {}
            done = await asyncio.gather(*(self._attempt(device, self._ledger.guards.of(device)) for device in due))
            if not all(done):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _attempt(self, device: DeviceId | None, guard: Guard | None) -> bool:
        """Do what is due for the device; whether that was possible.  Otherwise it is due again."""
        try:
            if device is not None and self._is_needed(device):
                await self._allocate(device, guard)
            elif guard is not None:
                await self._remove(guard)
        except (ClusterError, ModelError) as problem:
            _LOG.warning(
                "a guard claim could not be written", device=device and annotation_text(device), problem=str(problem)
            )
            if device is not None:
                self._due[device] = None
                self._some_due.set()
            return False
        return True

    def _is_needed(self, device: DeviceId) -> bool:
        """Whether a claim of another scheduler has the device to itself."""
        driver, pool, name = device
        if not self._ledger.claims.usage.pool((driver, pool)).get(name):
            return False
        return any(
            device in whole_devices(record.holdings) and not is_snapshotted(record.claim)
            for record in self._ledger.claims.records()
        )

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
            self._ledger.guards.drop(guard.name, guard.uid)

    async def _write(self, guard: Guard, body: bytes) -> Guard:
        try:
            return self._take_over(await self._claims.update_status(self._namespace, guard.name, body))
        except ConflictError:
            self._take_over(await self._claims.read(self._namespace, guard.name))
            raise

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
