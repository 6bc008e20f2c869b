"""Keeps ResourceSlices as drivers publish them, applies the policy and DeviceTaintRules, and finds slices by pool and node."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from dra_extender.allocator.demand.alignment import PolicyPreferences
from dra_extender.allocator.overlay.policy import OverlaidSlice, PolicyOverlay
from dra_extender.allocator.overlay.taint_rules import TaintOverlay
from dra_extender.ledger.set_index import discard_member
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, PoolId
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.node import Node
from dra_extender.model.node_selector import NODE_NAME_FIELD, NodeSelectorTerm
from dra_extender.model.resource_slice import ResourceSlice

K = TypeVar("K")

Anchor = tuple[str | None, str]
"""A label and a value of it; without label: the name of a node."""

_ANYWHERE: Final[Anchor] = (None, "")


class SliceIndex:
    """ResourceSlices by name, pool and node; always in order of names, so that no decision depends on the order of events."""

    def __init__(self) -> None:
        self._by_name: dict[str, ResourceSlice] = {}
        self._by_pool: _GroupedSlices[PoolId] = _GroupedSlices()
        self._by_node: _GroupedSlices[str] = _GroupedSlices()
        # Slices without `nodeName`, by a label that a node must have for a slice to be for it: so the cost of a node depends on
        # its labels and the slices near it, not on the number of all slices.
        self._by_anchor: _GroupedSlices[Anchor] = _GroupedSlices()
        self._reached: dict[PoolId, frozenset[str] | None] = {}
        # Names of the slices that have devices with nodeAllocatableResources.
        self._node_allocatable: dict[PoolId, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, ResourceSlice]:
        return self._by_name

    def local(self, node: str) -> Sequence[ResourceSlice]:
        return self._by_node.group(node)

    def near(self, node: Node) -> Sequence[ResourceSlice]:
        """Return the slices without `nodeName` that may be for this node, by name: all that are, and some that are not."""
        groups = self._by_anchor
        anywhere = groups.group(_ANYWHERE)
        slices = {published.name: published for published in groups.group((None, node.name))}
        for anchor in node.labels.items():
            for published in groups.group(anchor):
                slices[published.name] = published
        if not slices:
            return anywhere
        slices.update((published.name, published) for published in anywhere)
        return [slices[name] for name in sorted(slices)]

    def of_pool(self, pool_id: PoolId) -> Sequence[ResourceSlice]:
        return self._by_pool.group(pool_id)

    def nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        """Return the nodes whose searches can read this pool; None when that may be any node."""
        try:
            return self._reached[pool_id]
        except KeyError:
            names = {published.node_name for published in self._by_pool.group(pool_id)}
            reached = None if None in names else frozenset(name for name in names if name is not None)
            self._reached[pool_id] = reached
            return reached

    def node_allocatable(self, pool_id: PoolId, device: str) -> Device | None:
        """Return the device as it is published, if it counts against resources of its node."""
        for name in sorted(self._node_allocatable.get(pool_id, ())):
            for published in self._by_name[name].devices:
                if published.name == device and published.node_allocatable:
                    return published
        return None

    def put(self, item: ResourceSlice) -> ResourceSlice | None:
        """Add a slice; return the one that it replaces."""
        old = self.drop(item.name)
        self._by_name[item.name] = item
        self._reached.pop(item.pool_id, None)
        self._by_pool.put(item.pool_id, item)
        if any(device.node_allocatable for device in item.devices):
            self._node_allocatable.setdefault(item.pool_id, set()).add(item.name)
        if item.node_name is None:
            for anchor in _anchors(item):
                self._by_anchor.put(anchor, item)
        else:
            self._by_node.put(item.node_name, item)
        return old

    def drop(self, name: str) -> ResourceSlice | None:
        """Remove a slice and return it."""
        old = self._by_name.pop(name, None)
        if old is None:
            return None
        self._reached.pop(old.pool_id, None)
        self._by_pool.drop(old.pool_id, name)
        discard_member(self._node_allocatable, old.pool_id, name)
        if old.node_name is None:
            for anchor in _anchors(old):
                self._by_anchor.drop(anchor, name)
        else:
            self._by_node.drop(old.node_name, name)
        return old


class _GroupedSlices(Generic[K]):
    """Slices in groups, each in order of names; a group is sorted again when it was asked for and has changed since."""

    def __init__(self) -> None:
        self._members: dict[K, dict[str, ResourceSlice]] = {}
        self._sorted: dict[K, tuple[ResourceSlice, ...]] = {}

    def group(self, key: K) -> tuple[ResourceSlice, ...]:
        ordered = self._sorted.get(key)
        if ordered is None:
            members = self._members.get(key)
            if members is None:
                return ()
            ordered = self._sorted[key] = tuple(members[name] for name in sorted(members))
        return ordered

    def put(self, key: K, item: ResourceSlice) -> None:
        self._sorted.pop(key, None)
        self._members.setdefault(key, {})[item.name] = item

    def drop(self, key: K, name: str) -> None:
        self._sorted.pop(key, None)
        members = self._members.get(key)
        if members is not None:
            members.pop(name, None)
            if not members:
                del self._members[key]


def _anchors(item: ResourceSlice) -> frozenset[Anchor]:
    """Return the anchors of a slice; a node that the slice is for has one of them.  A malformed selector concerns any node."""
    selector = item.node_selector
    if item.all_nodes or selector is None:
        return frozenset((_ANYWHERE,))
    try:
        selector.matches("", {})
    except ModelError:
        return frozenset((_ANYWHERE,))
    anchors: set[Anchor] = set()
    for term in selector.node_selector_terms:
        if term.match_expressions or term.match_fields:
            of_term = _anchors_of_term(term)
            if not of_term:
                return frozenset((_ANYWHERE,))
            anchors.update(of_term)
    return frozenset(anchors)


def _anchors_of_term(term: NodeSelectorTerm) -> Sequence[Anchor]:
    for field in term.match_fields:
        if field.key == NODE_NAME_FIELD and field.operator == "In":
            return [(None, value) for value in field.values or ()]
    for label in term.match_expressions:
        if label.operator == "In":
            return [(label.key, value) for value in label.values or ()]
    return ()


Prepared = Mapping[str, tuple[ResourceSlice, OverlaidSlice]]
"""By slice name: a published slice, and what a policy makes of it, worked out beforehand."""


class Overlays:
    """The published slices, and the overlays on them: the admin's policy first, then DeviceTaintRules.

    Keeps `effective` equal to the published slices with all overlays on them.  Methods that change an overlay return the pools in
    which that changed a slice; versions and wake-ups are the caller's.
    """

    def __init__(self, effective: SliceIndex) -> None:
        """Begin with nothing; only this object writes `effective`."""
        self._effective = effective
        self._published: dict[str, ResourceSlice] = {}
        # The policy asks CEL, so what it makes of a slice is kept apart from the taints, which change more often.
        self._under_policy: dict[str, OverlaidSlice] = {}
        self._policy: PolicyOverlay | None = None
        self._rules: dict[str, DeviceTaintRule] = {}
        self._taints = TaintOverlay(())

    @property
    def published(self) -> Mapping[str, ResourceSlice]:
        return self._published

    @property
    def rules(self) -> Mapping[str, DeviceTaintRule]:
        return self._rules

    @property
    def preferences(self) -> PolicyPreferences:
        """Return the attributes in which the policy prefers devices of a class to agree."""
        return () if self._policy is None else self._policy.preferences

    @property
    def problems(self) -> Iterable[str]:
        """Say why the policy could not be applied to some slices: sentences in the order of slice names."""
        return (text for _, overlaid in sorted(self._under_policy.items()) for text in overlaid.problems)

    @property
    def under_policy(self) -> Iterable[ResourceSlice]:
        """Return all slices with the policy but without taint rules, in the order of their names."""
        return (overlaid.effective for _, overlaid in sorted(self._under_policy.items()))

    def publish(self, item: ResourceSlice) -> None:
        self._published[item.name] = item
        self._under_policy[item.name] = overlaid = self._apply_policy(item)
        self._effective.put(self._taints.apply(overlaid.effective))

    def withdraw(self, name: str) -> None:
        self._published.pop(name, None)
        self._under_policy.pop(name, None)
        self._effective.drop(name)

    def use_rule(self, rule: DeviceTaintRule) -> Collection[PoolId]:
        old = self._rules.get(rule.name)
        self._rules[rule.name] = rule
        if old is not None and old.spec == rule.spec:
            return ()
        return self._apply_taints([rule] if old is None else [old, rule])

    def drop_rule(self, name: str) -> Collection[PoolId]:
        old = self._rules.pop(name, None)
        return () if old is None else self._apply_taints([old])

    def use_policy(self, policy: PolicyOverlay | None, prepared: Prepared | None = None) -> Collection[PoolId]:
        """Replace the policy.  `prepared` has what it makes of slices; an entry is used if its slice has not changed since."""
        self._policy = policy
        changed: dict[PoolId, None] = {}
        for name, item in self._published.items():
            prepared_item = (prepared or {}).get(name)
            overlaid = (
                prepared_item[1] if prepared_item is not None and prepared_item[0] is item else self._apply_policy(item)
            )
            self._under_policy[name] = overlaid
            self._take_effect(overlaid.effective, changed)
        return changed

    def _apply_policy(self, item: ResourceSlice) -> OverlaidSlice:
        return OverlaidSlice(item) if self._policy is None else self._policy.apply(item)

    def _apply_taints(self, rules: Iterable[DeviceTaintRule]) -> Collection[PoolId]:
        self._taints = TaintOverlay(self._rules.values())
        selectors = [rule.selector for rule in rules if rule.selector is not None]
        changed: dict[PoolId, None] = {}
        for overlaid in self._under_policy.values():
            if any(selector.concerns(*overlaid.effective.pool_id) for selector in selectors):
                self._take_effect(overlaid.effective, changed)
        return changed

    def _take_effect(self, under_policy: ResourceSlice, changed: dict[PoolId, None]) -> None:
        """Index the slice with its taints, unless an equal one is indexed already: that one stays the same object."""
        effective = self._taints.apply(under_policy)
        if effective != self._effective.by_name[effective.name]:
            self._effective.put(effective)
            changed[effective.pool_id] = None
