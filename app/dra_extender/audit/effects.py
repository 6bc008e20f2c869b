"""What has no effect: device classes that match no device, DeviceTaintRules and rules of the policy that change none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorList, activation_of
from dra_extender.audit.findings import AuditFinding, Check, finding
from dra_extender.cel.program_cache import ProgramCache
from dra_extender.model.device import Device
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.resource_slice import ResourceSlice

_NOTHING: Final = "matches none of {} published devices"


def unmatched_classes(classes: Iterable[DeviceClass], slices: Sequence[ResourceSlice]) -> Iterator[AuditFinding | None]:
    """A finding for each class that matches no device, with the first error of its selectors; None after each device."""
    programs = ProgramCache()
    open_classes = {
        each.name: SelectorList(
            ["" if selector.cel is None else selector.cel.expression for selector in each.spec.selectors], programs
        )
        for each in classes
    }
    yield None
    problems: dict[str, str] = {}
    for published, position in _distinct_devices(slices):
        if not open_classes:
            return
        activation = activation_of(published, published.devices[position])
        for name, selectors in tuple(open_classes.items()):
            try:
                if selectors.evaluate(published, position, None, activation):
                    del open_classes[name]
            except SelectorError as problem:
                problems.setdefault(name, str(problem))
            except SelectionTimeoutError:
                problems.setdefault(name, "its selectors take too long")
        yield None
    total = sum(len(each.devices) for each in slices)
    for name in sorted(open_classes):
        error = f"; {problems[name]}" if name in problems else ""
        yield finding(Check.CLASS_WITHOUT_DEVICES, f"class {name}", _NOTHING.format(total) + error)


def taint_rules_without_effect(
    rules: Mapping[str, DeviceTaintRule], slices: Sequence[ResourceSlice]
) -> Iterator[AuditFinding | None]:
    """A finding for each DeviceTaintRule that taints no device; None after each rule."""
    total = sum(len(each.devices) for each in slices)
    for name, rule in sorted(rules.items()):
        if rule.selector is None:
            text = "has no deviceSelector, so it taints no device"
        elif not _taints_any(rule, slices):
            text = _NOTHING.format(total)
        else:
            text = ""
        if text:
            yield finding(Check.POLICY_WITHOUT_EFFECT, f"DeviceTaintRule {name}", text)
        yield None


def policy_findings(messages: Iterable[str]) -> Iterator[AuditFinding]:
    """A finding for each message about a rule of the policy that has no effect."""
    for each in messages:
        yield finding(Check.POLICY_WITHOUT_EFFECT, "policy", each)


def _taints_any(rule: DeviceTaintRule, slices: Iterable[ResourceSlice]) -> bool:
    selector = rule.selector
    return selector is not None and any(
        selector.device in (None, device.name)
        for each in slices
        if selector.concerns(each.driver, each.pool)
        for device in each.devices
    )


def _distinct_devices(slices: Sequence[ResourceSlice]) -> Iterator[tuple[ResourceSlice, int]]:
    """A device (slice, position) of each kind that expressions can tell apart; names of devices are not among what they see."""
    seen: set[object] = set()
    for published in slices:
        for position, device in enumerate(published.devices):
            kind = _kind(published, device)
            if kind not in seen:
                seen.add(kind)
                yield published, position


def _kind(published: ResourceSlice, device: Device) -> tuple[object, ...]:
    # Equal lists of attributes are one object (`model.device.DeviceReader`), and the slices keep it while they are looked at.
    return published.driver, id(device.attributes), id(device.capacity), device.allow_multiple_allocations
