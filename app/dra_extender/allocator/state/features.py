"""Which optional parts of DRA are on, and the rules in which releases of Kubernetes differ from each other or from this program."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Features:
    """Which optional parts of DRA are on; by default all."""

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

    `lapsed_shares_block`: a share of a device that is not shareable any more, or while the feature is off, keeps other claims from
    the device; upstream allocates the device whole.
    `frozen_holdings`: held devices count with the snapshot of their allocation, where there is one; upstream reads the slices.
    `ready_devices_first`: within a pool a request prefers devices without binding conditions (KEP-5007, goal 3); upstream only
    puts whole pools with such conditions behind the others.
    `grouped_devices_skipped`: with CompatibilityGroups off, the allocator skips devices with groups and uses the rest of the pool,
    by KEP-5963; released schedulers ignore every slice that holds one.
    `devices_beside_counters`: a slice may have devices beside the counter sets on which they draw, as Kubernetes 1.34 has it; from
    1.35 on such a slice counts for its counter sets alone.
    `unready_devices_while_off`: with DeviceBindingAndStatus off, the allocator ignores binding conditions and `bindsToNode`, by
    KEP-5007; upstream's allocator does not choose devices with conditions then.
    `contradictions_close_sets`: a counter set on which devices without groups and devices with groups are held admits nothing;
    up to 1.37 the device that the slices list first decides (KEP-5963 has no order).
    `unaccounted_devices`: devices that stand for CPU, memory or the like of their node (DRANodeAllocatableResources) are chosen;
    the DynamicResources plugin of upstream adds their amounts to the requests of the pods on the node, which an extender cannot.
    `devices_stay_on_node`: a device with `bindsToNode` that has a share on a node is given to no other node; upstream
    gives further shares of it to any node.
    `qualified_capacities`: a capacity with and without the name of its driver before it is one; until 1.37 a request finds only the
    spelling that the driver publishes (issue 140650).
    """

    lapsed_shares_block: bool = True
    frozen_holdings: bool = True
    ready_devices_first: bool = True
    unready_devices_while_off: bool = True
    contradictions_close_sets: bool = True
    unaccounted_devices: bool = False
    grouped_devices_skipped: bool = True
    devices_beside_counters: bool = False
    devices_stay_on_node: bool = True
    qualified_capacities: bool = True


OWN: Final = ReleaseBehaviour()
"""What the service does."""

UPSTREAM: Final = ReleaseBehaviour(
    lapsed_shares_block=False,
    frozen_holdings=False,
    ready_devices_first=False,
    unready_devices_while_off=False,
    contradictions_close_sets=False,
    unaccounted_devices=True,
    grouped_devices_skipped=False,
    devices_stay_on_node=False,
    qualified_capacities=False,
)
"""Kubernetes 1.37."""
