"""The cache changes nothing but the time: after any sequence of events the answers are those of a service that starts anew."""

import asyncio
from collections.abc import Sequence
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
KINDS = ("mig", "vgpu")
PODS = 8
PROBES = ("p0", "p6")
"""One whose nodes differ in what speaks for them, and one that is content with the first nodes that fit."""
# Which pods are expected is no result that a new service has, too.
OPTIONS = Options(hold_wait_seconds=0.0, offered_nodes=2, placement=PlacementPolicy.UPSTREAM)

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
        st.tuples(st.just("delete"), st.integers(0, PODS - 1)),
        st.tuples(st.just("slice"), st.sampled_from(NODES), st.integers(0, 3)),
        st.tuples(st.just("label"), st.sampled_from(NODES), st.integers(0, 1)),
        st.tuples(st.just("lapse"), st.just(0)),
        st.tuples(st.just("idle"), st.just(0)),
    ),
    max_size=14,
)
orders = st.lists(st.sampled_from((*NODES, "unknown")), min_size=1, unique=True)


def device(name: str, group: str) -> Json:
    consumption: Json = {"counterSet": "set", "counters": {"units": {"value": "1"}}, "compatibilityGroups": [group]}
    return {"name": name, "attributes": {"type": {"string": group}}, "consumesCounters": [consumption]}


def devices(count: int) -> list[Json]:
    plain = [{"name": f"plain-{index}", "attributes": {"type": {"string": "plain"}}} for index in range(min(count, 1))]
    return [SHARED, *plain, *(device(f"{kind}-{index}", kind) for kind in KINDS for index in range(count))]


SHARED: Json = {
    "name": "shared",
    "attributes": {"type": {"string": "mig"}},
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "2", "requestPolicy": {"default": "1"}}},
}
"""Two claims have room on it."""


def share_ids(world: InMemoryExtender) -> list[str]:
    allocations = [each.get("status", {}).get("allocation", {}) for each in world.cluster.store.all(StoredKind.CLAIM)]
    results = [result for each in allocations for result in each.get("devices", {}).get("results", [])]
    return [each["shareID"] for each in results if "shareID" in each]


def prepared() -> InMemoryExtender:
    world = InMemoryExtender(OPTIONS)
    world.device_class()
    for node in NODES:
        world.node(node)
        world.slice(node, devices(1), counters={"set": 2})
    for index in range(PODS):
        kind = KINDS[index % 2] if index < PODS - 2 else "plain"
        world.add_claim(f"c{index}", selector=f'device.attributes["gpu.example.com"].type == "{kind}"')
        world.add_pod(f"p{index}", f"c{index}")
    return world


async def apply(world: InMemoryExtender, operation: tuple[Any, ...]) -> None:
    store = world.cluster.store
    match operation:
        case ("filter", index) if exists(world, index):
            await asyncio.gather(world.filter(f"p{index}", *NODES), return_exceptions=True)
        case ("bind", index, node) if exists(world, index):
            async with world.watching():
                await asyncio.gather(world.bind(f"p{index}", node), return_exceptions=True)
                await world.cluster.watch.caught_up()
        case ("delete", index) if exists(world, index):
            world.delete(StoredKind.POD, f"p{index}")
        case ("slice", node, count):
            raw = store.get(Key(StoredKind.SLICE, "", f"{node}-devices"))
            raw["spec"]["devices"] = devices(count)
            world.update(StoredKind.SLICE, raw)
        case ("label", node, value):
            raw = store.get(Key(StoredKind.NODE, "", node))
            raw["metadata"]["labels"] = {"value": str(value)}
            world.update(StoredKind.NODE, raw)
        case ("lapse", _):
            world.clock.seconds += 100
        case ("idle", _):
            for _ in range(20):
                await asyncio.sleep(0)
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


def exists(world: InMemoryExtender, index: int) -> bool:
    return world.cluster.store.find(Key(StoredKind.POD, "default", f"p{index}")) is not None


async def compare(
    world: InMemoryExtender, sequence: list[tuple[Any, ...]], probes: Sequence[str], nodes: Sequence[str]
) -> None:
    """After each operation, answer for the probes as a service that starts anew does; `probes` are not deleted."""
    metrics = Metrics()
    pods = [pod_from(world.pod(name)) for name in probes]
    for operation in sequence:
        if operation[0] == "delete" and f"p{operation[1]}" in probes:
            continue
        await apply(world, operation)
        for probe in pods:
            if world.node_of(probe.name):
                continue
            old = await world.extender.filter(probe, nodes)
            liked = await world.extender.prioritize(probe, nodes)
            fresh = Extender(world.ledger, ports_of(world.cluster, clock=world.clock), metrics, OPTIONS, world.features)
            new = await fresh.filter(probe, nodes)
            assert (list(old.fitting), old.unresolvable) == (list(new.fitting), new.unresolvable)
            assert liked == await fresh.prioritize(probe, nodes)
        assert len(set(share_ids(world))) == len(share_ids(world))


@given(operations, orders)
@examples(30)
def test_cached_results_equal_those_of_a_new_service(sequence: list[tuple[Any, ...]], nodes: list[str]) -> None:
    asyncio.run(compare(prepared(), sequence, PROBES, nodes))


async def test_nodes_that_changed_are_searched_between_the_calls() -> None:
    """The second replica finds all answers, and one that changes is found out before the next asks."""
    world = prepared()
    first, second = pod_from(world.pod("p6")), pod_from(world.pod("p7"))
    await world.extender.filter(first, NODES)
    await world.extender.filter(second, NODES)
    for _ in range(20):
        await asyncio.sleep(0)
    await apply(world, ("slice", "n1", 2))
    await world.extender.filter(first, ["n0"])
    for _ in range(20):
        await asyncio.sleep(0)

    before = searches(world)
    await world.extender.filter(first, NODES)

    assert searches(world) == before


def searches(world: InMemoryExtender) -> float:
    return world.metrics.registry.get_sample_value("dra_extender_node_results_total", {"source": "search"}) or 0.0


overlay_operations = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), st.integers(0, 3)),
        st.tuples(st.just("bind"), st.integers(0, 3), st.sampled_from(NODES)),
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


def with_overlays() -> InMemoryExtender:
    """Devices of two types on each node, and a pool that all nodes reach."""
    world = InMemoryExtender(OPTIONS)
    world.device_class()
    for node in NODES:
        world.node(node)
        world.slice(node, [part("d0", "a"), part("d1", "b")])
    world.fabric()
    for index in range(4):
        world.add_claim(f"c{index}", selector=f'{TYPE} == "{"ab"[index % 2]}"')
        world.add_pod(f"p{index}", f"c{index}")
    return world


@given(overlay_operations)
@examples(20)
def test_cached_results_follow_every_overlay(sequence: list[tuple[Any, ...]]) -> None:
    """Taint rules, the policy, classes, and pools that every node reaches."""
    asyncio.run(compare(with_overlays(), sequence, ("p0", "p1"), NODES))
