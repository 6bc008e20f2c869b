"""Requests of a replay get the recorded answers: each its own, when it was answered, and how it took a cancellation."""

import asyncio
from typing import Any

import pytest
from dra_extender.recording.records import CANCELLED, CURRENT_CALL, Asked, Given
from dra_extender.recording.replayed_cluster import ReplayedCluster
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import ConflictError


def cluster_expecting(*asked: Asked) -> tuple[ReplayedCluster, list[str]]:
    departures: list[str] = []
    cluster = ReplayedCluster(SystemClock(), departures.append)
    for each in asked:
        cluster.expect(each)
    return cluster, departures


def bind_of(number: int, call: int, node: str = "n1") -> Asked:
    return Asked(at=1.0, number=number, port="pods", method="bind", arguments=["ns", "p", "uid", node], call=call)


def ask_for(cluster: ReplayedCluster, call: int, node: str = "n1") -> asyncio.Task[Any]:
    async def bind() -> Any:
        CURRENT_CALL.set(call)
        return await cluster.pods.bind("ns", "p", "uid", node)

    return asyncio.create_task(bind())


async def test_equal_requests_of_two_calls_get_each_its_own_answer_in_whatever_order_they_come() -> None:
    cluster, departures = cluster_expecting(bind_of(0, call=7), bind_of(1, call=8))
    second, first = ask_for(cluster, 8), ask_for(cluster, 7)
    await asyncio.sleep(0)
    cluster.give(Given(at=2.0, number=1, error=("ConflictError", "second")))
    cluster.give(Given(at=2.0, number=0))
    assert await first is None
    with pytest.raises(ConflictError, match="second"):
        await second
    assert (departures, cluster.differences, cluster.requests) == ([], [], 2)


async def test_answer_within_the_step_needs_no_turn_of_the_loop() -> None:
    cluster, _ = cluster_expecting(bind_of(0, call=7))
    cluster.give(Given(at=1.0, number=0, error=("RequestRejectedError", "not leading"), at_once=True))
    order: list[str] = []

    async def asks() -> None:
        with pytest.raises(Exception, match="not leading"):
            await cluster.pods.bind("ns", "p", "uid", "n1")
        order.append("answered")

    task = asyncio.create_task(asks())
    asyncio.get_running_loop().call_soon(order.append, "next turn")
    await task
    assert order == ["answered", "next turn"]


async def test_cancelled_request_ends_when_and_as_it_did() -> None:
    cluster, _ = cluster_expecting(bind_of(0, call=7), bind_of(1, call=8))
    done, cancelled = ask_for(cluster, 7), ask_for(cluster, 8)
    await asyncio.sleep(0)
    done.cancel()
    cancelled.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not done.done()
    assert not cancelled.done()
    cluster.give(Given(at=2.0, number=0))
    cluster.give(Given(at=2.0, number=1, error=(CANCELLED, "")))
    await asyncio.wait((done, cancelled))
    assert (done.cancelled(), done.result(), cancelled.cancelled()) == (False, None, True)


async def test_request_that_the_recording_does_not_have_is_a_departure_and_a_difference() -> None:
    cluster, departures = cluster_expecting(bind_of(0, call=7))
    task = ask_for(cluster, 7, "n2")
    other = asyncio.create_task(cluster.claims.read("ns", "c"))
    await asyncio.sleep(0)
    cluster.give(Given(at=2.0, number=0))
    await asyncio.sleep(0)
    assert departures == ["pods.bind of ns/p is asked for", "claims.read of ns/c is asked for"]
    cluster.close(3.0)
    assert [(each.method, each.of, each.recorded, each.replayed) for each in cluster.differences] == [
        ("pods.bind", "ns/p", '["ns","p","uid","n1"]', "null"),
        ("pods.bind", "ns/p", "null", '["ns","p","uid","n2"]'),
        ("claims.read", "ns/c", "null", '["ns","c"]'),
    ]
    cluster.gives_up = True
    for each in (task, other):
        each.cancel()
    await asyncio.gather(task, other, return_exceptions=True)


async def test_request_that_comes_before_its_record_is_taken_for_it() -> None:
    """As after a departure, when the steps are others."""
    cluster, departures = cluster_expecting()
    task = ask_for(cluster, 7)
    await asyncio.sleep(0)
    cluster.expect(bind_of(0, call=9))
    cluster.give(Given(at=2.0, number=0))
    assert await task is None
    assert len(departures) == 1
