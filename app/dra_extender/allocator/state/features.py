"""Optional parts of DRA, and the rules in which releases of Kubernetes differ from each other or from this program."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Features:
    """The optional parts of DRA that are on; by default all."""

    admin_access: bool = True
    compatibility_groups: bool = True
    consumable_capacity: bool = True
    derived_attributes: bool = True
    device_binding_and_status: bool = True
    device_taints: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = True
    optional_node_operations: bool = True
    partitionable_devices: bool = True
    prioritized_list: bool = True

    @classmethod
    def from_names(cls, names: Mapping[str, bool]) -> "Features":
        """Return the switches from upstream's CamelCase names ("PartitionableDevices"); a missing name is off."""
        unknown = sorted(set(names) - set(FIELD_OF_NAME))
        if unknown:
            raise ValueError(f"unknown feature {unknown[0]!r}, expected one of {', '.join(sorted(FIELD_OF_NAME))}")
        return cls(**{field: bool(names.get(name, False)) for name, field in FIELD_OF_NAME.items()})


def _camel(field: str) -> str:
    return "".join(part.capitalize() for part in field.split("_"))


FIELD_OF_NAME: Final[Mapping[str, str]] = {_camel(field.name): field.name for field in fields(Features)}
"""Upstream's name of a feature -> field of `Features`."""


def why_off(field: str) -> str:
    """Return half a sentence for a refusal, e.g. `DerivedAttributes, which is off`."""
    return f"{_camel(field)}, which is off"


@dataclass(frozen=True, slots=True)
class ReleaseBehaviour:
    """Rules in which this service and releases of upstream decide differently; the defaults are what the service does.

    `as_upstream`: decide as Kubernetes 1.37 does where docs/reference/differences.md has a star:

        - A share of a device that is not shareable any more does not keep claims for the whole device away.
        - Groups and counters of held devices are read from the slices, not from the snapshots of the allocations.
        - With CompatibilityGroups off, a slice with a device that has groups is ignored as a whole.
        - With DeviceBindingAndStatus off, devices with binding conditions are not chosen, and `bindsToNode` counts.
        - If a counter set has members with and without groups, the device that the slices list first decides.
        - Devices that stand for CPU or memory of their node (DRANodeAllocatableResources) are chosen.
        - A device with `bindsToNode` that has a share on a node is shared with other nodes, too.
        - A request finds a capacity only in the spelling that the driver publishes (issue 140650).

    `ready_devices_first`: within a pool a request prefers devices without binding conditions (KEP-5007, goal 3); upstream only
    puts whole pools with such conditions behind the others.
    `devices_beside_counters`: a slice may have devices beside the counter sets on which they draw, as Kubernetes 1.34 has it; from
    1.35 on such a slice counts only for its counter sets.
    """

    as_upstream: bool = False
    ready_devices_first: bool = True
    devices_beside_counters: bool = False


OWN: Final = ReleaseBehaviour()
"""What the service does."""

UPSTREAM: Final = ReleaseBehaviour(as_upstream=True, ready_devices_first=False)
"""Kubernetes 1.37."""
