"""Cached results follow taint rules, the policy, classes and pools that every node reaches, as those of a new service would."""

import asyncio
from typing import Any

from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.cel.program import compile_expression
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.telemetry.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import DRIVER, InMemoryExtender, ports_of

NODES = ("n0", "n1", "n2")
# Which pods are expected is no result that a new service has, too.
OPTIONS = Options(hold_wait_seconds=0.0, offered_nodes=2, placement=PlacementPolicy.UPSTREAM)
PODS = 4
TYPE = f'device.attributes["{DRIVER}"].?type.orValue("")'
POLICIES = (
    None,
    PolicyOverlay([PolicyRule(name="pinned", pool="fabric", binds_to_node=True)]),
    PolicyOverlay(
        [
            PolicyRule(name="one", physical_device=compile_expression('"gpu"', derived=True)),
            PolicyRule(name="a", devices=compile_expression(f'{TYPE} == "a"'), compatibility_groups=("a",)),
            PolicyRule(name="b", devices=compile_expression(f'{TYPE} == "b"'), compatibility_groups=("b",)),
        ]
    ),
)
SELECTORS = ("true", f'{TYPE} != "b"', f'{TYPE} == "none"')

operations = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), st.integers(0, PODS - 1)),
        st.tuples(st.just("bind"), st.integers(0, PODS - 1), st.sampled_from(NODES)),
        st.tuples(st.just("taint"), st.sampled_from([*NODES, "fabric"]), st.booleans()),
        st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1)),
        st.tuples(st.just("class"), st.sampled_from(SELECTORS)),
        st.tuples(st.just("fabric"), st.integers(0, 2)),
    ),
    min_size=2,
    max_size=10,
)


def part(name: str, kind: str) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}}}


def prepared() -> InMemoryExtender:
    world = InMemoryExtender(OPTIONS)
    world.device_class()
    for node in NODES:
        world.node(node)
        world.slice(node, [part("d0", "a"), part("d1", "b")])
    world.fabric()
    for index in range(PODS):
        world.add_claim(f"c{index}", selector=f'{TYPE} == "{"ab"[index % 2]}"')
        world.add_pod(f"p{index}", f"c{index}")
    return world


async def apply(world: InMemoryExtender, operation: tuple[Any, ...]) -> None:
    store = world.cluster.store
    match operation:
        case ("filter", index):
            await asyncio.gather(world.filter(f"p{index}", *NODES), return_exceptions=True)
        case ("bind", index, node):
            async with world.watching():
                await asyncio.gather(world.bind(f"p{index}", node), return_exceptions=True)
                await world.cluster.watch.caught_up()
        case ("taint", pool, present):
            known = store.find(Key(StoredKind.TAINT_RULE, "", pool))
            if present and known is None:
                taint = {"key": "broken", "effect": "NoSchedule"}
                spec = {"deviceSelector": {"driver": DRIVER, "pool": pool}, "taint": taint}
                world.create(StoredKind.TAINT_RULE, {"metadata": {"name": pool}, "spec": spec})
            elif not present and known is not None:
                world.delete(StoredKind.TAINT_RULE, pool)
        case ("policy", number):
            world.ledger.overlays_changed(world.ledger.overlays.use_policy(POLICIES[number]))
        case ("class", expression):
            raw = store.get(Key(StoredKind.CLASS, "", "gpu"))
            raw["spec"]["selectors"] = [{"cel": {"expression": expression}}]
            world.update(StoredKind.CLASS, raw)
        case ("fabric", count):
            raw = store.get(Key(StoredKind.SLICE, "", "fabric"))
            raw["spec"]["devices"] = [part(f"f{index}", "ab"[index % 2]) for index in range(count)]
            world.update(StoredKind.SLICE, raw)


async def compare(sequence: list[tuple[Any, ...]]) -> None:
    world, metrics = prepared(), Metrics()
    for operation in sequence:
        await apply(world, operation)
        for index in (0, 1):
            probe = pod_from(world.pod(f"p{index}"))
            if probe.node_name:
                continue
            old = await world.extender.filter(probe, NODES)
            fresh = Extender(world.ledger, ports_of(world.cluster, clock=world.clock), metrics, OPTIONS, world.features)
            new = await fresh.filter(probe, NODES)
            assert (list(old.fitting), old.unresolvable) == (list(new.fitting), new.unresolvable)


@given(operations)
@examples(20)
def test_cached_results_follow_every_overlay(sequence: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare(sequence))
