"""Binding conditions on older API servers, published by the driver or supplied by the admin's policy.  1.35 strips them from
slices and allocations: there only the policy says what devices need, and the snapshot annotation of the claim carries it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.controlplane.objects import Object
from tests.controlplane.planes import V1_35, V1_36
from tests.controlplane.resources import RESOURCE_SLICES
from tests.support.e2e.fabric import (
    ATTACHED,
    FAILED,
    FakeDriver,
    allocated_claim,
    chosen_node,
    fabric,
    snapshot_of,
    wait_for_any_event,
)
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture, devices_of

SHORT_TIMEOUT = {"DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": "6"}
LONG_TIMEOUT = {"DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": "600"}
"""Of most tests: whatever a busy machine delays, only what is to time out does."""
LATE_SECONDS = 7
STRIPPING = "1.35"
RULES = f"""
rules:
  - name: fabric
    devices: device.attributes[device.driver].fabric
    bindingConditions: [{ATTACHED}]
    bindingFailureConditions: [{FAILED}]
    bindsToNode: true
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize(
        ("plane", "by_policy"),
        [(V1_36, False), (V1_36, True), (V1_35, True)],
        indirect=["plane"],
        scope="module",
    ),
]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(RULES)
    environment = {
        **LONG_TIMEOUT,
        "DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy),
    }
    return Setup(environment=environment)


@pytest.fixture
def driver(scene: NamespaceFixture) -> FakeDriver:
    return FakeDriver(scene)


async def waiting(scene: NamespaceFixture, *devices: str, by_policy: bool) -> Object:
    """A pod `worker` whose bind waits for a device of the fabric; returns its claim."""
    stripping = scene.world.cluster.options.emulated_version == STRIPPING
    await fabric(scene, *devices, policy=by_policy)
    stored = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-fabric")
    assert ("bindingConditions" in stored["spec"]["devices"][0]) is not by_policy
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert ("bindingConditions" in result) is not stripping
    await scene.wait_for_event("worker", f"fabric/gpu-0 waits for {ATTACHED}, since 20", chosen_node(claim))
    assert await scene.node_of("worker") == ""
    return claim


async def test_success(scene: NamespaceFixture, driver: FakeDriver, *, by_policy: bool) -> None:
    claim = await waiting(scene, "gpu-0", by_policy=by_policy)
    await driver.report(claim, ATTACHED)
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == chosen_node(claim)


async def test_failure(scene: NamespaceFixture, driver: FakeDriver, *, by_policy: bool) -> None:
    claim = await waiting(scene, "gpu-0", "gpu-1", by_policy=by_policy)
    await driver.report(claim, FAILED)
    await wait_for_any_event(scene, "worker", "binding conditions failed", f"fabric/gpu-0 reports {FAILED}")
    again = await allocated_claim(scene, after=claim)
    assert await scene.device_of("worker") == "fabric/gpu-1"
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)


@pytest_asyncio.fixture(loop_scope="module")
async def restored(world: InstalledExtender) -> AsyncIterator[None]:
    """After the test, devices have long to become ready again."""
    yield
    await world.extender.restart(environment=LONG_TIMEOUT)


@pytest.mark.usefixtures("restored")
async def test_timeout(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender, *, by_policy: bool
) -> None:
    await world.extender.restart(environment=SHORT_TIMEOUT)
    await fabric(scene, "gpu-0", "gpu-1", policy=by_policy)
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    await wait_for_any_event(scene, "worker", "binding conditions timed out", f"fabric/gpu-0 waits for {ATTACHED}")

    async def bound() -> bool:
        claim = await scene.stored_claim("one")
        if devices_of(claim) == ["fabric/gpu-1"] and not claim["status"].get("devices"):
            await driver.report(claim, ATTACHED)
        return bool(await scene.node_of("worker"))

    await scene.api.wait_for(bound, 2 * SECONDS, "the pod is bound with the other device")
    assert await scene.device_of("worker") == "fabric/gpu-1"


@pytest.mark.usefixtures("restored")
async def test_restart(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender, *, by_policy: bool
) -> None:
    """A device that became ready meanwhile is used, however late; one that took too long is given back at once."""
    claim = await waiting(scene, "gpu-0", "gpu-1", by_policy=by_policy)
    await scene.claim("two")
    await scene.pod("late", claim="two")
    late = await allocated_claim(scene, "two")
    await scene.wait_for_event("late", "waits for")
    world.extender.kill()
    await driver.report(claim, ATTACHED)
    await asyncio.sleep(LATE_SECONDS)
    await world.extender.restart(environment=SHORT_TIMEOUT)

    async def gone() -> bool:
        stored = await scene.stored_claim("two")
        return "allocation" not in stored["status"] or snapshot_of(stored) != snapshot_of(late)

    await scene.api.wait_for(gone, PROMPT_SECONDS, "the device that took too long is given back")
    assert await scene.wait_until_bound("worker") == chosen_node(claim)
    assert snapshot_of(await scene.stored_claim("one")) == snapshot_of(claim)
