"""Helm against a real API server: what an installation, an upgrade and a removal leave in it."""

import asyncio
import json
import os

import pytest

from tests.chart.programs import CHART, Done, Helm, Object, overlay
from tests.chart.value_sets import OUTSIDE
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.planes import GATES_OFF
from tests.controlplane.waiting import wait_for
from tests.support.chart.kubernetes_types import read_types

pytestmark = [pytest.mark.e2e, pytest.mark.plane(GATES_OFF), pytest.mark.asyncio(loop_scope="module")]

RELEASE = "gpus"
IN = ("--namespace", "helm-made")
SECONDS = 60.0


def helm_does(helm: Helm, cluster: ControlPlane, *arguments: str, values: Object | None = None) -> Done:
    """helm with the cluster's administrator."""
    where = () if "--namespace" in arguments else IN
    return helm.call(*arguments, *where, values=values, kubeconfig=cluster.admin_kubeconfig)


def deployment(cluster: ControlPlane) -> Object:
    found: Object = json.loads(cluster.kubectl("get", "deployment", f"{RELEASE}-dra-extender", *IN, "-o", "json"))
    return found


def generation(cluster: ControlPlane) -> int:
    number: int = deployment(cluster)["metadata"]["generation"]
    return number


def left(cluster: ControlPlane, version: str) -> list[str]:
    """Names of all objects of the release, of every kind that the chart can make and the cluster serves."""
    kinds = sorted({kind.partition(" ")[2].lower() for kind in read_types(version).kinds})
    names = cluster.kubectl("get", ",".join(kinds), "-A", "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
    return [each for each in names.split() if not each.startswith(("pod/", "secret/"))]


async def test_installed_upgraded_rolled_back_and_removed(
    helm: Helm, cluster: ControlPlane, kubernetes_version: str
) -> None:
    """The cluster tells its version; a second release with the same values is refused, as two would serve the same pods.

    A value that is wrong changes nothing; an equal upgrade changes nothing either. An upgrade that was killed half way is rolled
    back and made again, as docs/start/install.md says.
    """
    weighed: Object = {"scheduler": {"pluginWeights": {"NodeResourcesFit": 5}}, "serviceAccount": {"name": "other"}}
    try:
        done = helm_does(helm, cluster, "install", RELEASE, str(CHART), "--create-namespace")
        assert done.code == 0, done.words
        assert "helm test gpus" in done.output
        made = deployment(cluster)
        (scheduler,) = made["spec"]["template"]["spec"]["containers"]
        assert scheduler["image"].endswith(f":{kubernetes_version}")
        assert left(cluster, kubernetes_version)

        elsewhere = ("--namespace", "helm-made-too", "--create-namespace")
        second = helm_does(helm, cluster, "install", "more", str(CHART), *elsewhere)
        assert (second.code != 0, "exists and cannot be imported" in second.words) == (True, True), second.words

        wrong: Object = {"extender": {"settings": {"log": {"lvl": "debug"}}}}
        refused = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART), values=wrong)
        assert refused.code != 0
        assert "additional properties 'lvl' not allowed" in refused.words
        again = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART))
        assert again.code == 0, again.words
        assert generation(cluster) == made["metadata"]["generation"]

        await _killed_while_it_waits(helm, cluster, weighed)
        refused = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART), values=weighed)
        assert (refused.code != 0, "another operation" in refused.words) == (True, True), refused.words
        changed = generation(cluster)
        undone = helm_does(helm, cluster, "rollback", RELEASE)
        assert undone.code == 0, undone.words
        assert generation(cluster) > changed
        changed = generation(cluster)
        again = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART), values=weighed)
        assert again.code == 0, again.words
        assert generation(cluster) > changed
    finally:
        removed = helm_does(helm, cluster, "uninstall", RELEASE)
        cluster.kubectl("delete", "namespace", IN[1], "--wait=false", "--ignore-not-found")
    assert removed.code == 0, removed.words
    assert left(cluster, kubernetes_version) == []


