"""Nothing is taken from under a bind, and nothing on the word of a cache that is behind."""

import asyncio
from itertools import count

import pytest
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.reclaiming import (
    GRACE,
    bound_to,
    condition,
    edit_pod,
    edit_status,
    pass_by,
    reclaimed,
    small_world,
)
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import turns, until


@pytest.fixture
def world() -> InMemoryExtender:
    return small_world()


async def test_the_claim_of_a_waiting_bind_is_not_released(world: InMemoryExtender) -> None:
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n3"))
        await turns()
        for _ in range(2):
            await world.filter("p1", "n2")
            await pass_by(world, 2 * GRACE)
        assert world.devices("c1") == ["n3/gpu-0"]
        world.cluster.store.update_status(
            StoredKind.CLAIM,
            {**world.claim("c1"), "status": {**world.claim("c1")["status"], "devices": [condition(world, "Attached")]}},
        )
        await bind

    assert world.node_of("p1") == "n3"


@pytest.mark.parametrize(("call", "released"), [("read", 0), ("update_status", 1)])
async def test_a_bind_that_begins_while_its_claim_is_released_allocates_devices(
    world: InMemoryExtender, call: str, released: int
) -> None:
    """Before the write it keeps its allocation; during the write it waits, for it would bind a pod without devices."""
    await world.abandoned("p1")
    claims, go = Seam(world.cluster.claims), asyncio.Event()
    restart(world, claims=claims)
    claims.before(call, go.wait)
    async with world.watching():
        await world.extender.reclaim.sweep()
        world.clock.seconds += GRACE
        release = asyncio.create_task(world.extender.reclaim.check_suspects())
        await until(lambda: call in claims.calls)
        bind = asyncio.create_task(world.bind("p1", "n1"))
        await turns()
        assert not bind.done()
        go.set()
        await asyncio.gather(release, bind)

    assert await reclaimed(world, "pod_idle") == released
    assert world.devices("c1") == ["n1/gpu-0"]
    assert [each["name"] for each in world.claim("c1")["status"]["reservedFor"]] == ["p1"]
    assert world.node_of("p1") == "n1"


async def test_a_pod_that_only_the_live_object_knows_to_be_bound_keeps_its_devices(world: InMemoryExtender) -> None:
    """Our pod watch is behind."""
    await world.abandoned("p1")
    world.silence("pods")
    edit_pod(world, bound_to("n1"))

    await pass_by(world, GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]
    assert await reclaimed(world, "pod_idle", "changed") == 1


async def test_a_claim_that_changes_before_every_write_is_looked_at_again_later(world: InMemoryExtender) -> None:
    """The resourceVersion guards the write, too: here the claim changes each time after it was read."""
    await world.abandoned("p1")
    reports = count()

    def change() -> None:
        edit_status(world, lambda status: status.update(devices=[condition(world, f"Report{next(reports)}")]))

    pods = Seam(world.cluster.pods).after("read", *[change] * 9)
    restart(world, pods=pods)
    await pass_by(world, GRACE)
    assert world.devices("c1") == ["n1/gpu-0"]
    assert await reclaimed(world, "pod_idle", "changed") == 1

    pods.mend()
    await pass_by(world, GRACE)
    assert world.devices("c1") == []


async def test_a_claim_that_changes_once_before_the_write_is_read_anew(world: InMemoryExtender) -> None:
    await world.abandoned("p1")

    def change() -> None:
        edit_status(world, lambda status: status.update(devices=[condition(world, "Other")]))

    restart(world, pods=Seam(world.cluster.pods).before("read", change))
    await pass_by(world, GRACE)
    assert world.devices("c1") == []


async def test_a_refusal_of_the_api_server_is_counted_and_tried_again_later(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    forbidden = RequestRejectedError("update resourceclaims/status: forbidden")
    restart(world, claims=Seam(world.cluster.claims).before("update_status", forbidden))
    await pass_by(world, GRACE)
    assert await reclaimed(world, "pod_idle", "failed") == 1

    await pass_by(world, GRACE)
    assert world.devices("c1") == []


async def test_a_stop_lets_the_write_in_progress_end(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    go = asyncio.Event()
    claims = Seam(world.cluster.claims).before("update_status", go.wait)
    restart(world, claims=claims)
    await world.extender.start()

    def pass_grace() -> None:
        world.clock.seconds += GRACE

    try:
        await until(lambda: "update_status" in claims.calls, pass_grace)
    finally:
        stop = asyncio.create_task(world.extender.stop())
        await turns()
        assert not stop.done()
        go.set()
        await stop
    assert world.devices("c1") == []
