"""Guard claims: ResourceClaims of this service that keep a device in another scheduler's books while a claim of its own has it.

kube-scheduler's DynamicResources plugin keeps a set of allocated devices that counts no references: when one of two claims with the
same device loses its allocation, the device leaves the set although the other claim still has it, and the next pod gets it, too.
A guard claim, allocated after that loss, puts the device back.  Guard claims take nothing here: the claim they stand for does.

A claim of ours may be reserved for a guard claim: kube-controller-manager removes reservations of pods and PodGroups only, and
keeps the allocation as long as another one is left.
"""

from collections.abc import Iterable
from typing import Final

from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import Value
from dra_extender.model.device import DeviceId, device_id_of
from dra_extender.model.digest import digest_of
from dra_extender.model.metadata import version_number
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference, ResourceClaim

GUARD_PREFIX: Final = "dra-extender-guard-"
GUARD_MARK: Final = GUARD_PREFIX.encode()
"""The JSON of an object without these bytes is no guard claim."""

DEVICE_ANNOTATION: Final = "dra-extender.io/device"
_CLAIMS: Final = ("resource.k8s.io", "resourceclaims")


class Guard(Value, frozen=True, rename=None):
    """A guard claim as stored: the device for which it was made, None if nothing in it fits its name any more.

    `device` is what it has, None as long as it is not allocated.
    """

    name: str
    uid: str
    raw: bytes
    version: int
    made_for: DeviceId | None = None
    device: DeviceId | None = None


class GuardIndex:
    """The guard claims of one namespace, by name.  Claims of other namespaces that are called like one are ordinary claims."""

    def __init__(self) -> None:
        self.namespace = ""
        self._guards: dict[str, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def all(self) -> Iterable[Guard]:
        return tuple(self._guards.values())

    def of_device(self, device: DeviceId) -> Guard | None:
        return self._guards.get(name_of_guard(device))

    def by_name(self, name: str) -> Guard | None:
        return self._guards.get(name)

    def has(self, namespace: str, name: str) -> bool:
        return is_guard((namespace, name), self.namespace)

    def put(self, claim: ResourceClaim, raw: bytes) -> Guard:
        """Store a guard claim as the server has it; returns the newest known state.  An older state changes nothing."""
        meta, allocation = claim.metadata, claim.status.allocation
        stored = self._guards.get(meta.name)
        if stored is not None and stored.version >= version_number(meta.resource_version):
            return stored
        results = () if allocation is None else allocation.devices.results
        device = (results[0].driver, results[0].pool, results[0].device) if results else None
        candidates = (device, device_id_of(meta.annotations.get(DEVICE_ANNOTATION, "")))
        guard = self._guards[meta.name] = Guard(
            name=meta.name,
            uid=meta.uid,
            raw=raw,
            version=version_number(meta.resource_version),
            made_for=next(
                (device_id for device_id in candidates if device_id and name_of_guard(device_id) == meta.name), None
            ),
            device=device,
        )
        return guard

    def drop(self, name: str, uid: str) -> Guard | None:
        """Remove the guard claim with this UID; returns its last state, None if another one has its name by now."""
        stored = self._guards.get(name)
        return None if stored is None or uid not in ("", stored.uid) else self._guards.pop(name)


def annotation_text(device: DeviceId) -> str:
    return "/".join(device)


def is_guard(key: tuple[str, str], guard_namespace: str) -> bool:
    """Return whether the claim with this key (namespace, name) is a guard claim; all are in one namespace (empty: none)."""
    namespace, name = key
    return bool(guard_namespace) and namespace == guard_namespace and name.startswith(GUARD_PREFIX)


def name_of_guard(device: DeviceId) -> str:
    return GUARD_PREFIX + digest_of(annotation_text(device).encode()).hex()


def reservation_for(guard: Guard) -> ConsumerReference:
    """Return the entry of `reservedFor` that keeps a claim allocated for this guard claim."""
    return ConsumerReference(api_group=_CLAIMS[0], resource=_CLAIMS[1], name=guard.name, uid=guard.uid)


def is_guard_reservation(consumer: ConsumerReference) -> bool:
    return (consumer.api_group, consumer.resource) == _CLAIMS and consumer.name.startswith(GUARD_PREFIX)


def guard_reservations(claim: ClaimHead) -> frozenset[str]:
    """Return the UIDs of the guard claims of the claim's own devices for which it is reserved."""
    consumers = [consumer for consumer in claim.status.reserved_for if is_guard_reservation(consumer)]
    if not consumers or claim.status.allocation is None:
        return frozenset()
    results = claim.status.allocation.devices.results
    names = {name_of_guard(result.device_id) for result in results}
    return frozenset(consumer.uid for consumer in consumers if consumer.name in names)


def whole_devices(holdings: Iterable[DeviceHolding]) -> frozenset[DeviceId]:
    """Return the devices that these holdings have to themselves: neither a share nor administrative access."""
    return frozenset(holding.device_id for holding in holdings if holding.share_id is None and not holding.admin)
