from collections.abc import Iterable

import msgspec

from app.allocator.overlay import Laid
from app.model.device import Device
from app.model.device_taint_rule import DeviceTaintRule
from app.model.resource_slice import ResourceSlice


class TaintOverlay:
    """Appends the taints of DeviceTaintRules to those that devices have (upstream's tracker); rules in order of their names.

    A rule without selector taints everything, as upstream does.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Iterable[DeviceTaintRule]) -> None:
        self._rules = tuple(sorted(rules, key=lambda rule: rule.name))

    def lay(self, published: ResourceSlice) -> Laid:
        """See Overlay."""
        rules = [rule for rule in self._rules if rule.selector.concerns(published.driver, published.pool)]
        if not rules:
            return Laid(published)
        devices = tuple(_tainted(device, rules) for device in published.devices)
        if all(new is old for new, old in zip(devices, published.devices, strict=True)):
            return Laid(published)
        return Laid(msgspec.structs.replace(published, devices=devices))


def _tainted(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    taints = tuple(rule.spec.taint for rule in rules if rule.selector.device in (None, device.name))
    return msgspec.structs.replace(device, taints=(*device.taints, *taints)) if taints else device
