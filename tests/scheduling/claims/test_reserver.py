"""Many pods that share one claim are reserved by few writes, none is lost, and the 257th is refused in words."""

import asyncio

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.cluster import MemoryClaims
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.apiserver.store import Store

from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import turns


class Counting(MemoryClaims):
    """Claims whose status writes are counted, and fail as told."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes = 0

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        self.writes += 1
        await turns()
        return await super().update_status(namespace, name, body)


def shared(pods: int) -> tuple[InMemoryExtender, Counting]:
    world = InMemoryExtender()
    claims = Counting(world.cluster.store)
    world.claims = claims
    world.start()
    return world.furnish(n1=1, **{f"p{index}": "shared" for index in range(pods)}), claims


async def bind_all(world: InMemoryExtender, pods: range) -> list[BaseException | None]:
    async with world.watching():
        return await asyncio.gather(*(world.bind(f"p{index}", "n1") for index in pods), return_exceptions=True)


async def test_many_binds_of_one_claim_need_few_writes() -> None:
    world, claims = shared(60)
    assert await bind_all(world, range(60)) == [None] * 60
    reserved = [each["name"] for each in world.claim("shared")["status"]["reservedFor"]]
    assert sorted(reserved) == sorted(f"p{index}" for index in range(60))
    assert claims.writes <= 5


async def test_those_for_whom_there_is_no_room_are_refused_in_words() -> None:
    world, _ = shared(260)
    outcomes = await bind_all(world, range(260))
    refused = [each for each in outcomes if each is not None]
    assert len(refused) == 4
    assert all(isinstance(each, RetryableError) for each in refused)
    assert {str(each).partition(":")[0] for each in refused} <= {
        "claim is reserved by 256 pods already",
        'claim "shared" is reserved by 256 pods already',
    }
    assert len(world.claim("shared")["status"]["reservedFor"]) == 256


async def test_a_claim_that_vanishes_meanwhile_is_said_to_each() -> None:
    world, _ = shared(5)
    async with world.watching():
        await world.bind("p0", "n1")
        binds = [asyncio.create_task(world.bind(f"p{index}", "n1")) for index in range(1, 5)]
        await asyncio.sleep(0)
        world.cluster.store.edit_unchecked(
            Key(StoredKind.CLAIM, "default", "shared"),
            lambda claim: claim["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        )
        for bind in binds:
            with pytest.raises(RetryableError, match="deleted"):
                await bind
