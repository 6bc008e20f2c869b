"""`audit` on a real cluster: what is written by hand is found by the command and counted by the running service."""

import asyncio
import csv
import io
from typing import Any

import msgspec
import pytest

from tests.controlplane import objects
from tests.controlplane.objects import SCHEDULER_NAME, device
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.command import run_here
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


APART_SECONDS = 1.5
"""So that times of allocations, which are whole seconds, differ."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(environment={"DRA_EXTENDER_AUDIT__INTERVAL_SECONDS": "1"})


async def audit(world: InstalledExtender) -> tuple[int, dict[str, Any]]:
    """Status and answer of the command."""
    status, out = await run(world, "audit", "--again-after", "1", "-o", "json")
    return status, msgspec.json.decode(out)


async def run(world: InstalledExtender, *arguments: str) -> tuple[int, str]:
    """Status and output of a command that has nothing to complain of."""
    status, out, err = await run_here(*arguments, "--kubeconfig", str(world.cluster.admin_kubeconfig))
    assert err == ""
    return status, out


async def wait_for_findings(world: InstalledExtender, check: str, number: int) -> None:
    async def counted() -> bool:
        return await world.metric("audit_findings", check=check) == number

    await world.api.wait_for(counted, SECONDS, f"{number} findings of {check} are counted")


async def test_what_is_written_by_hand_is_found_by_the_command_and_counted_by_the_service(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    for name in ("first", "second"):
        await scene.claim(name)
    await scene.pod("first", claim="first")
    assert await scene.wait_until_bound("first") == node
    status, report = await audit(world)
    assert (status, report["verdict"], report.get("findings", [])) == (0, "sound", [])

    uid = await scene.pod("second", claim="second", nodeName=node)
    first, second = await scene.stored_claim("first"), await scene.stored_claim("second")
    second["metadata"]["finalizers"] = first["metadata"]["finalizers"]
    second = await scene.api.replace(RESOURCE_CLAIMS, second)
    second["status"] = {
        "allocation": first["status"]["allocation"],
        "reservedFor": [{"resource": "pods", "name": "second", "uid": uid}],
    }
    await scene.api.replace(RESOURCE_CLAIMS, second, "status")

    status, report = await audit(world)
    assert (status, report["verdict"]) == (1, "unsound")
    assert [(each["check"], each["about"], each["detail"]) for each in report["findings"]] == [
        (
            "double_allocation",
            f"device {scene.driver}/{node}/gpu-0",
            f"device in two claims: {scene.name}/first, {scene.name}/second",
        )
    ]
    await wait_for_findings(world, "double_allocation", 1)

    await scene.delete_pod("second")
    await scene.api.delete(RESOURCE_CLAIMS, "second", scene.name)
    await wait_for_findings(world, "double_allocation", 0)
    assert (await audit(world))[0] == 0

    await scene.claim("idle")
    await scene.pod("early", claim="idle", nodeName=node)
    status, report = await audit(world)
    assert status == 1
    assert [(each["check"], each["about"]) for each in report["findings"]] == [
        ("unreserved_pod", f"pod {scene.name}/early")
    ]
    await wait_for_findings(world, "unreserved_pod", 1)
    await scene.delete_pod("early")
    await wait_for_findings(world, "unreserved_pod", 0)


async def test_two_schedulers_that_allocate_in_one_pool_in_turns_are_found(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(3)))
    async with world.cluster.in_tree_scheduler():
        for name, scheduler in (("ours-0", SCHEDULER_NAME), ("theirs", IN_TREE), ("ours-1", SCHEDULER_NAME)):
            await scene.claim(name)
            await scene.pod(name, claim=name, scheduler=scheduler)
            assert await scene.wait_until_bound(name) == node
            await asyncio.sleep(APART_SECONDS)
            status, report = await audit(world)
            found = [(each["check"], each["about"]) for each in report.get("findings", ())]
            if name == "ours-1":
                assert (status, found) == (1, [("two_allocators", f"pool {scene.driver}/{node}")])
            else:
                assert (status, found) == (0, [])


async def test_devices_and_usage_have_what_kubernetes_has_stored(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    sets = [objects.counter_set("card", sm="98")]
    parts = [device(f"mig-{index}", consumes=[objects.consumption("card", sm="42")]) for index in range(2)]
    node = await scene.node_with_counters("a", sets, parts)
    await scene.claim("part")
    await scene.pod("worker", claim="part")
    assert await scene.wait_until_bound("worker") == node

    status, out = await run(world, "devices", node)
    assert status == 0
    assert "    card  sm [####      ] 42/98" in out
    assert f"      mig-0  {scene.name}/worker (claim part) " in out

    status, out = await run(world, "devices", node, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["device"], row["state"], row["claim"]) for row in rows] == [
        ("mig-0", "allocated", f"{scene.name}/part"),
        ("mig-1", "usable", ""),
    ]

    status, out = await run(world, "usage", "-o", "json")
    (row,) = msgspec.json.decode(out)["rows"]
    assert (row["namespace"], row["deviceClass"], row["devices"], row["pods"]) == (scene.name, scene.name, 1, 1)
    assert row["counters"] == [["sm", 42 * 10**9]]
