from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from dra_extender.kube.client.resources import CLAIM_TEMPLATES, WARNINGS, WATCHED, ResourceKind


class Support(StrEnum):
    """Whether an API server stores an optional field."""

    KEPT = "kept"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OptionalField:
    """Fields that an API server drops without an error while a feature gate is off.

    `since`: minor release of Kubernetes 1 that introduced the gate; `always`: the first one in which the gate is locked on.
    `lost`: what does not work without them.  Releases follow the gate tables of Kubernetes 1.34 to 1.37.
    """

    name: str
    gate: str
    since: int
    lost: str
    always: int | None = None


EXTENDED_RESOURCES: Final = "extended-resources"
DEVICES_BESIDE_COUNTERS_UNTIL: Final = 34
"""The last minor release of Kubernetes 1 whose slices may have devices beside counter sets; later ones refuse such slices."""
OPTIONAL_FIELDS: Final = (
    OptionalField("compatibility-groups", "DRADeviceCompatibilityGroups", 37, "drivers cannot publish groups"),
    OptionalField("partitionable-devices", "DRAPartitionableDevices", 33, "drivers cannot publish shared counters"),
    OptionalField(
        "consumable-capacity", "DRAConsumableCapacity", 34, "devices cannot be shared, nor consumed capacity stored"
    ),
    OptionalField(
        "binding-conditions", "DRADeviceBindingConditions", 34, "drivers cannot publish conditions to wait for"
    ),
    OptionalField(
        "device-status", "DRAResourceClaimDeviceStatus", 32, "drivers cannot report conditions of devices", always=37
    ),
    OptionalField(
        EXTENDED_RESOURCES,
        "DRAExtendedResource",
        34,
        "pods cannot be told of a claim, so extended resources are served by nodes that list them and by no device class",
        always=37,
    ),
    OptionalField("device-taints", "DRADeviceTaints", 33, "devices cannot be tainted"),
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What an API server is and serves.

    `minor` is the release of Kubernetes 1 as which it behaves (an emulated version counts, not the build).
    `pod_groups` and `taint_rules`: the kinds to watch, None where they are not served.
    `fields`: support by name of `OPTIONAL_FIELDS`.
    `allocation_groups`: whether the API's schema has `compatibilityGroups` in allocation results as KEP-5963 plans it.
    """

    git_version: str
    minor: int
    resource_versions: tuple[str, ...]
    scheduling_versions: tuple[str, ...]
    pod_groups: ResourceKind | None
    taint_rules: ResourceKind | None
    fields: Mapping[str, Support]
    allocation_groups: Support = Support.UNKNOWN

    def kinds(self) -> Mapping[str, ResourceKind]:
        """Return the kinds that a reader may ask for, by plural name."""
        optional = {kind.plural: kind for kind in (self.pod_groups, self.taint_rules) if kind is not None}
        return {**WATCHED, CLAIM_TEMPLATES.plural: CLAIM_TEMPLATES, WARNINGS.plural: WARNINGS, **optional}

    def notes(self) -> Mapping[str, str]:
        """Return sentences for people, by name: the version, and each field or kind that is missing or uncertain."""
        notes = {"api-server": f"{self.git_version}, behaves as 1.{self.minor}"}
        for field in OPTIONAL_FIELDS:
            support = self.fields.get(field.name, Support.UNKNOWN)
            if support is Support.UNKNOWN:
                notes[field.name] = (
                    f"unknown until an object carries it: /metrics does not tell us about gate {field.gate}"
                )
            elif support is Support.DROPPED:
                reason = f"behaves as 1.{self.minor}" if self.minor < field.since else f"gate {field.gate} is off"
                notes[field.name] = f"not served by this API server ({reason}): {field.lost}"
        if self.allocation_groups is Support.KEPT:
            notes["allocation-groups"] = "the groups of allocated devices are written to the allocation, too"
        elif self.allocation_groups is Support.UNKNOWN:
            notes["allocation-groups"] = "the API's schema cannot be read: groups are kept in the annotation alone"
        if self.pod_groups is None:
            notes["pod-groups"] = "not served by this API server: pods are placed one by one"
        if self.taint_rules is None:
            notes["device-taint-rules"] = "not served by this API server: only taints in slices count"
        return notes


def supports(minor: int, gates: Mapping[str, bool] | None) -> Mapping[str, Support]:
    """Return the support of each optional field at a release, given the gates that the server publishes (None: none)."""
    return MappingProxyType({field.name: _support(field, minor, gates) for field in OPTIONAL_FIELDS})


def _support(field: OptionalField, minor: int, gates: Mapping[str, bool] | None) -> Support:
    if minor < field.since:
        return Support.DROPPED
    if field.always is not None and minor >= field.always:
        return Support.KEPT
    if gates is None:
        return Support.UNKNOWN
    # A server that reports its gates but not this one has outgrown it.
    return Support.KEPT if gates.get(field.gate, True) else Support.DROPPED
