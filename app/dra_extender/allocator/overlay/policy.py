"""The admin's policy: fields of devices that their slices leave out.

For each field of a device the published value wins, then the first rule that matches the device and supplies the field; for groups,
each counter set is a field.  `Device.sources` records which rule supplied which field.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dra_extender.allocator.demand.alignment import PolicyPreferences
from dra_extender.allocator.demand.selectors import activation_of
from dra_extender.allocator.fragmentation.kinds import ExpectedPod
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.program import Program
from dra_extender.model.device import PHYSICAL_DEVICE, CounterConsumption, Device, groups_source
from dra_extender.model.resource_slice import ResourceSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One rule; None and empty mean that the rule does not supply the field, or does not narrow the devices.

    `physical_device` is compiled as a derived attribute.  The groups are for `counter_set`; None means each counter set on which
    the device draws.  `neighbours_on` is that of `Device`.
    """

    name: str
    driver: str | None = None
    pool: str | None = None
    devices: Program | None = None
    counter_set: str | None = None
    compatibility_groups: tuple[str, ...] = ()
    physical_device: Program | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False
    compatible_only_with: str | None = None
    neighbours_on: str = ""

    def concerns(self, published: ResourceSlice) -> bool:
        """Return whether the rule may match devices of this slice."""
        return self.driver in (None, published.driver) and self.pool in (None, published.pool)


class OverlaidSlice(NamedTuple):
    """The slice with a policy applied, and a sentence for each problem."""

    effective: ResourceSlice
    problems: tuple[str, ...] = ()


class PolicyOverlay:
    """Rules in order of precedence, and the pods that the administrator expects.

    A `devices` expression that fails on a device does not match it; a `physicalDevice` that fails or returns no text names no
    physical device.  Both are problems of the overlaid slice.  `preferences` change no device: they are about claims.
    """

    __slots__ = ("expected", "preferences", "rules")

    def __init__(
        self,
        rules: Sequence[PolicyRule],
        preferences: PolicyPreferences = (),
        expected: Sequence[ExpectedPod] = (),
    ) -> None:
        self.rules = tuple(rules)
        self.preferences = preferences
        self.expected = tuple(expected)

    def apply(self, published: ResourceSlice) -> OverlaidSlice:
        """Return the slice with the policy; the same object if nothing changes.  Pure."""
        rules = [rule for rule in self.rules if rule.concerns(published)]
        if not rules or not published.devices:
            return OverlaidSlice(published)
        problems: list[str] = []
        devices = tuple(_PolicyTarget(published, device, problems).with_rules(rules) for device in published.devices)
        if all(new is old for new, old in zip(devices, published.devices, strict=True)):
            return OverlaidSlice(published, tuple(problems))
        return OverlaidSlice(msgspec.structs.replace(published, devices=devices), tuple(problems))


class _PolicyTarget:
    """One device while rules are applied to it."""

    __slots__ = ("_activation", "_device", "_problems", "_sources", "_where")

    def __init__(self, published: ResourceSlice, device: Device, problems: list[str]) -> None:
        self._device = device
        self._activation = activation_of(published, device)
        self._where = f"{published.driver}/{published.pool}/{device.name}"
        self._problems = problems
        self._sources: list[tuple[str, str]] = []

    def with_rules(self, rules: Sequence[PolicyRule]) -> Device:
        """Return the device with the fields that the rules supply; the same object if they supply none."""
        matching = [rule for rule in rules if self._matches(rule)]
        if not matching:
            return self._device
        device, changes = self._device, dict[str, Any]()
        physical = self._physical_device(matching)
        entries = device.consumes_counters if physical is None else (*device.consumes_counters, physical)
        consumption = tuple(self._grouped(entry, matching) for entry in entries)
        if consumption != device.consumes_counters:
            changes["consumes_counters"] = consumption
        conditions = next((rule for rule in matching if rule.binding_conditions), None)
        if conditions is not None and device.binding_conditions is None and device.binding_failure_conditions is None:
            self._sources.append(("bindingConditions", conditions.name))
            changes["binding_conditions"] = conditions.binding_conditions
            changes["binding_failure_conditions"] = conditions.binding_failure_conditions
        binding = next((rule for rule in matching if rule.binds_to_node), None)
        if binding is not None and not device.binds_to_node:
            self._sources.append(("bindsToNode", binding.name))
            changes["binds_to_node"] = True
        # One rule supplies the expression and its scope together.
        neighbours = next((rule for rule in matching if rule.compatible_only_with is not None), None)
        if neighbours is not None and device.compatible_only_with is None:
            self._sources.append(("compatibleOnlyWith", neighbours.name))
            changes["compatible_only_with"] = neighbours.compatible_only_with
            changes["neighbours_on"] = neighbours.neighbours_on
        if not changes:
            return device
        return msgspec.structs.replace(device, sources=(*device.sources, *self._sources), **changes)

    def _matches(self, rule: PolicyRule) -> bool:
        if rule.devices is None:
            return True
        try:
            return rule.devices.matches(self._activation)
        except CelRuntimeError as problem:
            self._problems.append(f"rule {rule.name}: devices: fails on {self._where}: {problem}")
            return False

    def _physical_device(self, rules: Sequence[PolicyRule]) -> CounterConsumption | None:
        for rule in rules:
            if rule.physical_device is None:
                continue
            try:
                name = rule.physical_device.attribute(self._activation).string_value
            except CelRuntimeError as problem:
                self._problems.append(f"rule {rule.name}: physicalDevice: fails on {self._where}: {problem}")
                continue
            if name:
                self._sources.append(("physicalDevice", rule.name))
                return CounterConsumption(counter_set=PHYSICAL_DEVICE + name)
            expected = "expected a text that is not empty"
            self._problems.append(f"rule {rule.name}: physicalDevice: {expected} for {self._where}")
        return None

    def _grouped(self, entry: CounterConsumption, rules: Sequence[PolicyRule]) -> CounterConsumption:
        if entry.compatibility_groups:
            return entry
        name = entry.counter_set.removeprefix(PHYSICAL_DEVICE) if entry.synthetic else entry.counter_set
        for rule in rules:
            if rule.compatibility_groups and rule.counter_set in (None, name):
                self._sources.append((groups_source(entry.counter_set), rule.name))
                return msgspec.structs.replace(
                    entry, compatibility_groups=rule.compatibility_groups, groups_supplied=True
                )
        return entry
