"""Constraints of a claim: matchAttribute and distinctAttribute, over scalar attributes or (feature on) sets of values.

The running state of a constraint is an immutable value that the search keeps and undoes; None means that no device has joined.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dra_extender.cel.device import Attribute
from dra_extender.model.device import Device

REFUSED: Final = object()
"""Result of `Constraint.state_with` when the device may not join."""

_SETS: Final = ("int_values", "bool_values", "string_values", "version_values")
_SET_SCALARS: Final = ("int_value", "bool_value", "string_value", "version_value")
_SCALARS: Final = ("string_value", "int_value", "bool_value", "version_value")

ValueSet = frozenset[tuple[str, Any]]
"""Values tagged with their type, so that 1, true and "1" differ."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a claim.  With `lists`, attributes are sets of values; otherwise plain scalars are compared."""

    attribute: str
    distinct: bool
    requests: tuple[str, ...]
    lists: bool

    def applies_to(self, main: str, full: str) -> bool:
        """Return whether a request takes part, by its name or as `main/alternative`; no list means every request."""
        return not self.requests or main in self.requests or full in self.requests

    def state_with(self, state: Any, attribute: Attribute | None) -> Any:
        """Return the state once a device with this attribute has joined; REFUSED if it may not, as without the attribute."""
        if attribute is None:
            return REFUSED
        if self.distinct:
            members = state or ()
            if not self.lists:
                return (*members, attribute) if differs(attribute, members) else REFUSED
            values = value_set(attribute)
            return (*members, values) if values and all(map(values.isdisjoint, members)) else REFUSED
        if self.lists:
            values = value_set(attribute)
            return (values if state is None else state & values) or REFUSED
        if state is None:
            return attribute
        scalar = _scalar(attribute)
        return state if scalar is not None and getattr(state, scalar[0]) == scalar[1] else REFUSED

    def deciding(self, state: Any) -> Hashable:
        """Return the part of a state that decides about further devices: for distinctAttribute the values in any order."""
        return frozenset(state) if self.distinct and state is not None else state

    @property
    def field(self) -> str:
        """The field of the API that has the attribute."""
        return "distinctAttribute" if self.distinct else "matchAttribute"

    def text(self) -> str:
        """Return the constraint for people, e.g. `matchAttribute example.com/numa`."""
        return f"{self.field} {self.attribute}"


class ConstraintConflict(NamedTuple):
    """A constraint that excludes a device: the device's attribute, and the values of the devices that have joined.

    `joined_values` is the common set of matchAttribute, or one set for each device of distinctAttribute; empty without any device.
    """

    constraint: Constraint
    attribute: Attribute | None
    joined_values: tuple[ValueSet, ...]


def conflict_of(constraint: Constraint, attribute: Attribute | None, state: Any) -> ConstraintConflict:
    """Return why a device may not join a constraint in this state."""
    values = () if state is None else state if constraint.distinct else (state,)
    return ConstraintConflict(
        constraint, attribute, tuple(value_set(value) if isinstance(value, Attribute) else value for value in values)
    )


def lookup(name: str, driver: str, device: Device) -> Attribute | None:
    """Return the attribute under its full name, or under its bare name when the domain is the device's driver."""
    domain, slash, bare = name.partition("/")
    bare_name = bare if slash and domain == driver else None
    unqualified: Attribute | None = None
    for key, attribute in device.attributes:
        if key == name:
            return attribute
        if key == bare_name:
            unqualified = attribute
    return unqualified


def value_set(attribute: Attribute) -> ValueSet:
    """Return all values of an attribute: the first non-empty list, else the first scalar; empty if it has none."""
    for field in _SETS:
        values = getattr(attribute, field)
        if values:
            return frozenset((field[:3], value) for value in values)
    for field in _SET_SCALARS:
        value = getattr(attribute, field)
        if value is not None:
            return frozenset(((field[:3], value),))
    return frozenset()


def differs(attribute: Attribute, joined: Collection[Attribute]) -> bool:
    """Return whether the scalar differs from those of all joined attributes; False if any joined and there is no scalar."""
    if not joined:
        return True
    scalar = _scalar(attribute)
    return scalar is not None and all(getattr(member, scalar[0]) != scalar[1] for member in joined)


def _scalar(attribute: Attribute) -> tuple[str, Any] | None:
    for field in _SCALARS:
        value = getattr(attribute, field)
        if value is not None:
            return field, value
    return None
