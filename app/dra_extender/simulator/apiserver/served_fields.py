"""Which fields an API server of a given age keeps.  The API server drops other fields in silence."""

import msgspec

from dra_extender.manifests.api_defaults import bodies
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part
from dra_extender.simulator.apiserver.validation import InvalidError

OLDEST, NEWEST = 34, 37


class Served(msgspec.Struct, frozen=True):
    """Fields that the emulated API server keeps, with the alpha gates of its release for partitions and taints on.

    `groups`: `compatibilityGroups` on slices (KEP-5963).  `conditions`: binding conditions and `bindsToNode` on slices and in
    allocations (KEP-5007).  `shares`: sharing by capacity, in slices, requests and allocations (KEP-5075).  `extended`: what
    extended resources backed by device classes need (KEP-5004).  `frozen_groups`: `compatibilityGroups` in allocations, as KEP-5963
    has it and no release yet.  `node_resources`: `nodeAllocatableResources` and `partitionTypeAttribute` on slices.
    `devices_beside_counters`: slices with both, as in 1.34.
    """

    groups: bool = True
    conditions: bool = True
    shares: bool = True
    extended: bool = True
    frozen_groups: bool = False
    node_resources: bool = True
    devices_beside_counters: bool = False

    def check(self, kind: StoredKind, thing: Json) -> None:
        """Refuse what the server refuses.

        Raises:
            InvalidError: with the server's message.
        """
        spec = part(thing, "spec") if kind is StoredKind.SLICE else {}
        if spec.get("sharedCounters") and spec.get("devices") and not self.devices_beside_counters:
            name = thing["metadata"]["name"]
            raise InvalidError(
                f'{kind.singular}.resource.k8s.io "{name}"',
                'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
            )

    def strip(self, kind: StoredKind, thing: Json) -> None:
        """Drop what the server does not keep, in place."""
        match kind:
            case StoredKind.SLICE:
                self._strip_slice(part(thing, "spec"))
            case StoredKind.CLAIM:
                self._strip_allocation(part(thing, "status", "allocation"))
                if not self.shares:
                    for body in bodies(part(thing, "spec")):
                        body.pop("capacity", None)
            case StoredKind.CLASS if not self.extended:
                part(thing, "spec").pop("extendedResourceName", None)
            case StoredKind.POD if not self.extended:
                part(thing, "status").pop("extendedResourceClaimStatus", None)

    def _strip_slice(self, spec: Json) -> None:
        if not self.node_resources:
            spec.pop("partitionTypeAttribute", None)
        for device in spec.get("devices") or []:
            self._strip_device(device)

    def _strip_device(self, device: Json) -> None:
        if not self.groups:
            for consumption in device.get("consumesCounters") or []:
                consumption.pop("compatibilityGroups", None)
        if not self.node_resources:
            device.pop("nodeAllocatableResources", None)
        if not self.conditions:
            for name in ("bindsToNode", "bindingConditions", "bindingFailureConditions"):
                device.pop(name, None)
        if not self.shares:
            device.pop("allowMultipleAllocations", None)
            for capacity in (device.get("capacity") or {}).values():
                capacity.pop("requestPolicy", None)

    def _strip_allocation(self, allocation: Json) -> None:
        for result in part(allocation, "devices").get("results") or []:
            if not self.frozen_groups:
                result.pop("compatibilityGroups", None)
            if not self.conditions:
                result.pop("bindingConditions", None)
                result.pop("bindingFailureConditions", None)
            if not self.shares:
                result.pop("shareID", None)
                result.pop("consumedCapacity", None)


def served_by(minor: int) -> Served:
    """Return what Kubernetes 1.`minor` keeps.

    Raises:
        ValueError: not a release from 1.34 to 1.37.
    """
    if not OLDEST <= minor <= NEWEST:
        raise ValueError(f"cannot emulate Kubernetes 1.{minor}: expected a minor release from {OLDEST} to {NEWEST}")
    recent = minor >= 36  # noqa: PLR2004 - the release since which the gates of these are on by default
    return Served(
        groups=minor >= NEWEST,
        conditions=recent,
        shares=recent,
        extended=recent,
        node_resources=minor >= NEWEST,
        devices_beside_counters=minor == OLDEST,
    )
