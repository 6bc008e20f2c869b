"""From the README to a bound pod, through an upgrade while a pod waits in bind, to the removal: helm, API server, processes.

The rights are those that the chart renders, for the extender and for the kube-scheduler beside it.
"""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.chart.programs import CHART, NAMESPACE, RELEASE, REPOSITORY, Helm, Object
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import device
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.resources import LEASES
from tests.controlplane.schedulers import IN_TREE
from tests.support.chart.installed_pod import installed_pod
from tests.support.e2e.fabric import ATTACHED, FakeDriver, allocated_claim, fabric
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, namespace_name

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

PREVIOUS = Path(__file__).parent / "previous" / "dra-extender-0.0.9.tgz"


@pytest_asyncio.fixture(loop_scope="module")
async def scene(cluster: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[NamespaceFixture]:
    world = InstalledExtender(cluster, None, cluster.admin_kubeconfig)  # type: ignore[arg-type]
    scene = NamespaceFixture(world, namespace_name(request))
    await scene.open()
    yield scene
    await scene.clear()


def helm_on(cluster: ControlPlane, helm: Helm, *arguments: str) -> str:
    """A call of helm on the cluster; returns what it prints."""
    done = helm.call(*arguments, kubeconfig=cluster.admin_kubeconfig)
    assert done.code == 0, done.words
    return done.output


def ours(cluster: ControlPlane) -> list[str]:
    """Return all objects that name the release by their label, as kubectl names them; the manifests without Helm do so, too."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    label = f"app.kubernetes.io/instance={RELEASE}"
    return cluster.kubectl(
        "get", ",".join(kinds), "--all-namespaces", f"--selector={label}", "--output=name", "--ignore-not-found"
    ).split()


def shown_in_readme() -> tuple[list[str], str]:
    """The arguments of helm in the README's section about installing, and the line that a pod gets."""
    section = (REPOSITORY / "README.md").read_text().partition("\n## Install\n")[2].partition("\n## ")[0]
    (command,) = re.findall(r"^\$ helm (install .+)$", section, re.MULTILINE)
    (line,) = re.findall(r"^\+ +(\S.*)$", section, re.MULTILINE)
    return shlex.split(command, comments=True), line


async def test_what_the_readme_shows_leads_to_a_bound_pod(
    cluster: ControlPlane, helm: Helm, scene: NamespaceFixture, tmp_path: Path
) -> None:
    arguments, line = shown_in_readme()
    assert Path(REPOSITORY / arguments[2]) == CHART
    arguments[2] = str(CHART)
    notes = await asyncio.to_thread(helm_on, cluster, helm, *arguments)
    assert line in notes
    async with installed_pod(cluster, tmp_path, NAMESPACE, RELEASE, "first"):
        node = await scene.node_with_devices("a", device("gpu-0"))
        await scene.template("gpu")
        await scene.pod("newcomer", template="gpu", scheduler=yaml.safe_load(line)["schedulerName"])
        assert await scene.wait_until_bound("newcomer") == node
    await asyncio.to_thread(helm_on, cluster, helm, "uninstall", RELEASE, "--namespace", NAMESPACE)


async def test_two_releases_place_pods_with_drivers_of_their_own(
    cluster: ControlPlane, helm: Helm, scene: NamespaceFixture, tmp_path: Path
) -> None:
    """With the values of docs/tasks/several-schedulers.md."""
    document = (REPOSITORY / "docs" / "tasks" / "several-schedulers.md").read_text()
    second, first = re.findall(r"^ +```yaml\n(.*?)^ +```", document, re.MULTILINE | re.DOTALL)
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.other_driver("nic", node, device("nic-0"))
    await scene.template("gpu")
    releases = (("dra-extender", "dra-extender", first), ("nic", "nic-scheduler", second))
    for release, namespace, values in releases:
        file = tmp_path / f"{release}.yaml"
        file.write_text(values)
        where = ("--namespace", namespace, "--create-namespace", "--values", str(file))
        await asyncio.to_thread(helm_on, cluster, helm, "install", release, str(CHART), *where)
    await _give_up_leases(cluster)
    async with (
        installed_pod(cluster, tmp_path, "dra-extender", "dra-extender", "gpus"),
        installed_pod(cluster, tmp_path, "nic-scheduler", "nic-dra-extender", "nics"),
    ):
        await scene.pod("gpu", template="gpu")
        await scene.pod("nic", template="nic", scheduler="nic-scheduler")
        assert await scene.wait_until_bound("gpu") == node
        assert await scene.wait_until_bound("nic") == node
    for release, namespace, _ in releases:
        await asyncio.to_thread(helm_on, cluster, helm, "uninstall", release, "--namespace", namespace)


async def test_an_upgrade_loses_nothing_while_a_pod_waits_in_bind_and_a_removal_leaves_allocations(
    cluster: ControlPlane, helm: Helm, scene: NamespaceFixture, tmp_path: Path
) -> None:
    others = await asyncio.to_thread(ours, cluster)
    await asyncio.to_thread(
        helm_on, cluster, helm, "install", RELEASE, str(PREVIOUS), "--namespace", NAMESPACE, "--create-namespace"
    )
    await _give_up_leases(cluster)
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    async with installed_pod(cluster, tmp_path, NAMESPACE, RELEASE, "before") as before:
        await scene.pod("waiting", claim="one")
        claim = await allocated_claim(scene)
        await scene.wait_for_event("waiting", "waits for", ATTACHED)
        await asyncio.to_thread(
            helm_on, cluster, helm, "upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, "--wait=false"
        )
    assert "forbidden" not in before.log.read_text().lower()
    assert await scene.node_of("waiting") == ""
    await _give_up_leases(cluster)
    async with installed_pod(cluster, tmp_path, NAMESPACE, RELEASE, "after") as after:
        await FakeDriver(scene).report(await scene.stored_claim("one"), ATTACHED)
        await scene.wait_until_bound("waiting", 2 * SECONDS)
        kept = await scene.stored_claim("one")
        assert _allocated(kept) == _allocated(claim)
    assert "forbidden" not in after.log.read_text().lower()
    await asyncio.to_thread(helm_on, cluster, helm, "uninstall", RELEASE, "--namespace", NAMESPACE)

    left: list[str] = []

    async def nothing_is_left() -> bool:
        left[:] = [name for name in await asyncio.to_thread(ours, cluster) if name not in others]
        return not left

    # helm deletes the Deployment; kube-controller-manager deletes what belongs to it.
    with suppress(TimeoutError):
        await cluster.api.wait_for(nothing_is_left, SECONDS, "everything of the release is gone")
    assert left == []
    assert _allocated(await scene.stored_claim("one")) == _allocated(claim)
    await _the_in_tree_scheduler_goes_on(cluster, scene)


async def _the_in_tree_scheduler_goes_on(cluster: ControlPlane, scene: NamespaceFixture) -> None:
    """It leaves the allocated device alone and gives the other one to a pod without conditions to wait for."""
    await scene.claim("two")
    async with cluster.in_tree_scheduler():
        await scene.pod("next", claim="two", scheduler=IN_TREE)
        found = await allocated_claim(scene, "two")
        first = await scene.stored_claim("one")
        assert {each["device"] for each in (*_results(found), *_results(first))} == {"gpu-0", "gpu-1"}


async def _give_up_leases(cluster: ControlPlane) -> None:
    """What a cluster waits for: the Leases of the pod that is gone run out."""
    for lease in await cluster.api.list(LEASES, NAMESPACE):
        await cluster.api.patch(LEASES, lease["metadata"]["name"], {"spec": {"holderIdentity": ""}}, NAMESPACE)


def _results(claim: Object) -> list[Object]:
    results: list[Object] = claim["status"]["allocation"]["devices"]["results"]
    return results


def _allocated(claim: Object) -> str:
    return json.dumps(_results(claim), sort_keys=True)
