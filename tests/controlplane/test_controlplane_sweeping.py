import pytest

from tests.controlplane import objects
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.resources import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.controlplane.sweeping import SWEPT, sweep
from tests.support.e2e.installed_extender import APPLIED, DEPLOY

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SECONDS = 60.0


def deployment(name: str) -> objects.Object:
    """Two pods that nobody schedules."""
    labels = {"of": name}
    pod = objects.pod("x", "x", scheduler="nobody")["spec"] | {"restartPolicy": "Always"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": name, "namespace": "left"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def bound(name: str) -> objects.Object:
    """A pod on a node without a kubelet."""
    pod = objects.pod(name, "left")
    pod["spec"]["nodeName"] = "n0"
    return pod


async def test_a_control_plane_that_the_next_module_gets_is_as_it_was_at_first(cluster: ControlPlane) -> None:
    """What is protected, in use or being deleted is gone too; what the API server made itself stays."""

    async def everything() -> dict[str, set[str]]:
        return {each.plural: {thing["metadata"]["name"] for thing in await cluster.api.list(each)} for each in SWEPT}

    await sweep(cluster.api, SECONDS)
    before = await everything()
    cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED))
    for resource, body in (
        (NAMESPACES, objects.namespace("left")),
        (NODES, objects.node("n0")),
        (DEVICE_CLASSES, objects.device_class("gpu")),
        (RESOURCE_CLAIM_TEMPLATES, objects.resource_claim_template("one", "left", objects.request("gpu", "gpu"))),
        (POD_GROUPS, objects.pod_group("group", "left", templates={"gpu": "one"})),
        (PODS, objects.pod("p", "left", templates={"gpu": "one"})),
        (PODS, bound("waits-for-kubelet")),
        (RESOURCE_SLICES, objects.resource_slice("worker", node="n0", devices=[objects.device("gpu-0")])),
        (RESOURCE_CLAIMS, objects.resource_claim("own", "default", objects.request("gpu", "gpu"))),
        (DEPLOYMENTS, deployment("left")),
    ):
        await cluster.api.create(resource, body)
    await cluster.api.delete(PODS, "waits-for-kubelet", "left", grace_seconds=30)

    async def generated() -> list[objects.Object]:
        return await cluster.api.list(RESOURCE_CLAIMS, "left")

    await cluster.api.wait_for(generated, SECONDS, "the claim is made")

    async def replicas() -> list[objects.Object]:
        return await cluster.api.list(PODS, "left", labelSelector="of=left")

    await cluster.api.wait_for(replicas, SECONDS, "the pods of the Deployment are made")
    await sweep(cluster.api, SECONDS)

    async def as_before() -> bool:
        return await everything() == before

    # kube-controller-manager makes a claim again if it hears of its deletion before that of its owner; then it deletes that one.
    await cluster.api.wait_for(as_before, SECONDS, f"there is what was there before: {before}")
    assert before["clusterroles"]
