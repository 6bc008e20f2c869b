"""The taints of DeviceTaintRules."""

from collections.abc import Iterable

import msgspec

from dra_extender.model.device import Device, DeviceTaint
from dra_extender.model.device_taint_rule import DeviceTaintRule, DeviceTaintSelector
from dra_extender.model.resource_slice import ResourceSlice


class TaintOverlay:
    """Appends the taints of DeviceTaintRules to those that devices have (upstream's tracker), equal ones once.

    Rules come in the order of their names; one without `deviceSelector` taints nothing.
    """

    __slots__ = ("_taints",)

    def __init__(self, rules: Iterable[DeviceTaintRule]) -> None:
        ordered = sorted(rules, key=lambda rule: rule.name)
        self._taints = tuple((rule.selector, rule.spec.taint) for rule in ordered if rule.selector is not None)

    def apply(self, published: ResourceSlice) -> ResourceSlice:
        """Return the slice with the taints; the same object if nothing changes."""
        taints = [taint for taint in self._taints if taint[0].concerns(published.driver, published.pool)]
        if not taints:
            return published
        devices = tuple(_tainted(device, taints) for device in published.devices)
        if all(new is old for new, old in zip(devices, published.devices, strict=True)):
            return published
        return msgspec.structs.replace(published, devices=devices)


def _tainted(device: Device, added: Iterable[tuple[DeviceTaintSelector, DeviceTaint]]) -> Device:
    further = [taint for selector, taint in added if selector.device in (None, device.name)]
    taints = tuple(dict.fromkeys((*device.taints, *further)))
    return msgspec.structs.replace(device, taints=taints) if further else device
