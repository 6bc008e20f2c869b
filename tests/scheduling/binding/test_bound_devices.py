"""A device with `bindsToNode` stays on its node from filter to bind, for gangs, and across restarts."""

from typing import Any

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.scheduling.gang.test_gangs_fabric import FabricExtender
from tests.support.scheduling.world import DRIVER, InMemoryExtender

BOUND: Json = {"name": "f0", "allowMultipleAllocations": True, "bindsToNode": True}
POOL: Json = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}


def fabric() -> Json:
    return {"driver": DRIVER, "pool": POOL, "allNodes": True, "devices": [BOUND]}


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender()
    for node in ("n1", "n2"):
        world.node(node)
    world.create(StoredKind.SLICE, {"metadata": {"name": "fabric"}, "spec": fabric()})
    world.device_class()
    for index in range(3):
        world.add_claim(f"c{index}")
        world.add_pod(f"p{index}", f"c{index}")
    return world


async def test_the_next_pod_is_offered_the_node_that_has_the_device(world: InMemoryExtender) -> None:
    """While the first may still go to either node, the second waits; what the first does not take does not count."""
    assert set((await world.filter("p0", "n1", "n2")).fitting) == {"n1", "n2"}
    assert list((await world.filter("p1", "n1", "n2")).fitting) == []
    await world.bind_through("p0", "n2")
    answer = await world.filter("p1", "n1", "n2")
    assert list(answer.fitting) == ["n2"]
    assert answer.unresolvable["n1"].endswith("devices are bound to another node")


async def test_a_bind_without_a_hold_is_refused_on_another_node(world: InMemoryExtender) -> None:
    async with world.watching():
        await world.bind("p0", "n1")
        with pytest.raises(RetryableError, match="f0 is bound to node n1 as long as a claim has a share of it there"):
            await world.bind("p1", "n2")
        await world.bind("p1", "n1")


def republish(world: InMemoryExtender, **device: Any) -> None:
    slice_ = world.cluster.store.get(Key(StoredKind.SLICE, "", "fabric"))
    slice_["spec"]["devices"] = [BOUND | device]
    slice_["spec"]["pool"] = POOL | {"generation": slice_["spec"]["pool"]["generation"] + 1}
    world.update(StoredKind.SLICE, slice_)


def release(world: InMemoryExtender, claim: str) -> None:
    stored = world.claim(claim)
    stored["status"] = {}
    world.cluster.store.update_status(StoredKind.CLAIM, stored)
    world.sync()


async def test_a_claim_of_several_pods_stays_with_the_device_that_was_bound_when_it_was_allocated(
    world: InMemoryExtender,
) -> None:
    """Through a republication, a restart and the end of the share that bound the device."""
    world.add_pod("second-of-c1", "c1")
    async with world.watching():
        await world.bind("p0", "n1")
        republish(world, bindsToNode=False)
        await world.bind("p1", "n1")
    world.start()
    world.sync()
    for pod in ("second-of-c1", "p2"):
        assert list((await world.filter(pod, "n1", "n2")).fitting) == ["n1"]
    release(world, "c0")
    for pod in ("second-of-c1", "p2"):
        assert list((await world.filter(pod, "n1", "n2")).fitting) == ["n1"]
    release(world, "c1")
    assert set((await world.filter("p2", "n1", "n2")).fitting) == {"n1", "n2"}


async def test_the_device_is_bound_to_a_deleted_node_as_long_as_the_claim_is_allocated(world: InMemoryExtender) -> None:
    await world.bind_through("p0", "n1")
    world.delete(StoredKind.NODE, "n1")
    assert list((await world.filter("p1", "n2")).fitting) == []
    release(world, "c0")
    assert list((await world.filter("p1", "n2")).fitting) == ["n2"]


@pytest.mark.parametrize(
    ("offered", "placed"), [(("n1", "n2"), False), (("n2", "n2"), True)], ids=["apart", "together"]
)
async def test_a_gang_gets_shares_of_a_device_on_one_node(offered: tuple[str, str], *, placed: bool) -> None:
    world = FabricExtender()
    for node in ("n1", "n2"):
        world.rack_node(node, "r1", 0)
    world.create(StoredKind.SLICE, {"metadata": {"name": "fabric"}, "spec": fabric()})
    world.gang("g", 2)
    for pod in "ab":
        world.wants(pod, "any")
    answers: dict[str, list[str]] = {}
    for _ in range(2):
        for pod, node in zip("ab", offered, strict=True):
            answers |= await world.ask(pod, node)
    assert (answers == {"a": [offered[0]], "b": [offered[1]]}) is placed
    assert placed or not all(answers.values())
