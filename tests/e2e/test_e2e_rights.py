"""Rights that the account of the service does not have yet, or not any more: each is missed by name, and work goes on later."""

from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import device
from tests.controlplane.planes import BROKEN
from tests.support.e2e.installed_extender import ACCOUNT, APPLIED, DEPLOY, NAMESPACE, InstalledExtender, page
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.service_rights import without_right

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

STARTUP_SECONDS: Final = 600
"""For which a start waits: longer than the API server takes to start anew on a busy machine."""
# Roles of every account; the API server makes them anew when it starts.
DISCOVERY: Final = ("system:discovery", "system:public-info-viewer", "system:basic-user")
LATE: Final = frozenset({"rbac"})
RIGHTS: Final = (
    ("create", "", "pods/binding"),
    ("update", "resource.k8s.io", "resourceclaims/status"),
    ("update", "resource.k8s.io", "resourceclaims/binding"),
    ("patch", "resource.k8s.io", "resourceclaims"),
)
"""Each is asked for by another step of a bind."""


async def test_start_waits_until_the_api_server_has_loaded_its_roles_and_watches_survive_a_restart_of_the_api_server(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED if name not in LATE))
    cluster.kubectl("delete", f"--filename={DEPLOY / 'rbac'}.yaml", "--ignore-not-found")
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    cluster.kubectl("delete", "clusterrolebinding", *DISCOVERY)
    environment = {"DRA_EXTENDER_CLUSTER__STARTUP_TIMEOUT_SECONDS": str(STARTUP_SECONDS)}
    extender = ExtenderProcess(tmp_path, kubeconfig, environment=environment)
    await extender.start(ready=None)
    try:

        async def refused(what: str) -> bool:
            return f"{what}: 403" in extender.log.read_text()

        await cluster.api.wait_for(lambda: refused("get /version"), SECONDS, "the extender may not discover")
        await cluster.restart_apiserver()
        await cluster.api.wait_for(lambda: refused("list pods"), SECONDS, "the extender may not list pods")
        assert extender.pid is not None
        cluster.kubectl("apply", f"--filename={DEPLOY / 'rbac'}.yaml")
        await extender.wait_ready(seconds=SECONDS)
        assert "forbidden-" not in await page(f"{extender.url}/readyz?verbose")
        await cluster.restart_apiserver()
        await extender.wait_ready(seconds=SECONDS)
    finally:
        await extender.terminate()


async def test_a_pod_waits_with_the_name_of_the_right_and_is_bound_when_it_is_back(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", *(device(f"gpu-{number}") for number in range(len(RIGHTS))))
    await scene.template("one")
    for number, (verb, group, resource) in enumerate(RIGHTS):
        pod, kind = f"worker-{number}", resource.partition("/")[0]
        async with without_right(world, verb, group, resource):
            await scene.pod(pod, template="one")

            async def refused(pod: str = pod, kind: str = kind) -> bool:
                notes = [str(each.get("note", "")) for each in await scene.events(pod)]
                return any("forbidden" in note.lower() and kind in note for note in notes)

            await scene.api.wait_for(refused, SECONDS, f"an Event names {resource}")
            assert await scene.node_of(pod) == ""
        assert await scene.wait_until_bound(pod) == node
        assert len(await scene.allocated()) == number + 1


async def test_a_pod_is_bound_although_nothing_may_be_said_of_it(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    await scene.template("one")
    await scene.node("a")

    async def logged() -> bool:
        return any("orbidden" in str(line) and "events" in str(line) for line in world.log_lines())

    async with without_right(world, "create", "events.k8s.io", "events"):
        await scene.pod("worker", template="one")
        await scene.api.wait_for(logged, SECONDS, "the log says that Events are forbidden")
        node = await scene.node_with_devices("b", device("gpu-0"))
        assert await scene.wait_until_bound("worker") == node
