"""Rights that are taken away while the service runs: each is missed by name, nothing is done by halves, and work goes on later."""

import pytest

from tests.controlplane.objects import device
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.service_rights import without_right

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def until_logged(world: InstalledExtender, *words: str) -> None:
    """Wait for a line of the service's log with all these words."""

    async def found() -> bool:
        return any(all(word in str(line) for word in words) for line in world.log_lines())

    await world.api.wait_for(found, SECONDS, f"a line of the log says {words}")


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("create", "", "pods/binding"),
        ("update", "resource.k8s.io", "resourceclaims/status"),
        ("update", "resource.k8s.io", "resourceclaims/binding"),
        ("patch", "resource.k8s.io", "resourceclaims"),
    ],
)
async def test_a_pod_waits_with_the_name_of_the_right_and_is_bound_when_it_is_back(
    scene: NamespaceFixture, world: InstalledExtender, verb: str, group: str, resource: str
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    async with without_right(world, verb, group, resource):
        await scene.pod("worker", template="one")

        async def refused() -> bool:
            notes = [str(each.get("note", "")) for each in await scene.events("worker")]
            return any("forbidden" in note.lower() and resource.partition("/")[0] in note for note in notes)

        await scene.api.wait_for(refused, SECONDS, f"an Event names {resource}")
        assert await scene.node_of("worker") == ""
    assert await scene.wait_until_bound("worker") == node
    assert await scene.allocated() == [f"{node}/gpu-0"]


async def test_a_pod_is_bound_although_nothing_may_be_said_of_it(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    await scene.template("one")
    await scene.node("a")
    async with without_right(world, "create", "events.k8s.io", "events"):
        await scene.pod("worker", template="one")
        await until_logged(world, "orbidden", "events")
        node = await scene.node_with_devices("b", device("gpu-0"))
        assert await scene.wait_until_bound("worker") == node
