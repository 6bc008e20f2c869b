"""A gang that lost a member while its claims were allocated lets its devices go, long before its time to bind is over."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.support.e2e.api_relay import BINDING, Answer, ApiCall, ApiRelay, Forward, pass_on
from tests.support.e2e.checker import expect_rest
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MEMBERS: Final = 4


@pytest.fixture(scope="module")
def setup() -> Setup:
    settings = {"RECLAIM_GRACE_SECONDS": 5, "RECLAIM_INTERVAL_SECONDS": 0.5}
    environment = {f"DRA_EXTENDER_SCHEDULING__{name}": str(value) for name, value in settings.items()}
    return Setup(api_relayed=True, environment=environment)


@pytest.fixture
def relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture, relay: ApiRelay) -> AsyncIterator[NamespaceFixture]:
    """A scene with as many devices as the gang has members, on two nodes."""
    for suffix in ("a", "b"):
        await scene.node_with_devices(suffix, *(device(f"gpu-{index}") for index in range(MEMBERS // 2)))
    await scene.template("own")
    yield scene
    relay.handler = pass_on
    await clear_groups(scene)


async def test_after_a_restart_the_others_are_refused_and_released_until_there_is_another(
    groups: NamespaceFixture, relay: ApiRelay
) -> None:
    """The service is killed before the first Binding, with every claim allocated, and one member is gone when it is back."""
    came = asyncio.Semaphore(0)

    async def keep_bindings(call: ApiCall, forward: Forward) -> Answer:
        if call.write is None or call.write.step != BINDING:
            return await forward()
        came.release()
        await asyncio.Event().wait()
        raise AssertionError

    relay.handler = keep_bindings
    await create_group(groups, "gang", min_count=MEMBERS)
    names = [f"gang-{index}" for index in range(MEMBERS)]
    await asyncio.gather(*(member(groups, "gang", name, template="own") for name in names))
    # A Binding that is read after the kill would pass the relay, and a bound member opens the permit for the others.
    async with asyncio.timeout(SECONDS):
        for _ in range(MEMBERS):
            await came.acquire()
    assert len(await groups.allocated()) == MEMBERS
    groups.world.extender.kill()
    relay.handler = pass_on
    await groups.delete_pod(names[0])
    await groups.world.extender.start()
    for name in names[1:]:
        await groups.wait_until_unschedulable(name, "too few members of the PodGroup can be placed yet")
    await groups.wait_until_free()
    assert await bound_members(groups) == {}
    await member(groups, "gang", names[0], template="own")
    await asyncio.gather(*map(groups.wait_until_bound, names))
    await expect_rest(groups.api, groups.world.kubelets)
