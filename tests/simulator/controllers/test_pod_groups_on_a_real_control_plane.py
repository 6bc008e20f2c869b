"""What the simulator does around PodGroups, kube-apiserver and kube-controller-manager do."""

from typing import Any

import pytest
from dra_extender.model.pod_group import PROTECTION_FINALIZER

from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.resources import NAMESPACES, POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NAMESPACE = "pod-groups"
SECONDS = 60.0
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    body = {
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [ENTRY],
        **spec,
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": body}


async def recorded(cluster: ControlPlane, name: str) -> list[str]:
    """The claims that kube-controller-manager has recorded for a pod."""
    status = (await cluster.api.get(PODS, name, NAMESPACE)).get("status") or {}
    return [each["resourceClaimName"] for each in status.get("resourceClaimStatuses") or []]


async def group(cluster: ControlPlane) -> dict[str, Any] | None:
    try:
        return await cluster.api.get(POD_GROUPS, "team", NAMESPACE)
    except ApiError as problem:
        if problem.status == 404:
            return None
        raise


async def test_pod_gets_no_claim_before_its_podgroup_and_the_group_stays_while_the_pod_does(
    cluster: ControlPlane,
) -> None:
    api = cluster.api
    await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    await api.create(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "gpu", "namespace": NAMESPACE}, "spec": spec})
    await api.create(PODS, pod("early", schedulingGroup={"podGroupName": "team"}))
    await api.create(PODS, pod("alone"))
    await api.wait_for(lambda: recorded(cluster, "alone"), SECONDS, "a claim for the pod without a group")
    assert await recorded(cluster, "early") == []

    policy = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [ENTRY]}
    made = await api.create(POD_GROUPS, {"metadata": {"name": "team", "namespace": NAMESPACE}, "spec": policy})
    assert made["metadata"]["finalizers"] == [PROTECTION_FINALIZER]
    (claim,) = await api.wait_for(lambda: recorded(cluster, "early"), SECONDS, "the claim of the group")
    assert claim.startswith("team-gpu-")

    await api.delete(POD_GROUPS, "team", NAMESPACE)
    await api.create(PODS, pod("later"))
    await api.wait_for(
        lambda: recorded(cluster, "later"), SECONDS, "a claim for a pod that is created after the deletion"
    )
    kept = await group(cluster)
    assert kept is not None
    assert "deletionTimestamp" in kept["metadata"]
    await api.delete(PODS, "early", NAMESPACE, grace_seconds=0)

    async def gone() -> bool:
        return await group(cluster) is None

    await api.wait_for(gone, SECONDS, "the end of the group after that of its pod")
