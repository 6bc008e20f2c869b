"""What a pod does while its devices are being attached: wait, be nominated, tell, count; and what it gives back in the end."""

import asyncio

import pytest
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender
from tests.support.turns import turns

TIMEOUT = 600.0


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0))
    world.node("n1")
    world.slice("n1", [{"name": f"gpu-{index}", **CONDITIONS} for index in range(4)])
    world.device_class()
    world.add_claim("c1")
    world.add_claim("c2")
    world.add_pod("p1", "c1")
    return world


def nomination(world: InMemoryExtender) -> str:
    return str(world.pod("p1")["status"].get("nominatedNodeName", ""))


async def test_pod_is_nominated_while_it_waits_and_told_what_for_and_since_when(world: InMemoryExtender) -> None:
    async with world.watching():
        bind = await world.waiting()
        since = world.claim("c1")["status"]["allocation"]["allocationTimestamp"]
        assert nomination(world) == "n1"
        waits = f"device {DRIVER}/n1/gpu-0 waits for Attached, since {since}; before that the pod cannot run on node n1"
        assert world.messages("p1") == [f"{waits}. More: kubectl dra why p1 -n default"]
        assert await world.metric("dra_extender_bindingconditions_waiting_pods") == 1
        world.report("Attached")
        await bind

    assert world.node_of("p1") == "n1"
    assert await world.metric("dra_extender_bindingconditions_waiting_pods") == 0
    labels = {"driver": DRIVER, "profile": "dra-extender-scheduler", "status": "success"}
    assert await world.metric("scheduler_dra_bindingconditions_allocations_total", **labels) == 1
    assert await world.metric("scheduler_dra_bindingconditions_wait_duration_seconds_count", **labels) == 1


async def test_all_claims_of_a_pod_are_waited_for_at_once_and_each_progress_is_told(world: InMemoryExtender) -> None:
    world.add_pod("p2", "c1", "c2")
    async with world.watching():
        bind = await world.waiting("p2")
        world.report("Attached", "c2")
        await turns()
        assert not bind.done()
        world.report("Attached")
        await bind

    first, second = world.messages("p2")
    assert "gpu-0 waits for Attached" in first
    assert "gpu-1 waits for Attached" in first
    assert "gpu-0 waits for Attached" in second
    assert "gpu-1" not in second


async def test_failure_of_one_claim_leaves_the_other_with_the_pod(world: InMemoryExtender) -> None:
    world.add_pod("p2", "c1", "c2")
    async with world.watching():
        bind = await world.waiting("p2")
        world.report("Failed", "c2")
        with pytest.raises(RetryableError, match=r"binding conditions failed: device .*gpu-1 reports Failed"):
            await bind

    assert (world.devices("c1"), world.devices("c2")) == (["n1/gpu-0"], [])
    assert "nominatedNodeName" not in world.pod("p2")["status"]


async def test_clock_of_a_shared_claim_runs_out_for_all_its_pods_and_the_last_one_gives_it_back(
    world: InMemoryExtender,
) -> None:
    world.add_pod("p2", "c1")
    async with world.watching():
        first = await world.waiting()
        world.clock.seconds += TIMEOUT - 1
        second = await world.waiting("p2")
        world.clock.seconds += 2
        world.extender.binder.recheck()
        outcomes = await asyncio.gather(first, second, return_exceptions=True)

    assert all("binding conditions timed out" in str(each) for each in outcomes)
    assert world.devices("c1") == []
    assert nomination(world) == ""
    labels = {"driver": DRIVER, "profile": "dra-extender-scheduler", "status": "timeout"}
    assert await world.metric("scheduler_dra_bindingconditions_allocations_total", **labels) == 2


async def test_a_restart_neither_starts_the_clock_anew_nor_forgets_what_it_waits_for(world: InMemoryExtender) -> None:
    async with world.watching():
        bind = await world.waiting()
        bind.cancel()
        await asyncio.gather(bind, return_exceptions=True)
    world.clock.seconds += TIMEOUT - 1
    world.start()
    async with world.watching():
        again = await world.waiting()
        world.clock.seconds += 2
        world.extender.binder.recheck()
        with pytest.raises(RetryableError, match="binding conditions timed out"):
            await again


async def test_wait_ends_when_the_caller_hangs_up_and_the_devices_stay_with_the_pod(world: InMemoryExtender) -> None:
    hung_up = asyncio.Event()
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n1", hung_up))
        await turns()
        hung_up.set()
        with pytest.raises(RetryableError, match="nobody waits"):
            await bind
        assert await world.metric("dra_extender_bindingconditions_waiting_pods") == 0
        assert world.devices("c1") == ["n1/gpu-0"]
        world.report("Attached")
        await world.bind("p1", "n1")

    assert world.node_of("p1") == "n1"


async def test_claim_that_somebody_deallocates_ends_the_wait(world: InMemoryExtender) -> None:
    def clear(claim: Json) -> None:
        claim["status"] = {}

    async with world.watching():
        bind = await world.waiting()
        world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", "c1"), clear)
        with pytest.raises(RetryableError, match="was deallocated while pod default/p1 waited for it"):
            await bind


async def test_nomination_that_is_refused_does_not_keep_a_pod_from_being_bound(world: InMemoryExtender) -> None:
    restart(world, pods=Seam(world.cluster.pods).before("nominate", RequestRejectedError("403 Forbidden")))
    async with world.watching():
        bind = await world.waiting()
        world.report("Attached")
        await bind

    assert world.node_of("p1") == "n1"


async def test_device_that_a_foreign_scheduler_takes_meanwhile_is_given_up_at_once(world: InMemoryExtender) -> None:
    await world.extender.start()
    async with world.watching():
        bind = await world.waiting()
        world.allocate_foreign()
        with pytest.raises(RetryableError, match=r"another writer allocated device .*/n1/gpu-0 first"):
            await asyncio.wait_for(bind, 60)
    await world.extender.stop()

    assert world.devices("c1") == []
    assert nomination(world) == ""
    labels = {"kind": "device", "outcome": "yielded", "writer": "foreign"}
    assert await world.metric("dra_extender_allocation_overlaps_total", **labels) == 1
