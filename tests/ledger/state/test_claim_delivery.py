"""Waiting until the watch has brought a version of a claim."""

import asyncio

import msgspec
import pytest
from dra_extender.ledger.index.claims import ClaimIndex

UID = "00000000-0000-4000-8000-000000000001"


def claim(version: int) -> bytes:
    metadata = {"name": "c", "namespace": "ns", "uid": UID, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": metadata, "spec": {"devices": {}}})


@pytest.fixture
def claims() -> ClaimIndex:
    made = ClaimIndex()
    made.store(claim(1), from_watch=True)
    return made


async def begun(claims: ClaimIndex, version: int) -> asyncio.Task[bool]:
    wait = asyncio.create_task(claims.delivered(UID, str(version), 10.0))
    await asyncio.sleep(0)
    return wait


async def test_it_ends_with_that_version_or_a_later_one_and_not_with_our_own_write(claims: ClaimIndex) -> None:
    wait = await begun(claims, 3)
    claims.store(claim(3), from_watch=False)
    claims.store(claim(2), from_watch=True)
    await asyncio.sleep(0)
    assert not wait.done()
    claims.store(claim(4), from_watch=True)
    assert await wait
    assert not claims._deliveries._waiting


async def test_it_ends_with_the_claim(claims: ClaimIndex) -> None:
    wait = await begun(claims, 3)
    claims.delete("ns", "c", UID)
    assert not await wait
    assert not await claims.delivered(UID, "3", 10.0)


async def test_what_is_not_waited_for_any_more_is_forgotten(claims: ClaimIndex) -> None:
    with pytest.raises(TimeoutError):
        await claims.delivered(UID, "3", 0.001)
    assert not claims._deliveries._waiting


async def test_a_cancellation_that_comes_together_with_the_delivery_is_not_lost(claims: ClaimIndex) -> None:
    wait = await begun(claims, 3)
    claims.store(claim(3), from_watch=True)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not claims._deliveries._waiting
