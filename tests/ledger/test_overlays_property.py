"""Whatever the order of slices, taint rules and policies, effective slices are the published ones with all overlays on them."""

from typing import Any

import msgspec
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.overlay.taint_rules import TaintOverlay
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.device_taint_rule import DeviceTaintRule, read_device_taint_rule
from dra_extender.model.resource_slice import ResourceSlice, SliceReader
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import raw_slice, shared_slices

DRIVER = "gpu.example.com"
NODES = ("n1", "n2")
POLICIES: tuple[PolicyOverlay | None, ...] = (
    None,
    PolicyOverlay([PolicyRule(name="one", pool="p1", binds_to_node=True)]),
    PolicyOverlay([PolicyRule(name="two", compatible_only_with="true")]),
)
Event = tuple[Any, ...]

selectors = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from((DRIVER, "other")),
        "pool": st.sampled_from(("p1", "p2")),
        "device": st.sampled_from(("s1-0", "s2-1")),
    },
)
events = st.lists(
    st.one_of(
        st.tuples(
            st.just("slice"),
            st.sampled_from(("s1", "s2", "s3")),
            st.sampled_from(("p1", "p2")),
            st.sampled_from((*NODES, "")),
            st.integers(0, 2),
        ),
        st.tuples(st.just("no slice"), st.sampled_from(("s1", "s2", "s3"))),
        st.tuples(st.just("rule"), st.sampled_from(("r1", "r2")), selectors),
        st.tuples(st.just("no rule"), st.sampled_from(("r1", "r2"))),
        st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1), st.booleans()),
    ),
    max_size=25,
)


class FedLedger:
    """A ledger, and the objects that it should know in the end."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.slices: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.policy: PolicyOverlay | None = None

    def apply(self, event: Event, version: int) -> None:
        feeds, overlays = sinks_of(self.ledger), self.ledger.overlays
        match event:
            case ("slice", name, pool, node, devices):
                data = msgspec.json.encode(raw_slice(name, version, pool=pool, node=node or None, devices=devices))
                self.slices[name] = SliceReader().read(data)
                feeds["resourceslices"].changed(data)
            case ("no slice", name):
                self.slices.pop(name, None)
                feeds["resourceslices"].deleted("", name, "")
            case ("rule", name, selector):
                spec = {"taint": {"key": name, "effect": "NoSchedule"}, "deviceSelector": selector}
                data = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
                self.rules[name] = read_device_taint_rule(data)
                feeds["devicetaintrules"].changed(data)
            case ("no rule", name):
                self.rules.pop(name, None)
                feeds["devicetaintrules"].deleted("", name, "")
            case ("policy", index, prepare):
                self.policy = policy = POLICIES[index]
                prepared = None
                if prepare and policy is not None:
                    # Worked out from other objects, as when slices change meanwhile; it must not be relied on.
                    stale = dict(list(overlays.published.items())[:1])
                    prepared = {name: (item, policy.apply(item)) for name, item in stale.items()}
                self.ledger.overlays_changed(overlays.use_policy(policy, prepared))

    def expected(self) -> dict[str, ResourceSlice]:
        taints = TaintOverlay(self.rules.values())
        policy = self.policy
        under_policy = (item if policy is None else policy.apply(item).effective for item in self.slices.values())
        return {item.name: taints.apply(item) for item in under_policy}


@given(events)
@examples(60)
def test_effective_slices_equal_those_computed_from_scratch(sequence: list[Event]) -> None:
    fed = FedLedger()
    for version, event in enumerate(sequence, 1):
        fed.apply(event, version)
    assert dict(fed.ledger.slices.by_name) == fed.expected()
    assert dict(fed.ledger.overlays.published) == fed.slices
    for node in NODES:
        local = {each.name for each in fed.ledger.slices.local(node)}
        assert local == {name for name, item in fed.slices.items() if item.node_name == node}


@given(events)
@examples(50)
def test_a_node_whose_version_stands_still_has_the_same_devices_and_a_change_wakes(sequence: list[Event]) -> None:
    fed = FedLedger()
    ledger = fed.ledger

    def seen(node: str) -> Any:
        reachable = {each.pool_id for each in (*ledger.slices.local(node), *shared_slices(ledger.slices))}
        return {each.name: each.devices for pool in reachable for each in ledger.slices.of_pool(pool)}

    def readings() -> dict[str, tuple[int, int, Any]]:
        return {
            node: (ledger.state_versions.version(node), ledger.inventory_versions.version(node), seen(node))
            for node in NODES
        }

    before, woken = readings(), ledger.changes.devices
    for version, event in enumerate(sequence, 1):
        fed.apply(event, version)
        now = readings()
        for node in NODES:
            if now[node][2] != before[node][2]:
                assert now[node][0] > before[node][0]
                assert now[node][1] > before[node][1]
                assert ledger.changes.devices > woken
        before, woken = now, ledger.changes.devices


def test_a_rule_moves_only_the_nodes_of_the_pools_it_changes() -> None:
    fed = FedLedger()
    fed.apply(("slice", "s1", "p1", "n1", 1), 1)
    fed.apply(("slice", "s2", "p2", "n2", 2), 2)
    before = {node: fed.ledger.state_versions.version(node) for node in NODES}
    fed.apply(("rule", "r1", {"device": "s2-1"}), 3)
    assert fed.ledger.state_versions.version("n1") == before["n1"]
    assert fed.ledger.state_versions.version("n2") > before["n2"]


def test_the_same_rule_again_changes_nothing() -> None:
    fed = FedLedger()
    fed.apply(("slice", "s1", "p1", "n1", 1), 1)
    fed.apply(("rule", "r1", {}), 2)
    before, item = fed.ledger.changes.devices, fed.ledger.slices.by_name["s1"]
    fed.apply(("rule", "r1", {}), 3)
    assert fed.ledger.changes.devices == before
    assert fed.ledger.slices.by_name["s1"] is item