async def _killed_while_it_waits(helm: Helm, cluster: ControlPlane, values: Object) -> None:
    """helm waits for pods, which no kubelet starts here."""
    before = generation(cluster)
    file = helm.home / "killed.json"
    file.write_text(json.dumps(values))

    async def changed() -> bool:
        return generation(cluster) > before

    command = [str(helm.program), "upgrade", RELEASE, str(CHART), *IN, "--wait", "--values", str(file)]
    given = {**os.environ, **helm.environment(cluster.admin_kubeconfig)}
    process = await asyncio.create_subprocess_exec(*command, env=given, stdout=asyncio.subprocess.DEVNULL)
    try:
        await wait_for(changed, SECONDS, "the upgrade has changed the Deployment")
    finally:
        process.kill()
        await process.wait()


async def test_what_helm_keeps_is_taken_over_by_an_installation_in_another_namespace(
    helm: Helm, cluster: ControlPlane
) -> None:
    values: Object = {"admission": {"pods": "warn", "deviceClasses": ["gpu"]}}
    install = ("install", RELEASE, str(CHART), "--create-namespace")
    first, second = (("--namespace", f"helm-{name}") for name in ("first", "second"))
    try:
        for verb in (install, ("uninstall", RELEASE)):
            done = helm_does(helm, cluster, *verb, *first, values=values if verb == install else None)
            assert done.code == 0, done.words
        refused = helm_does(helm, cluster, *install, *second, values=values)
        assert (refused.code != 0, "invalid ownership metadata" in refused.words) == (True, True), refused.words
        taken = helm_does(helm, cluster, *install, *second, "--take-ownership", values=values)
        assert taken.code == 0, taken.words
    finally:
        helm_does(helm, cluster, "uninstall", RELEASE, *second)
        cluster.kubectl("delete", "namespace", first[1], second[1], "--wait=false", "--ignore-not-found")
        kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        cluster.kubectl("delete", kinds, "-l", f"app.kubernetes.io/instance={RELEASE}")


async def test_helm_takes_over_what_the_manifests_made(
    helm: Helm, cluster: ControlPlane, kubernetes_version: str
) -> None:
    """With the command of docs/operate/upgrade.md: the Deployment stays the same object; kustomize's ConfigMap is left."""
    where = ("--namespace", "dra-extender")
    cluster.kubectl("apply", "--server-side", "-k", str(overlay(kubernetes_version)))
    uid = ("get", "deployment", "dra-extender", *where, "-o", "jsonpath={.metadata.uid}")
    made = cluster.kubectl(*uid)
    try:
        take = ("install", "dra-extender", str(CHART), "--take-ownership", "--force-conflicts")
        done = helm_does(helm, cluster, *take, *where)
        assert done.code == 0, done.words
        assert cluster.kubectl(*uid) == made
    finally:
        removed = helm_does(helm, cluster, "uninstall", "dra-extender", *where)
        left_behind = cluster.kubectl("get", "deployment,configmap,role", *where, "-o", "name").split()
        # Other modules of this control plane install into this namespace.
        cluster.kubectl("delete", "namespace", "dra-extender", "--wait")
    assert removed.code == 0, removed.words
    (kept,) = [each for each in left_behind if "kube-root-ca" not in each]
    assert kept.startswith("configmap/dra-extender-scheduler-config-")


async def test_the_mode_changes_once_the_service_is_gone(helm: Helm, cluster: ControlPlane) -> None:
    """As docs/operate/upgrade.md says: without that step Helm is refused, and the mode stays."""
    values = {**OUTSIDE, "service": {"clusterIP": "10.0.0.177"}, "certificates": {"source": "none"}}
    where = ("--namespace", "helm-mode")
    ports = ("get", "service", f"{RELEASE}-dra-extender", *where, "-o", "jsonpath={.spec.ports[*].name}")
    try:
        done = helm_does(helm, cluster, "install", RELEASE, str(CHART), *where, "--create-namespace")
        assert done.code == 0, done.words
        refused = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART), *where, values=values)
        assert (refused.code != 0, "clusterIP" in refused.words) == (True, True), refused.words
        assert "verbs" not in cluster.kubectl(*ports)
        cluster.kubectl("delete", "service", f"{RELEASE}-dra-extender", *where)
        done = helm_does(helm, cluster, "upgrade", RELEASE, str(CHART), *where, values=values)
        assert done.code == 0, done.words
        assert "verbs" in cluster.kubectl(*ports)
    finally:
        helm_does(helm, cluster, "uninstall", RELEASE, *where)
        cluster.kubectl("delete", "namespace", where[1], "--wait=false", "--ignore-not-found")
