"""The metrics that KEP-5007 names: attempts counted once each, and the duration of every bind of a pod with claims."""

import pytest
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options

from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import CONDITIONS, InMemoryExtender

ATTEMPTS = "dra_extender_bindingconditions_attempts_total"
PREBIND = "scheduler_dra_bindingconditions_prebind_duration_seconds"


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0))
    world.node("n1")
    world.slice("n1", [{"name": "plain"}, *({"name": f"fabric-{index}", **CONDITIONS} for index in range(2))])
    world.device_class()
    world.device_class("fabric", 'device.driver == "gpu.example.com"')
    world.add_claim("plain")
    world.add_claim("fabric", count=3)
    world.add_pod("p1", "fabric")
    return world


async def samples(world: InMemoryExtender, metric: str) -> dict[str, float]:
    """Labels -> value of a metric."""
    found = {}
    for line in (await world.metrics.render()).decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(f"{metric}{{"):
            found[name.partition("{")[2][:-1]] = float(value)
    return found


async def test_a_success_counts_once_whatever_the_number_of_devices_and_its_wait_is_in_the_duration(
    world: InMemoryExtender,
) -> None:
    async with world.watching():
        bind = await world.waiting()
        world.clock.seconds += 40
        world.report("Attached", "fabric")
        await bind
    assert await samples(world, ATTEMPTS) == {'status="success"': 1}
    labels = 'requires_bindingconditions="true",status="success"'
    assert await samples(world, f"{PREBIND}_count") == {labels: 1}
    assert await samples(world, f"{PREBIND}_sum") == {labels: 40}


async def test_a_failure_and_a_time_out_are_told_apart(world: InMemoryExtender) -> None:
    async with world.watching():
        bind = await world.waiting()
        world.report("Failed", "fabric")
        with pytest.raises(RetryableError, match="failed"):
            await bind
        bind = await world.waiting()
        world.clock.seconds += 601
        world.extender.binder.recheck()
        with pytest.raises(RetryableError, match="timed out"):
            await bind
    assert await samples(world, ATTEMPTS) == {'status="failure"': 1, 'status="timeout"': 1}
    assert set(await samples(world, f"{PREBIND}_count")) == {
        'requires_bindingconditions="true",status="failure"',
        'requires_bindingconditions="true",status="timeout"',
    }


async def test_a_bind_without_conditions_is_in_the_duration_and_is_no_attempt(world: InMemoryExtender) -> None:
    world.add_pod("p2", "plain")
    await world.bind_through("p2", "n1")
    assert world.devices("plain") == ["n1/plain"]
    assert await samples(world, ATTEMPTS) == {}
    labels = 'requires_bindingconditions="false",status="success"'
    assert await samples(world, f"{PREBIND}_count") == {labels: 1}


async def test_a_pod_without_claims_is_in_neither(world: InMemoryExtender) -> None:
    world.add_pod("p3")
    await world.bind_through("p3", "n1")
    assert world.node_of("p3") == "n1"
    assert await samples(world, f"{PREBIND}_count") == {}


async def test_a_write_that_is_refused_is_a_failure_of_an_attempt_that_requires_conditions(
    world: InMemoryExtender,
) -> None:
    restart(world, claims=Seam(world.cluster.claims).before("update_status", RequestRejectedError("403 Forbidden")))
    async with world.watching():
        with pytest.raises(RetryableError, match="403"):
            await world.bind("p1", "n1")
    assert await samples(world, ATTEMPTS) == {'status="failure"': 1}


async def test_a_binding_that_is_refused_comes_after_a_success(world: InMemoryExtender) -> None:
    """PreBind is over then; the KEP's metric says nothing of the Binding."""
    restart(world, pods=Seam(world.cluster.pods).before("bind", RequestRejectedError("403 Forbidden")))
    async with world.watching():
        bind = await world.waiting()
        world.report("Attached", "fabric")
        with pytest.raises(RetryableError, match="403"):
            await bind
    assert await samples(world, ATTEMPTS) == {'status="success"': 1}
