"""Overlays: changes to published slices before any decision reads them, and the overlay of DeviceTaintRules.

An overlay is a pure function of a slice.  It returns the slice itself where it changes nothing, so that caches by slice object stay
valid.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from dra_extender.allocator.state.release_rules import OWN, Rules
from dra_extender.model.device import Device, DeviceTaint
from dra_extender.model.device_taint_rule import DeviceTaintRule, DeviceTaintSelector
from dra_extender.model.resource_slice import ResourceSlice

_EVERYTHING: Final = DeviceTaintSelector()


class OverlaidSlice(NamedTuple):
    """The slice with an overlay applied, and a sentence for each problem."""

    effective: ResourceSlice
    problems: tuple[str, ...] = ()


class Overlay(Protocol):
    """Changes the devices of a slice."""

    def apply(self, published: ResourceSlice) -> OverlaidSlice:
        """Return the slice with this overlay; the same object if nothing changes.  Pure."""
        ...


def apply_all(published: ResourceSlice, overlays: Iterable[Overlay]) -> OverlaidSlice:
    effective, problems = published, list[str]()
    for overlay in overlays:
        overlaid = overlay.apply(effective)
        effective = overlaid.effective
        problems.extend(overlaid.problems)
    return OverlaidSlice(effective, tuple(problems))


class TaintOverlay:
    """Appends the taints of DeviceTaintRules to those that devices have (upstream's tracker); rules in order of their names."""

    __slots__ = ("_taints",)

    def __init__(self, rules: Iterable[DeviceTaintRule], release: Rules = OWN) -> None:
        bare = _EVERYTHING if release.bare_taint_rules_match_all else None
        selected = ((rule.selector or bare, rule.spec.taint) for rule in sorted(rules, key=lambda rule: rule.name))
        self._taints = tuple((selector, taint) for selector, taint in selected if selector is not None)

    def apply(self, published: ResourceSlice) -> OverlaidSlice:
        """See Overlay."""
        taints = [each for each in self._taints if each[0].concerns(published.driver, published.pool)]
        if not taints:
            return OverlaidSlice(published)
        devices = tuple(_tainted(device, taints) for device in published.devices)
        if all(new is old for new, old in zip(devices, published.devices, strict=True)):
            return OverlaidSlice(published)
        return OverlaidSlice(msgspec.structs.replace(published, devices=devices))


def _tainted(device: Device, taints: Iterable[tuple[DeviceTaintSelector, DeviceTaint]]) -> Device:
    further = tuple(taint for selector, taint in taints if selector.device in (None, device.name))
    return msgspec.structs.replace(device, taints=(*device.taints, *further)) if further else device
