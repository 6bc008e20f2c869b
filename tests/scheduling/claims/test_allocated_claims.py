"""Where a pod may run whose claims are allocated already: what the allocation needs of a node counts as in a search."""

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.world import InMemoryExtender

FEATURE = "DRAOptionalNodeOperations"
LACKS_FEATURE = 'node(s): claim "shared": node does not support the devices of the claim'
NOT_COUNTED = 'request "req": nodeAllocatableResources of devices are not supported'


def declare(world: InMemoryExtender, node: str, *features: str) -> None:
    world.cluster.store.edit_unchecked(
        Key(StoredKind.NODE, "", node), lambda raw: raw["status"].update(declaredFeatures=list(features))
    )
    world.sync()


def network(world: InMemoryExtender, *devices: Json, **spec: object) -> None:
    """Devices that every node reaches."""
    world.fabric(*devices, name="net", allNodes=True, **spec)


def republish(world: InMemoryExtender, *devices: Json) -> None:
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", "net"))
    raw["spec"]["devices"] = list(devices)
    world.update(StoredKind.SLICE, raw)


async def shared(device: Json, **spec: object) -> InMemoryExtender:
    """Claim `shared` is allocated from the network and used by p1, which runs on n0; p2 shares it."""
    world = InMemoryExtender()
    for node in ("n0", "n1"):
        world.node(node)
    declare(world, "n0", FEATURE)
    world.device_class()
    network(world, device, **spec)
    world.add_claim("shared")
    for pod in ("p1", "p2"):
        world.add_pod(pod, "shared")
    async with world.watching():
        assert list((await world.filter("p1", "n0")).fitting) == ["n0"]
        await world.bind("p1", "n0")
        await world.cluster.watch.caught_up()
    return world


async def test_allocation_that_skips_node_operations_needs_a_node_that_declares_the_feature() -> None:
    world = await shared({"name": "d"}, skipNodeOperations=["NodePrepareResources"])
    (result,) = world.claim("shared")["status"]["allocation"]["devices"]["results"]
    assert result["skipNodeOperations"] == ["NodePrepareResources"]

    answer = await world.filter("p2", "n0", "n1")

    assert (list(answer.fitting), answer.unresolvable) == (["n0"], {"n1": LACKS_FEATURE})
    async with world.watching():
        with pytest.raises(RetryableError, match=f"d has skipNodeOperations, and the node does not declare {FEATURE}"):
            await world.bind("p2", "n1")
        declare(world, "n1", FEATURE)
        assert set((await world.filter("p2", "n0", "n1")).fitting) == {"n0", "n1"}
        await world.bind("p2", "n1")


async def test_allocation_that_skips_no_node_operations_needs_no_feature() -> None:
    world = await shared({"name": "d"})
    assert set((await world.filter("p2", "n0", "n1")).fitting) == {"n0", "n1"}


async def test_pods_are_evicted_for_no_pod_whose_allocated_claims_do_not_suit_the_node() -> None:
    world = await shared({"name": "d"}, skipNodeOperations=["NodePrepareResources"])
    assert await world.extender.preempt(pod_from(world.pod("p2")), {"n0": [], "n1": []}) == {"n0": []}


COUNTED = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}, "memory": {}}}


@pytest.mark.parametrize("field", ["nodeAllocatableResources", "nodeAllocatableResourceMappings"])
async def test_device_that_counts_against_its_node_is_never_chosen(field: str) -> None:
    world = InMemoryExtender()
    world.node("n0")
    world.device_class()
    network(world, {"name": "a", field: {"cpu": {}, "memory": {}}}, {"name": "b", field: {}})
    for name, count in (("one", 1), ("two", 2)):
        world.add_claim(name, count=count)
        world.add_pod(f"p-{name}", name)
    async with world.watching():
        answer = await world.filter("p-two", "n0")
        assert answer.unresolvable == {"n0": f'node(s): claim "two", {NOT_COUNTED}'}
        assert "a counts against cpu, memory of its node (nodeAllocatableResources)" in world.messages("p-two")[0]
        with pytest.raises(RetryableError, match=NOT_COUNTED):
            await world.bind("p-two", "n0")
        assert list((await world.filter("p-one", "n0")).fitting) == ["n0"]
        await world.bind("p-one", "n0")
        assert world.devices("one") == ["net/b"]


async def test_allocated_device_that_counts_against_its_node_is_shared_with_no_further_pod() -> None:
    """What the device takes of the node would have to be counted for each pod, and for nobody it is."""
    world = await shared({"name": "d"})
    republish(world, {"name": "other"}, {"name": "d", **COUNTED})

    answer = await world.filter("p2", "n0", "n1")

    assert set(answer.unresolvable.values()) == {f'node(s): claim "shared", {NOT_COUNTED}'}
    assert "d counts against cpu, memory of its node" in world.messages("p2")[0]
    async with world.watching():
        with pytest.raises(RetryableError, match=NOT_COUNTED):
            await world.bind("p2", "n0")
        republish(world, {"name": "d"})
        assert set((await world.filter("p2", "n0", "n1")).fitting) == {"n0", "n1"}
        await world.bind("p2", "n0")
