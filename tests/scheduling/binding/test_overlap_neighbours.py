"""`compatibleOnlyWith` in the check after the write: what the search would refuse is given back, and nothing else."""

import asyncio

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json

from tests.support.scheduling.world import DRIVER, InMemoryExtender
from tests.support.turns import until

MODE = f'device.attributes["{DRIVER}"].mode'


def a_world(**features: bool) -> InMemoryExtender:
    world = InMemoryExtender(
        Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0), **features
    )
    world.node("n1")
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    rule = {"compatibleOnlyWith": {"expression": f'{MODE} == "mig"'}}
    devices: list[Json] = [
        {"name": name, "attributes": {"mode": {"string": mode}}} for name, mode in (("mig-1", "mig"), ("vgpu", "vgpu"))
    ]
    world.slice("n1", [{"name": "mig-0", "attributes": {"mode": {"string": "mig"}}, **conditions, **rule}, *devices])
    world.device_class()
    world.add_claim("c1", selector="device.attributes[device.driver].mode == 'mig'")
    world.add_pod("p1", "c1")
    return world


async def waiting_for_mig_0(world: InMemoryExtender) -> asyncio.Task[None]:
    """A bind that waits for mig-0, which is the only free device of its mode."""
    world.add_claim("other", selector="device.attributes[device.driver].mode == 'mig'")
    world.add_pod("p0", "other")
    await world.bind("p0", "n1")
    assert world.devices("other") == ["n1/mig-1"]
    bind = asyncio.create_task(world.bind("p1", "n1"))
    await until(lambda: bool(world.messages("p1")))
    assert world.devices("c1") == ["n1/mig-0"]
    return bind


async def test_a_neighbour_that_does_not_fit_makes_the_bind_give_way() -> None:
    """At the latest when the Binding would be posted."""
    world = a_world()
    await world.extender.start()
    async with world.watching():
        bind = await waiting_for_mig_0(world)
        world.allocate_foreign("vgpu")
        await world.cluster.watch.caught_up()
        # The bind may have given way already, for it looks again when the neighbour comes.
        if world.devices("c1"):
            world.report("Attached")
        with pytest.raises(RetryableError, match=rf"another writer allocated neighbours {DRIVER}/n1/mig-0 first"):
            await asyncio.wait_for(bind, 30)
        assert world.devices("c1") == []
        answer = await world.filter("p1", "n1")
        assert "not compatible with their neighbours" in answer.unresolvable["n1"]
    await world.extender.stop()


async def test_neighbours_do_not_count_with_compatibility_off() -> None:
    world = a_world(compatibility_groups=False)
    await world.extender.start()
    async with world.watching():
        bind = await waiting_for_mig_0(world)
        world.allocate_foreign("vgpu")
        await world.cluster.watch.caught_up()
        world.report("Attached")
        await asyncio.wait_for(bind, 30)
    await world.extender.stop()
    assert world.pod("p1")["spec"]["nodeName"] == "n1"
