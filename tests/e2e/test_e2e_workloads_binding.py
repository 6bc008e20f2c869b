"""Failing devices (KEP-5007) of a claim that belongs to a PodGroup (KEP-5729): only the rules of groups free them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.controlplane.planes import SECOND_DEFAULTS
from tests.support.e2e.fabric import ATTACHED, FAILED, FakeDriver, allocated_claim, fabric, wait_for_any_event
from tests.support.e2e.installed_extender import Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of
from tests.support.e2e.workloads import clear_groups, create_group, delete_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

QUIET_SECONDS = 5.0


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(
        environment={
            "DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always",
            # Longer than kube-scheduler backs off.
            "DRA_EXTENDER_SCHEDULING__DEVICE_COOL_DOWN_SECONDS": "60",
            "DRA_EXTENDER_SCHEDULING__RECLAIM_GRACE_SECONDS": "1",
        }
    )


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups."""
    yield scene
    await clear_groups(scene)


async def test_device_that_fails_is_given_back_while_all_wait_and_kept_once_a_member_is_bound(
    groups: NamespaceFixture,
) -> None:
    driver = FakeDriver(groups)
    await fabric(groups, "gpu-0", "gpu-1")
    await groups.claim("one")
    uid = await create_group(groups, "team", claims={"gpu": "one"})
    reservation = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "team", "uid": uid}
    for name in ("first", "second"):
        await member(groups, "team", name, claim="one")
    failed = await allocated_claim(groups)
    assert failed["status"]["reservedFor"] == [reservation]
    await wait_for_any_event(groups, "second", f"waits for {ATTACHED}")
    await driver.report(failed, FAILED, message="no free port")

    again = await allocated_claim(groups, after=failed)
    assert devices_of(again) == ["fabric/gpu-1"]
    assert again["status"]["reservedFor"] == [reservation]
    await driver.report(again, ATTACHED)
    assert await groups.wait_until_bound("first") == await groups.wait_until_bound("second")

    heard = await groups.world.metric("watch_events_total", kind="resourceclaims", type="MODIFIED")
    await driver.report(again, FAILED, message="cable pulled")
    await groups.world.wait_for_metric("watch_events_total", heard + 1, kind="resourceclaims", type="MODIFIED")
    await member(groups, "team", "late", claim="one")
    await groups.wait_until_unschedulable("late", "not ready in time, and other pods use it")
    await groups.delete_pod("first")
    await asyncio.sleep(QUIET_SECONDS)
    kept = await groups.stored_claim("one")
    assert (devices_of(kept), kept["status"]["reservedFor"]) == (["fabric/gpu-1"], [reservation])

    await groups.delete_pod("second")
    anew = await allocated_claim(groups, after=again)
    await driver.report(anew, ATTACHED)
    await groups.wait_until_bound("late")
    await groups.delete_pod("late")
    await delete_group(groups, "team")
    await groups.wait_until_free()
