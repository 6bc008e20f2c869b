"""Helm against a real API server: what an installation, an upgrade and a removal leave in it."""

import json

import pytest
import pytest_asyncio

from tests.chart.programs import CHART, Done, Helm, Object, run
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.support.chart.kubernetes_types import read_types

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

RELEASE = "gpus"
IN = ("--namespace", "helm-made")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(control_plane: ControlPlaneFactory) -> ControlPlane:
    return await control_plane(used=True)


def helm_does(helm: Helm, plane: ControlPlane, *arguments: str, values: Object | None = None) -> Done:
    """helm with the cluster's administrator."""
    home = {f"HELM_{kind}_HOME": str(helm.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    environment = {**home, "KUBECONFIG": str(plane.admin_kubeconfig)}
    given = () if values is None else ("--values", "-")
    return run(helm.program, *arguments, *IN, *given, stdin=json.dumps(values or {}), environment=environment)


def deployment(plane: ControlPlane) -> Object:
    found: Object = json.loads(plane.kubectl("get", "deployment", f"{RELEASE}-dra-extender", *IN, "-o", "json"))
    return found


def left(plane: ControlPlane, version: str) -> list[str]:
    """Names of all objects of the release, of every kind that the chart can make and the cluster serves."""
    kinds = sorted({kind.partition(" ")[2].lower() for kind in read_types(version).kinds})
    names = plane.kubectl("get", ",".join(kinds), "-A", "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
    return [each for each in names.split() if not each.startswith(("pod/", "secret/"))]


async def test_installed_upgraded_and_removed(helm: Helm, plane: ControlPlane, kubernetes_version: str) -> None:
    """The cluster tells its version; a value that is wrong changes nothing; an equal upgrade changes nothing either."""
    try:
        done = helm_does(helm, plane, "install", RELEASE, str(CHART), "--create-namespace")
        assert done.code == 0, done.words
        assert "helm test gpus" in done.output
        made = deployment(plane)
        (scheduler,) = made["spec"]["template"]["spec"]["containers"]
        assert scheduler["image"].endswith(f":{kubernetes_version}")
        assert left(plane, kubernetes_version)

        wrong: Object = {"extender": {"settings": {"log": {"lvl": "debug"}}}}
        refused = helm_does(helm, plane, "upgrade", RELEASE, str(CHART), values=wrong)
        assert refused.code != 0
        assert "additional properties 'lvl' not allowed" in refused.words
        again = helm_does(helm, plane, "upgrade", RELEASE, str(CHART))
        assert again.code == 0, again.words
        assert deployment(plane)["metadata"]["generation"] == made["metadata"]["generation"]

        weighed: Object = {"scheduler": {"pluginWeights": {"NodeResourcesFit": 5}}, "serviceAccount": {"name": "other"}}
        changed = helm_does(helm, plane, "upgrade", RELEASE, str(CHART), values=weighed)
        assert changed.code == 0, changed.words
        assert deployment(plane)["metadata"]["generation"] > made["metadata"]["generation"]
    finally:
        removed = helm_does(helm, plane, "uninstall", RELEASE)
        plane.kubectl("delete", "namespace", IN[1], "--wait=false", "--ignore-not-found")
    assert removed.code == 0, removed.words
    assert left(plane, kubernetes_version) == []
