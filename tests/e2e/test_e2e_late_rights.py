"""A start before the account has the rights of deploy/, as when an API server loads its roles after it answers."""

from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.planes import BROKEN
from tests.support.e2e.installed_extender import ACCOUNT, APPLIED, DEPLOY, NAMESPACE, page

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

READY_SECONDS = 60.0
PATIENCE_SECONDS = 600
"""For which a start waits: longer than the API server takes to start anew on a busy machine."""
# Roles of every account; the API server makes them anew when it starts.
DISCOVERY = ("system:discovery", "system:public-info-viewer", "system:basic-user")
LATE = frozenset({"rbac"})


async def test_start_waits_until_the_api_server_has_loaded_its_roles_and_watches_survive_a_restart_of_the_api_server(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED if name not in LATE))
    cluster.kubectl("delete", f"--filename={DEPLOY / 'rbac'}.yaml", "--ignore-not-found")
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    cluster.kubectl("delete", "clusterrolebinding", *DISCOVERY)
    environment = {"DRA_EXTENDER_CLUSTER__PATIENCE_SECONDS": str(PATIENCE_SECONDS)}
    extender = ExtenderProcess(tmp_path, kubeconfig, environment=environment)
    await extender.start(ready=None)
    try:

        async def refused(what: str) -> bool:
            return f"{what}: 403" in extender.log.read_text()

        await cluster.api.wait_for(lambda: refused("get /version"), READY_SECONDS, "the extender may not discover")
        await cluster.restart_apiserver()
        await cluster.api.wait_for(lambda: refused("list pods"), READY_SECONDS, "the extender may not list pods")
        assert extender.pid is not None
        cluster.kubectl("apply", f"--filename={DEPLOY / 'rbac'}.yaml")
        await extender.wait_ready(seconds=READY_SECONDS)
        assert "forbidden-" not in await page(f"{extender.url}/readyz?verbose")
        await cluster.restart_apiserver()
        await extender.wait_ready(seconds=READY_SECONDS)
    finally:
        await extender.terminate()


async def test_start_without_rights_ends_with_the_patience_and_names_verb_and_resource(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED if name not in LATE))
    cluster.kubectl("delete", f"--filename={DEPLOY / 'rbac'}.yaml", "--ignore-not-found")
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    environment = {"DRA_EXTENDER_CLUSTER__PATIENCE_SECONDS": "2"}
    extender = ExtenderProcess(tmp_path, kubeconfig, environment=environment)
    await extender.start(ready=None)
    try:

        async def ended() -> bool:
            return extender.pid is None

        await cluster.api.wait_for(ended, READY_SECONDS, "the extender has ended")
        said = extender.log.read_text()
        assert "the account lacks a right, for 2 s at least: list " in said
        assert "403 Forbidden" in said
    finally:
        await extender.terminate()
