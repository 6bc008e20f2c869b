from collections.abc import Collection, Iterable, Mapping

from dra_extender.allocator.overlay.overlay import OverlaidSlice, Overlay, TaintOverlay, apply_all
from dra_extender.ledger.index.slices import SliceIndex
from dra_extender.model.device import PoolId
from dra_extender.model.device_taint_rule import DeviceTaintRule
from dra_extender.model.resource_slice import ResourceSlice

Prepared = Mapping[str, tuple[ResourceSlice, OverlaidSlice]]
"""By slice name: a published slice, and what a policy makes of it, worked out beforehand."""


class Overlays:
    """Slices as published, and what lies over them: the admin's policy first, then DeviceTaintRules.

    Keeps `effective` equal to the published slices with all overlays on them.  Methods that change an overlay return the pools in
    which that changed a slice; versions and wake-ups are the caller's.
    """

    def __init__(self, effective: SliceIndex) -> None:
        """Begin with nothing; `effective` is written by this object alone."""
        self._effective = effective
        self._published: dict[str, ResourceSlice] = {}
        # The policy asks CEL, so what it makes of a slice is kept apart from the taints, which change more often.
        self._under_policy: dict[str, OverlaidSlice] = {}
        self._policy: Overlay | None = None
        self._rules: dict[str, DeviceTaintRule] = {}
        self._taints = TaintOverlay(())

    @property
    def published(self) -> Mapping[str, ResourceSlice]:
        """All slices as their drivers publish them, by name."""
        return self._published

    @property
    def rules(self) -> Mapping[str, DeviceTaintRule]:
        """All DeviceTaintRules by name."""
        return self._rules

    @property
    def problems(self) -> Iterable[str]:
        """Why the policy could not be applied to some slices, as sentences, by slice name."""
        return (text for _, laid in sorted(self._under_policy.items()) for text in laid.problems)

    @property
    def under_policy(self) -> Iterable[ResourceSlice]:
        """All slices with the policy on them, by name, without taint rules."""
        return (laid.effective for _, laid in sorted(self._under_policy.items()))

    def publish(self, item: ResourceSlice) -> None:
        """Take in a slice that was published or changed."""
        self._published[item.name] = item
        self._under_policy[item.name] = laid = self._laid(item)
        self._effective.put(self._taints.apply(laid.effective).effective)

    def withdraw(self, name: str) -> None:
        """Remove a slice."""
        self._published.pop(name, None)
        self._under_policy.pop(name, None)
        self._effective.drop(name)

    def use_rule(self, rule: DeviceTaintRule) -> Collection[PoolId]:
        """Take in a taint rule that was made or changed."""
        old = self._rules.get(rule.name)
        self._rules[rule.name] = rule
        if old is not None and old.spec == rule.spec:
            return ()
        return self._taint_anew([rule] if old is None else [old, rule])

    def drop_rule(self, name: str) -> Collection[PoolId]:
        """Remove a taint rule."""
        old = self._rules.pop(name, None)
        return () if old is None else self._taint_anew([old])

    def use_policy(self, policy: Overlay | None, prepared: Prepared | None = None) -> Collection[PoolId]:
        """Replace the policy.  `prepared` spares the work for slices that have not changed since it was worked out."""
        self._policy = policy
        changed: dict[PoolId, None] = {}
        for name, item in self._published.items():
            known = (prepared or {}).get(name)
            laid = known[1] if known is not None and known[0] is item else self._laid(item)
            self._under_policy[name] = laid
            self._take_effect(laid.effective, changed)
        return changed

    def _laid(self, item: ResourceSlice) -> OverlaidSlice:
        return OverlaidSlice(item) if self._policy is None else apply_all(item, (self._policy,))

    def _taint_anew(self, rules: Iterable[DeviceTaintRule]) -> Collection[PoolId]:
        self._taints = TaintOverlay(self._rules.values())
        selectors = [rule.selector for rule in rules if rule.selector is not None]
        changed: dict[PoolId, None] = {}
        for laid in self._under_policy.values():
            if any(selector.concerns(*laid.effective.pool_id) for selector in selectors):
                self._take_effect(laid.effective, changed)
        return changed

    def _take_effect(self, under_policy: ResourceSlice, changed: dict[PoolId, None]) -> None:
        """Put the slice with taints on it, unless that is what is there; an equal slice keeps its identity."""
        effective = self._taints.apply(under_policy).effective
        if effective != self._effective.by_name[effective.name]:
            self._effective.put(effective)
            changed[effective.pool_id] = None
