"""The cache changes nothing but the time: after any sequence of events the answers are those of a service that starts anew."""

import asyncio
from typing import Any

from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.telemetry.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import InMemoryExtender, ports_of

NODES = ("n0", "n1", "n2")
KINDS = ("mig", "vgpu")
PODS = 8
PROBES = ("p0", "p6")
"""One whose nodes differ in what speaks for them, and one that is content with the first nodes that fit."""
# Which pods are expected is no result that a new service has, too.
OPTIONS = Options(hold_wait_seconds=0.0, offered_nodes=2, placement=PlacementPolicy.UPSTREAM)

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
        spec: Json = {
            "containers": [{"name": "main", "image": "pause"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{index}"}],
        }
        world.create(StoredKind.POD, {"metadata": {"name": f"p{index}"}, "spec": spec})
    return world


async def apply(world: InMemoryExtender, operation: tuple[Any, ...]) -> None:
    name = f"p{operation[1]}"
    exists = world.cluster.store.find(Key(StoredKind.POD, "default", name)) is not None
    match operation:
        case ("filter", _) if exists:
            await asyncio.gather(world.filter(name, *NODES), return_exceptions=True)
        case ("bind", _, node) if exists:
            async with world.watching():
                await asyncio.gather(world.bind(name, node), return_exceptions=True)
                await world.cluster.watch.caught_up()
        case ("delete", _) if exists:
            world.delete(StoredKind.POD, name)
        case ("slice", node, count):
            raw = world.cluster.store.get(Key(StoredKind.SLICE, "", f"{node}-devices"))
            raw["spec"]["devices"] = devices(count)
            world.update(StoredKind.SLICE, raw)
        case ("label", node, value):
            raw = world.cluster.store.get(Key(StoredKind.NODE, "", node))
            raw["metadata"]["labels"] = {"value": str(value)}
            world.update(StoredKind.NODE, raw)
        case ("lapse", _):
            world.clock.seconds += 100
        case ("idle", _):
            for _ in range(20):
                await asyncio.sleep(0)


async def compare(sequence: list[tuple[Any, ...]], nodes: list[str]) -> None:
    world = prepared()
    metrics = Metrics()
    probes = [pod_from(world.pod(name)) for name in PROBES]
    for operation in sequence:
        if operation[0] == "delete" and f"p{operation[1]}" in PROBES:
            continue
        await apply(world, operation)
        for probe in probes:
            if world.pod(probe.name)["spec"].get("nodeName"):
                continue
            old = await world.extender.filter(probe, nodes)
            liked = await world.extender.prioritize(probe, nodes)
            ports = ports_of(world.cluster, clock=world.clock)
            fresh = Extender(world.ledger, ports, metrics, OPTIONS, world.features)
            new = await fresh.filter(probe, nodes)
            assert (list(old.fitting), old.unresolvable) == (list(new.fitting), new.unresolvable)
            assert liked == await fresh.prioritize(probe, nodes)
        assert len(set(share_ids(world))) == len(share_ids(world))


@given(operations, orders)
@examples(30)
def test_cached_results_equal_those_of_a_new_service(sequence: list[tuple[Any, ...]], nodes: list[str]) -> None:
    asyncio.run(compare(sequence, nodes))


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
