"""What is wrong when everything has come to rest: somebody waits for what is free, or keeps what he does not use."""

import asyncio

import pytest

from app.scheduling.answers import TryAgain
from app.scheduling.audit_waiting import FITS, KEPT, waiting_pods
from app.scheduling.searching import Searching
from app.simulator.objects import Kind
from tests.scheduling.world import World


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("n1", "n2"):
        world.node(name)
        world.gpus(name, 1)
    world.device_class()
    for name in ("1", "2", "3"):
        world.add_claim(f"c{name}")
        world.add_pod(f"p{name}", f"c{name}")
    return world


def findings(world: World) -> list[tuple[str, str]]:
    world.sync()
    found = waiting_pods(world.ledger, Searching(world.ledger, world.features, world.options))
    return [(each.rule, each.about.removeprefix("default/")) for each in found]


async def bound(world: World, pod: str, node: str) -> None:
    async with world.watching():
        await world.bind(pod, node)
    world.sync()


async def test_every_waiting_pod_that_fits_somewhere_is_named(world: World) -> None:
    assert findings(world) == [(FITS, "p1"), (FITS, "p2"), (FITS, "p3")]
    await bound(world, "p1", "n1")
    assert findings(world) == [(FITS, "p2"), (FITS, "p3")]
    await bound(world, "p2", "n2")
    assert findings(world) == []


async def test_a_pod_with_allocated_claims_fits_where_these_can_be_used_and_keeps_them_from_others(
    world: World,
) -> None:
    hung_up = asyncio.Event()
    hung_up.set()
    async with world.watching():
        with pytest.raises(TryAgain):
            await world.bind("p1", "n1", hung_up)
    assert findings(world)[:2] == [(KEPT, "c1"), (FITS, "p1")]
    world.delete(Kind.NODE, "n1")
    assert findings(world)[0] == (KEPT, "c1")
    assert (FITS, "p1") not in findings(world)


async def test_pods_that_nobody_could_place_are_not_named(world: World) -> None:
    """Their claims are missing or ask for too much, they are over or being deleted, or wait for other members of a group."""
    for name in ("p1", "p2", "p3"):
        world.delete(Kind.POD, name)
    world.add_claim("huge", count=3)
    for pod, claim in (("missing", "c9"), ("huge", "huge"), ("over", "c1")):
        world.add_pod(pod, claim)

    over = world.pod("over")
    over["status"]["phase"] = "Failed"
    world.cluster.store.update_status(Kind.POD, over)
    spec = {
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c2"}],
        "schedulingGroup": {"podGroupName": "gang"},
    }
    world.create(Kind.POD, {"metadata": {"name": "member"}, "spec": spec})

    assert findings(world) == []
