"""Devices that take too long: the clock starts when they are allocated, for whoever waits for them, and whoever restarts."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.controlplane.objects import Object
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.support.e2e.fabric import (
    ATTACHED,
    FakeDriver,
    allocated_claim,
    fabric,
    wait_for_any_event,
    wait_until_nominated,
)
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

TIMEOUT_SECONDS = 15
"""Longer than a busy machine takes for what has to happen before the time is over."""
APART_SECONDS = 2.0


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(
        environment={
            "DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
            "DRA_EXTENDER_SCHEDULING__DEVICE_COOL_DOWN_SECONDS": "5",
        }
    )


@pytest.fixture
def driver(scene: NamespaceFixture) -> FakeDriver:
    return FakeDriver(scene)


def age(claim: Object) -> float:
    """Seconds since the claim was allocated."""
    stamp = datetime.fromisoformat(claim["status"]["allocation"]["allocationTimestamp"])
    return (datetime.now(UTC) - stamp).total_seconds()


async def test_device_that_takes_too_long_is_given_back_and_another_is_tried(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender
) -> None:
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    before = await world.metric("bindingconditions_allocations_total", status="timeout")
    await scene.pod("worker", claim="one")
    late = await allocated_claim(scene)
    await wait_for_any_event(
        scene, "worker", "binding conditions timed out", f"device {scene.driver}/fabric/gpu-0 waits for {ATTACHED}"
    )
    assert await world.metric("bindingconditions_allocations_total", status="timeout") == before + 1
    again = await allocated_claim(scene, after=late)
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)


async def test_pod_that_joins_late_gets_no_more_time(scene: NamespaceFixture) -> None:
    """What both share times out for both at once."""
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("first", claim="one")
    late = await allocated_claim(scene)
    await asyncio.sleep(APART_SECONDS)
    await scene.pod("second", claim="one")
    await scene.wait_for_event("second", "waits for", f"since {late['status']['allocation']['allocationTimestamp']}")
    await wait_for_any_event(scene, "first", "binding conditions timed out")

    async def given_back() -> bool:
        stored = await scene.stored_claim("one")
        return bool(stored["status"].get("allocation") != late["status"]["allocation"])

    await scene.api.wait_for(given_back, PROMPT_SECONDS, "both pods have given the device back")


async def test_restart_of_the_extender_does_not_start_the_clock_anew(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender
) -> None:
    """The time runs out while it is down, and the next process takes the device back at once."""
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    late = await allocated_claim(scene)
    await scene.wait_for_event("worker", "waits for")
    world.extender.kill()
    await asyncio.sleep(max(0.0, TIMEOUT_SECONDS + 1 - age(late)))
    await world.extender.start()

    async def given_back() -> bool:
        stored = await scene.stored_claim("one")
        return bool(stored["status"].get("allocation") != late["status"]["allocation"])

    await scene.api.wait_for(given_back, PROMPT_SECONDS, "the device is given back")
    again = await allocated_claim(scene, after=late)
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", SECONDS)


async def test_nomination_ends_with_the_wait(scene: NamespaceFixture) -> None:
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one", nodeSelector={"kubernetes.io/hostname": f"{scene.name}-a"})
    await allocated_claim(scene)
    await wait_until_nominated(scene, "worker", f"{scene.name}-a")
    await wait_until_nominated(scene, "worker", "")
