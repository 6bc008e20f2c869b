"""The effects of a policy on the published devices: rules without effect, and neighbours whose rules disagree."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.allocator.demand.selectors import activation_of
from dra_extender.allocator.overlay.policy import PolicyRule
from dra_extender.allocator.rules.compatible_only_with import NeighbourScope, is_neighbour, scope_of
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache
from dra_extender.model.device import NODE, POOL, Device
from dra_extender.model.resource_slice import ResourceSlice

MAX_DEVICES: Final = 20_000
"""With more devices the effects are not computed; each device takes some microseconds."""
MAX_PAIRS: Final = 200_000
"""Pairs of neighbours that are compared at most."""
_ONLY_WITH: Final = "compatibleOnlyWith"


class PublishedDevice(NamedTuple):
    """A device with the overlays applied, its slice and its scope."""

    published: ResourceSlice
    device: Device
    scope: NeighbourScope

    @property
    def supplied_by(self) -> str:
        """The rule of the policy that supplied `compatibleOnlyWith`; empty where the slice has it."""
        return dict(self.device.sources).get(_ONLY_WITH, "")

    @property
    def name(self) -> str:
        """driver/pool/device."""
        return f"{self.published.driver}/{self.published.pool}/{self.device.name}"


class AsymmetricRule(NamedTuple):
    """Two neighbours: the rule of `refusing` is false for `refused`, and no rule of `refused` is false for `refusing`."""

    refusing: PublishedDevice
    refused: PublishedDevice


def published_devices(slices: Iterable[ResourceSlice]) -> list[PublishedDevice] | None:
    """Return all devices of these slices, which have the overlays applied; None if there are more than MAX_DEVICES."""
    pairs = list(islice(((published, device) for published in slices for device in published.devices), MAX_DEVICES + 1))
    if len(pairs) > MAX_DEVICES:
        return None
    return [PublishedDevice(published, device, scope_of(published, device)) for published, device in pairs]


def ineffective_messages(rules: Sequence[PolicyRule], slices: Iterable[ResourceSlice]) -> tuple[str, ...]:
    """Return a sentence about each rule that has no effect on these slices, which have the overlays applied."""
    return tuple(message for _, message in ineffective_rules(rules, published_devices(slices) or ()))


def ineffective_rules(rules: Sequence[PolicyRule], devices: Sequence[PublishedDevice]) -> Iterator[tuple[str, str]]:
    """Yield (rule, a sentence) for each rule that has no effect; without devices only what follows from the rules."""
    return ((name, f"rule {name} has no effect: {why}") for name, why in _ineffective(rules, devices))


def _ineffective(rules: Sequence[PolicyRule], devices: Sequence[PublishedDevice]) -> Iterator[tuple[str, str]]:
    """Yield (rule, why it has no effect)."""
    supplying = {rule for device in devices for _, rule in device.device.sources}
    for index, rule in enumerate(rules):
        before = next((earlier.name for earlier in rules[:index] if _covers(earlier, rule)), None)
        if before is not None:
            yield rule.name, f"rule {before} before it means the same devices and supplies the same"
        elif devices and rule.name not in supplying:
            yield rule.name, f"none of {len(devices)} published devices takes anything from it"
        elif devices and rule.compatible_only_with is not None:
            yield from _without_neighbours(rule, devices)


def _without_neighbours(rule: PolicyRule, devices: Sequence[PublishedDevice]) -> Iterator[tuple[str, str]]:
    """Yield (rule, why) if no device with `compatibleOnlyWith` of the rule has a published neighbour."""
    having = [device for device in devices if device.supplied_by == rule.name]
    if not having:
        if set(_supplied(rule)) == {_ONLY_WITH}:
            yield rule.name, "compatibleOnlyWith of every device that it means comes from its slice or another rule"
        return
    # How many devices there are on each node, in each pool, and on each counter set.
    counts: Counter[object] = Counter()
    for device in devices:
        pool, node, sets = device.scope
        counts.update((pool, (NODE, node), *((pool, counter_set) for counter_set in sets)))
    if not any(_has_neighbour(device, counts) for device in having):
        where = {POOL: "their pools", NODE: "their nodes"}.get(rule.neighbours_on, "their counter sets or pools")
        yield rule.name, f"compatibleOnlyWith: its {len(having)} devices have no neighbours on {where}"


def _has_neighbour(device: PublishedDevice, counts: Mapping[object, int]) -> bool:
    pool, node, sets = device.scope
    on = device.device.neighbours_on
    if on == NODE:
        return node is not None and counts[NODE, node] > 1
    if on == POOL or not sets:
        return counts[pool] > 1
    return any(counts[pool, counter_set] > 1 for counter_set in sets)


def asymmetric_rules(devices: Sequence[PublishedDevice]) -> Iterator[AsymmetricRule]:
    """Yield neighbours whose rules disagree; of each pair of expressions the first two devices."""
    rules = _NeighbourRules()
    reported: set[tuple[str | None, str | None]] = set()
    for refusing, neighbour in islice(_neighbours(devices), MAX_PAIRS):
        key = (refusing.device.compatible_only_with, neighbour.device.compatible_only_with)
        if key not in reported and not rules.is_true(refusing, neighbour) and rules.accepts(neighbour, refusing):
            reported.add(key)
            yield AsymmetricRule(refusing, neighbour)


def _neighbours(devices: Sequence[PublishedDevice]) -> Iterator[tuple[PublishedDevice, PublishedDevice]]:
    """Yield each device that has a rule with each neighbour that the rule concerns: a device of its pool or node."""
    near = defaultdict[object, list[PublishedDevice]](list)
    for device in devices:
        near[device.scope.pool_id].append(device)
        near[NODE, device.scope.node].append(device)
    for owner in devices:
        on = owner.device.neighbours_on
        if owner.device.compatible_only_with is not None:
            for neighbour in near[(NODE, owner.scope.node) if on == NODE else owner.scope.pool_id]:
                if neighbour is not owner and is_neighbour(on, owner.scope, neighbour.scope):
                    yield owner, neighbour


class _NeighbourRules:
    """Evaluates the rules of devices; an expression that does not compile or fails is not true."""

    __slots__ = ("_programs", "_verdicts")

    def __init__(self) -> None:
        self._programs = ProgramCache()
        self._verdicts: dict[tuple[str, str], bool] = {}

    def accepts(self, owner: PublishedDevice, neighbour: PublishedDevice) -> bool:
        """Return whether the owner has no rule that concerns the other device, or one that is true for it."""
        device = owner.device
        if device.compatible_only_with is None or not is_neighbour(device.neighbours_on, owner.scope, neighbour.scope):
            return True
        return self.is_true(owner, neighbour)

    def is_true(self, owner: PublishedDevice, neighbour: PublishedDevice) -> bool:
        expression = owner.device.compatible_only_with or ""
        key = (expression, neighbour.name)
        if key not in self._verdicts:
            self._verdicts[key] = False
            with suppress(CelCompileError, CelRuntimeError):
                program = self._programs.compile(expression)
                self._verdicts[key] = program.matches(activation_of(neighbour.published, neighbour.device))
        return self._verdicts[key]


def _covers(earlier: PolicyRule, later: PolicyRule) -> bool:
    """Return whether the earlier rule supplies all fields of the later one to each device that the later one matches."""
    if earlier.devices is not None or earlier.physical_device is not None or later.physical_device is not None:
        return False
    if earlier.driver not in (None, later.driver) or earlier.pool not in (None, later.pool):
        return False
    if later.compatibility_groups and earlier.counter_set not in (None, later.counter_set):
        return False
    return set(_supplied(later)) <= set(_supplied(earlier))


def _supplied(rule: PolicyRule) -> Iterator[str]:
    if rule.compatibility_groups:
        yield "compatibilityGroups"
    if rule.physical_device is not None:
        yield "physicalDevice"
    if rule.binding_conditions:
        yield "bindingConditions"
    if rule.binds_to_node:
        yield "bindsToNode"
    if rule.compatible_only_with is not None:
        yield _ONLY_WITH
