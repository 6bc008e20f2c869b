"""What is published, and what matches it: contradicting slices, missing devices, and what has no effect on any device."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorList, activation_of
from dra_extender.allocator.pools.pools import is_relevant, why_pool_is_unusable
from dra_extender.allocator.rules.compatible_only_with import SlicePosition
from dra_extender.allocator.rules.eligibility import briefly_tolerated, untolerated
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.findings import AuditFinding, Check, finding
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, DeviceResult, named_nodes
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, DeviceId, DeviceTaint, PoolId
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

_NO_EXECUTE = "NoExecute"


def is_for(published: ResourceSlice, node: Node) -> bool:
    """Return whether the node may use devices of the slice, as the allocator has it; a malformed node selector selects nothing."""
    try:
        return is_relevant(published, node, partitionable=True)
    except ModelError:
        return False


class PublishedDevices:
    """The devices of the newest generation of each pool; the slices of several nodes may give one name to several devices."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pools: dict[PoolId, tuple[Sequence[ResourceSlice], dict[str, list[SlicePosition]]]] = {}

    def named(self, device_id: DeviceId) -> Sequence[SlicePosition]:
        pool_id = device_id[:2]
        slices = self._ledger.slices.of_pool(pool_id)
        cached = self._pools.get(pool_id)
        if cached is None or cached[0] is not slices:
            cached = self._pools[pool_id] = (slices, _by_name(newest_generations(slices)))
        return cached[1].get(device_id[2], ())

    def absence(self, device_id: DeviceId) -> str:
        """Say that no slice publishes the device; empty if one does, or if its pool is being published anew."""
        slices = self._ledger.slices.of_pool(device_id[:2])
        if not slices:
            return "no slice publishes its pool"
        if self.named(device_id):
            return ""
        newest = newest_generations(slices)
        if len(newest) < newest[0].slice_count and device_id[2] in _by_name(slices):
            return ""
        return f"generation {newest[0].generation} of its pool does not publish it"

    def evicting_taint(self, result: DeviceResult, node: str) -> DeviceTaint | None:
        """Find a NoExecute taint that the device of this result has for pods on the node and that the result does not tolerate."""
        tolerations = [
            toleration
            for toleration in result.tolerations
            if toleration.toleration_seconds is None or toleration.toleration_seconds > 0
        ]
        taint = None
        for candidate in self.named(result.device_id):
            if candidate.published.node_name in (None, node):
                taints = (taint for taint in candidate.device.taints if taint.effect == _NO_EXECUTE)
                taint = untolerated(taints, tolerations)
                if taint is None:
                    return None
        return taint

    def briefly_tolerated(self, result: DeviceResult, node: str) -> Iterator[tuple[DeviceTaint, int]]:
        """Yield the NoExecute taints of the device of this result that are tolerated for some seconds only, and the seconds."""
        for candidate in self.named(result.device_id):
            if candidate.published.node_name in (None, node):
                yield from briefly_tolerated(candidate.device.taints, result.tolerations)

    def contradicting_nodes(self, allocation: AllocationResult, device_id: DeviceId) -> str:
        """Say on which node a device is that the node selector of the allocation does not select; empty if it selects one."""
        nodes = {candidate.published.node_name for candidate in self.named(device_id)}
        local = {node for node in nodes if node is not None}
        if not local or None in nodes:
            return ""
        if allocation.node_selector is None:
            return f"is on node {min(local)}, and the allocation is for all nodes"
        named = named_nodes(allocation)
        if named is None:
            named = frozenset(name for name in local if self._selects(allocation, name))
        return "" if named & local else f"is on node {min(local)}, which the allocation does not select"

    def _selects(self, allocation: AllocationResult, name: str) -> bool:
        """Return whether the allocation is for this node; true where that is not known."""
        node = self._ledger.nodes.get(name)
        try:
            return node is None or allocation.usable_on(name, node.labels)
        except ModelError:
            return True


def newest_generations(slices: Sequence[ResourceSlice]) -> Sequence[ResourceSlice]:
    """Return the slices of the newest generation of each pool, in the given order."""
    newest: dict[PoolId, int] = {}
    for published in slices:
        newest[published.pool_id] = max(newest.get(published.pool_id, 0), published.generation)
    return [published for published in slices if published.generation == newest[published.pool_id]]


def _by_name(slices: Sequence[ResourceSlice]) -> dict[str, list[SlicePosition]]:
    devices: dict[str, list[SlicePosition]] = {}
    for published in slices:
        for position, device in enumerate(published.devices):
            devices.setdefault(device.name, []).append(SlicePosition(published, position))
    return devices


_NOTHING: Final = "matches none of {} published devices"
_NEVER: Final = "false"
"""The selector of a class that is meant to match no device, such as the one with which rejected pods are requeued."""
_MOST_TOGETHER: Final = 64
"""Slices for all nodes that are looked at together with those of each node, on average; with more of them they are left out."""


def slice_finding(pool_id: PoolId, published: Sequence[ResourceSlice]) -> AuditFinding | None:
    """Return the first problem of the pool's newest generation; None if it is complete and its slices agree.

    Two devices of one name contradict each other only where one node can see both.
    """
    for relevant in _seen_together(newest_generations(published)):
        problem = why_pool_is_unusable(pool_id, relevant, lambda _: published)
        if problem:
            return finding(Check.SLICES, f"pool {'/'.join(pool_id)}", problem)
    return None


