"""Waiting until the watch has brought a version of a claim."""

import asyncio

import msgspec
import pytest
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.notifier import Notifier, wait_for_any

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
    assert not claims.change_of(UID)._waiters


async def test_our_own_write_is_not_read_again_when_the_watch_brings_it(claims: ClaimIndex) -> None:
    """Its spec and status need not even be readable: the version says that they are what is known."""
    wait = await begun(claims, 3)
    record, _ = claims.store(claim(3), from_watch=False)
    seen, change = claims.store(claim(3).replace(b'"spec":{"devices":{}}', b'"spec":0,"status":0'), from_watch=True)
    assert seen is record
    assert (change.removed, change.added, change.created, record.unreadable) == ((), (), False, "")
    assert await wait


async def test_a_version_that_a_list_brings_counts_when_the_list_is_complete(claims: ClaimIndex) -> None:
    """Claims come by name in a list: one that was written before may come after it."""
    claims.begin_list()
    claims.store(claim(3), from_watch=True)
    wait = await begun(claims, 3)
    claims.store(claim(4), from_watch=True)
    await asyncio.sleep(0)
    assert not wait.done()
    claims.end_list()
    assert await wait


async def test_it_ends_with_the_claim(claims: ClaimIndex) -> None:
    wait = await begun(claims, 3)
    claims.delete("ns", "c", UID)
    assert not await wait
    assert not await claims.delivered(UID, "3", 10.0)


async def test_a_cancellation_that_comes_together_with_the_delivery_is_not_lost(claims: ClaimIndex) -> None:
    wait = await begun(claims, 3)
    claims.store(claim(3), from_watch=True)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not claims.change_of(UID)._waiters


async def test_the_first_signal_ends_the_wait_and_all_forget_the_waiter() -> None:
    first, second = Notifier(), Notifier()
    wait = asyncio.create_task(wait_for_any((first, second), 10.0))
    await asyncio.sleep(0)
    second.fire()
    assert await wait
    assert not first._waiters
    assert not second._waiters


async def test_nothing_happens_in_time() -> None:
    signal = Notifier()
    assert not await wait_for_any((signal, Notifier()), 0.001)
    assert not signal._waiters


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    signal = Notifier()
    wait = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
    assert not signal._waiters
    signal.fire()


async def test_who_waits_longest_goes_on_first() -> None:
    """In whatever order a set would have them, so that a seed of the simulation replays equal in another process."""
    signal, order = Notifier(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait(10.0)
        order.append(number)

    waits = [asyncio.create_task(wait(number)) for number in range(50)]
    await asyncio.sleep(0)
    signal.fire()
    await asyncio.gather(*waits)
    assert order == list(range(50))
