"""Switches of the allocator, one for each optional part of DRA.

A switch that is off has upstream's gate-off semantics: a request that needs the part is rejected with a message.
"""

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
        """Return the switches from upstream's CamelCase names ("PartitionableDevices"); a missing name is off.

        Raises:
            ValueError: a name is not one of the eleven.
        """
        unknown = sorted(set(names) - set(FIELD_OF_NAME))
        if unknown:
            raise ValueError(f"unknown feature {unknown[0]!r}, expected one of {', '.join(sorted(FIELD_OF_NAME))}")
        return cls(**{field: bool(names.get(name, False)) for name, field in FIELD_OF_NAME.items()})


def _camel(field: str) -> str:
    return "".join(part.capitalize() for part in field.split("_"))


FIELD_OF_NAME: Final[Mapping[str, str]] = {_camel(field.name): field.name for field in fields(Features)}
"""Upstream's name of a feature -> field of `Features`."""


def why_off(field: str) -> str:
    """Half a sentence for a refusal, e.g. `DerivedAttributes, which is off`."""
    return f"{_camel(field)}, which is off"