class SliceFindings:
    """The finding about each pool, which is looked for again once the slices of the pool have changed."""

    def __init__(self) -> None:
        self._by_pool: dict[PoolId, tuple[Sequence[ResourceSlice], AuditFinding | None]] = {}

    def of_pool(self, pool_id: PoolId, published: Sequence[ResourceSlice]) -> AuditFinding | None:
        """Return `slice_finding` of the pool.  `published` must be another object when a slice has changed."""
        cached = self._by_pool.get(pool_id)
        if cached is None or cached[0] is not published:
            cached = self._by_pool[pool_id] = (published, slice_finding(pool_id, published))
        return cached[1]

    def forget_all_but(self, pools: Collection[PoolId]) -> None:
        self._by_pool = {pool_id: entry for pool_id, entry in self._by_pool.items() if pool_id in pools}


def unmatched_classes(classes: Iterable[DeviceClass], slices: Sequence[ResourceSlice]) -> Iterator[AuditFinding | None]:
    """Yield a finding for each class that matches no device, with the first error of its selectors; None after each object."""
    programs = ProgramCache()
    unmatched: dict[str, SelectorList] = {}
    for device_class in classes:
        if all(selector.cel is None or selector.cel.expression != _NEVER for selector in device_class.spec.selectors):
            unmatched[device_class.name] = class_selectors(device_class, programs)
        yield None
    problems: dict[str, str] = {}
    for published, position in _distinct_devices(slices):
        if not unmatched:
            return
        if position is not None:
            activation = activation_of(published, published.devices[position])
            for name, selectors in tuple(unmatched.items()):
                try:
                    if selectors.evaluate(published, position, None, activation):
                        del unmatched[name]
                except SelectorError as problem:
                    problems.setdefault(name, str(problem))
                except SelectionTimeoutError:
                    problems.setdefault(name, "its selectors take too long")
        yield None
    total = sum(len(published.devices) for published in slices)
    for name in sorted(unmatched):
        error = f"; {problems[name]}" if name in problems else ""
        yield finding(Check.CLASS_WITHOUT_DEVICES, f"class {name}", _NOTHING.format(total) + error)


def class_selectors(device_class: DeviceClass, programs: ProgramCache) -> SelectorList:
    """Return the selectors of a class; one of a kind that is not known fails on every device, as the allocator has it."""
    expressions = ["" if selector.cel is None else selector.cel.expression for selector in device_class.spec.selectors]
    return SelectorList(expressions, programs)


def taint_rules_without_effect(
    rules: Mapping[str, DeviceTaintRule], slices: Sequence[ResourceSlice]
) -> Iterator[AuditFinding | None]:
    """Yield a finding for each DeviceTaintRule that taints no device; None after each rule."""
    total = sum(len(published.devices) for published in slices)
    for name, rule in sorted(rules.items()):
        if rule.selector is None:
            text = "has no deviceSelector, so it taints no device"
        elif not any(
            rule.selector.selects((*published.pool_id, device.name))
            for published in slices
            for device in published.devices
        ):
            text = _NOTHING.format(total)
        else:
            text = ""
        if text:
            yield finding(Check.POLICY_WITHOUT_EFFECT, f"DeviceTaintRule {name}", text)
        yield None


def _distinct_devices(slices: Sequence[ResourceSlice]) -> Iterator[tuple[ResourceSlice, int | None]]:
    """Yield a device (slice, position) of each kind that expressions can tell apart, and (slice, None) after each slice.

    Names of devices are not among what expressions see.
    """
    kinds: set[object] = set()
    for published in slices:
        for position, device in enumerate(published.devices):
            kind = device_kind(published, device)
            if kind not in kinds:
                kinds.add(kind)
                yield published, position
        yield published, None


def device_kind(published: ResourceSlice, device: Device) -> tuple[object, ...]:
    """Return what is equal for devices that expressions cannot tell apart, as long as their slices are kept."""
    # Equal lists of attributes are one object (`model.device.DeviceReader`), and the slices keep it while they are looked at.
    return published.driver, id(device.attributes), id(device.capacity), device.allow_multiple_allocations


def _seen_together(current: Sequence[ResourceSlice]) -> Iterator[Sequence[ResourceSlice]]:
    """Yield slices that one node can see: those of each node, or of each selector, with those for all nodes.

    Selectors that differ may select one node all the same; that is not looked for.
    """
    everywhere = [published for published in current if published.all_nodes]
    groups: dict[object, list[ResourceSlice]] = {}
    for published in current:
        if published.node_name is not None:
            groups.setdefault(("node", published.node_name), []).append(published)
        elif published.node_selector is not None:
            groups.setdefault(("selector", repr(published.node_selector)), []).append(published)
        elif not published.all_nodes:
            # Its devices name their nodes.
            groups.setdefault(("slice", published.name), []).append(published)
    if not groups and everywhere:
        yield everywhere
    if len(groups) * len(everywhere) > len(current) * _MOST_TOGETHER:
        yield everywhere
        everywhere = []
    for group in groups.values():
        yield [*group, *everywhere]
