"""What the chart's policies refuse to a user who may do everything in one namespace, and nothing outside it."""

import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from http import HTTPStatus

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.chart.programs import Helm, Object
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import TENANT, ControlPlane
from tests.controlplane.planes import V1_34
from tests.controlplane.resources import (
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ROLE_BINDINGS,
    Resource,
)
from tests.support.side_by_side import side_by_side

OLDER = ("resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.plane(replace(V1_34, runtime_config=dict.fromkeys(OLDER, True))),
    pytest.mark.asyncio(loop_scope="module"),
]

SPACE = "every-verb"
SECONDS = 60.0
WAYS = ("merge", "json", "put", "apply", "dry run", *OLDER)
RESULT = {"request": "gpu", "driver": objects.DRIVER, "pool": "worker", "device": "gpu-0"}
WRITTEN = {"metadata": {"annotations": {SNAPSHOT_ANNOTATION: "forged"}}}
ALLOCATED = {"status": {"allocation": {"devices": {"results": [RESULT]}}}}
REPLICA_SETS = Resource("apps/v1", "replicasets")
EVENTS = Resource("v1", "events")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(cluster: ControlPlane, helm: Helm) -> ControlPlane:
    """A cluster that serves all versions of claims, with every policy of the chart.

    Newer releases ask a right for the whole cluster of whoever writes an allocation, and refuse the tenant before a policy does.
    """
    await cluster.api.create(NAMESPACES, objects.namespace(SPACE))
    await cluster.api.create(DEVICE_CLASSES, objects.device_class("gpu"))
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await cluster.api.create(CLUSTER_ROLES, objects.role(TENANT, everything))
    binding = objects.role_binding(TENANT, TENANT, objects.user(TENANT), namespace=SPACE)
    await cluster.api.create(ROLE_BINDINGS, binding)
    admission = {"allocations": True, "drivers": [objects.DRIVER], "pods": "deny", "deviceClasses": ["gpu"]}
    policies = [each for each in helm.template(values={"admission": admission}) if "AdmissionPolicy" in each["kind"]]
    cluster.kubectl(
        "apply", "--server-side", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": policies})
    )
    return cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(guarded: ControlPlane) -> AsyncIterator[ApiClient]:
    """The user, for whom all policies are in force."""
    async with ApiClient.from_kubeconfig(guarded.kubeconfig_for(TENANT)) as api:
        await api.create(RESOURCE_CLAIM_TEMPLATES, objects.resource_claim_template("gpu", SPACE, _request()))

        await api.create(RESOURCE_CLAIMS, objects.resource_claim("probe", SPACE, _request()))
        pod = objects.pod("probe", SPACE, templates={"gpu": "gpu"}, scheduler="default-scheduler")

        async def in_force() -> bool:
            tries = (
                changed(api, "probe", WRITTEN, "", "dry run"),
                changed(api, "probe", ALLOCATED, "status", "dry run"),
            )
            return [await _is_refused(each) for each in (*tries, created(api, pod, "dry run"))] == [True] * 3

        await api.wait_for(in_force, SECONDS, "the policies are in force for the tenant")
        yield api


def _request() -> Object:
    return objects.request("gpu", "gpu")


async def _is_refused(call: Coroutine[None, None, None]) -> bool:
    try:
        await call
    except ApiError as refused:
        return refused.status == HTTPStatus.FORBIDDEN
    return False


async def changed(api: ApiClient, name: str, change: Object, part: str, how: str) -> None:
    """Change a claim in one of the ways that the API has; `part` is `status` or empty."""
    path = RESOURCE_CLAIMS.path(SPACE, name, part or None)
    if how in OLDER:
        await api.patch(Resource(how, RESOURCE_CLAIMS.plural), name, change, SPACE, subresource=part or None)
    elif how == "put":
        claim = await api.get(RESOURCE_CLAIMS, name, SPACE)
        claim["metadata"] |= change.get("metadata", {})
        await api.replace(RESOURCE_CLAIMS, claim | {"status": change.get("status", {})}, part or None)
    elif how == "json":
        ((field, value),) = change.items()
        await api.patch(RESOURCE_CLAIMS, name, _operations(field, value), SPACE, kind="json", subresource=part or None)
    elif how == "apply":
        head = {"apiVersion": RESOURCE_CLAIMS.group_version, "kind": "ResourceClaim"}
        body = json.dumps(head | change).encode()
        await api.raw(
            "PATCH", f"{path}?fieldManager=tenant&force=true", body, content_type="application/apply-patch+yaml"
        )
    else:
        asked = f"{path}?dryRun=All" if how == "dry run" else path
        await api.raw("PATCH", asked, json.dumps(change).encode(), content_type="application/merge-patch+json")


def _operations(field: str, value: Object) -> list[Object]:
    inner, content = next(iter(value.items()))
    path = f"/{field}/{inner}" if field == "metadata" else f"/{field}"
    return [{"op": "add", "path": path, "value": content if field == "metadata" else value}]


async def refused_to_write(tenant: ApiClient, how: str, change: Object, part: str, said: str) -> None:
    name = f"of-the-service-{part}-{WAYS.index(how)}".replace("--", "-")
    await tenant.create(RESOURCE_CLAIMS, objects.resource_claim(name, SPACE, _request()))
    with pytest.raises(ApiError, match=said) as refused:
        await changed(tenant, name, change, part, how)
    assert refused.value.status == HTTPStatus.FORBIDDEN
    await tenant.delete(RESOURCE_CLAIMS, name, SPACE)


async def status_leaves_the_snapshot_alone(tenant: ApiClient) -> None:
    """It is no write that the policy of snapshots judges."""
    await tenant.create(RESOURCE_CLAIMS, objects.resource_claim("by-status", SPACE, _request()))
    await changed(tenant, "by-status", WRITTEN, "status", "merge")
    assert "annotations" not in (await tenant.get(RESOURCE_CLAIMS, "by-status", SPACE))["metadata"]


async def admin_access_needs_a_namespace_with_it(tenant: ApiClient) -> None:
    """The API server asks for a label of the namespace; the policy lets such results pass."""
    await tenant.create(RESOURCE_CLAIMS, objects.resource_claim("as-admin", SPACE, _request()))
    forged = {"status": {"allocation": {"devices": {"results": [RESULT | {"adminAccess": True}]}}}}
    with pytest.raises(ApiError, match="admin-access") as refused:
        await changed(tenant, "as-admin", forged, "status", "merge")
    assert refused.value.status in {403, 422}


async def allocation_of_nothing_gets_no_device_later(tenant: ApiClient) -> None:
    await tenant.create(RESOURCE_CLAIMS, objects.resource_claim("in-steps", SPACE, _request()))
    other = {"status": {"allocation": {"devices": {"results": [RESULT | {"driver": "other.example.com"}]}}}}
    await changed(tenant, "in-steps", other, "status", "merge")
    with pytest.raises(ApiError, match="field is immutable"):
        await changed(tenant, "in-steps", ALLOCATED, "status", "merge")


async def test_what_the_service_alone_writes_is_refused_in_every_way(tenant: ApiClient) -> None:
    guarded: Mapping[str, tuple[Object, str, str]] = {
        "snapshot": (WRITTEN, "", f"writes the annotation {SNAPSHOT_ANNOTATION}; leave it"),
        "allocation": (ALLOCATED, "status", f"devices of {objects.DRIVER} are allocated by"),
    }
    await side_by_side(
        {
            **{f"{what}: {how}": refused_to_write(tenant, how, *row) for what, row in guarded.items() for how in WAYS},
            "snapshot by the status": status_leaves_the_snapshot_alone(tenant),
            "admin access": admin_access_needs_a_namespace_with_it(tenant),
            "in two steps": allocation_of_nothing_gets_no_device_later(tenant),
        }
    )


async def refused_elsewhere(tenant: ApiClient, how: str) -> None:
    body = objects.pod(f"by-{how[0].lower()}", SPACE, templates={"gpu": "gpu"}, scheduler="default-scheduler")
    with pytest.raises(ApiError, match="ResourceClaimTemplate gpu needs devices that") as refused:
        await created(tenant, body, how)
    assert refused.value.status == HTTPStatus.FORBIDDEN


async def created(api: ApiClient, body: Object, how: str) -> None:
    """Create a pod in one of the ways that the API has."""
    if how == "apply":
        path = f"{PODS.path(SPACE, body['metadata']['name'])}?fieldManager=tenant&force=true"
        await api.raw("PATCH", path, json.dumps(body).encode(), content_type="application/apply-patch+yaml")
    else:
        await api.create(PODS, body, **({"dryRun": "All"} if how == "dry run" else {}))


async def set_says_why_it_has_no_pod(tenant: ApiClient) -> None:
    pod = objects.pod("of-a-set", SPACE, templates={"gpu": "gpu"}, scheduler="default-scheduler")
    template = {"metadata": {"labels": {"of": "set"}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    body = {
        "apiVersion": REPLICA_SETS.group_version,
        "kind": "ReplicaSet",
        "metadata": {"name": "set", "namespace": SPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"of": "set"}}, "template": template},
    }
    await tenant.create(REPLICA_SETS, body)

    async def told() -> bool:
        found = await tenant.list(EVENTS, SPACE, fieldSelector="involvedObject.name=set,reason=FailedCreate")
        return any("set spec.schedulerName to" in each["message"] for each in found)

    await tenant.wait_for(told, SECONDS, "the set says why it has no pod")
    assert await tenant.list(PODS, SPACE, labelSelector="of=set") == []
    await tenant.delete(REPLICA_SETS, "set", SPACE)


async def scheduler_stays(tenant: ApiClient) -> None:
    gated = objects.pod("gated", SPACE, templates={"gpu": "gpu"})
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await tenant.create(PODS, gated)
    for change in ({"schedulerName": "default-scheduler"}, {"schedulerName": None}):
        with pytest.raises(ApiError, match=r"pod updates may not change fields|immutable") as refused:
            await tenant.patch(PODS, "gated", {"spec": change}, SPACE)
        assert refused.value.status == 422
    await tenant.delete(PODS, "gated", SPACE)


async def test_pods_that_another_scheduler_would_place_are_refused_until_the_tenant_leaves_the_namespace_out(
    guarded: ControlPlane, tenant: ApiClient
) -> None:
    """A Role with all resources of a namespace has the Namespace itself among them, as for its other labels."""
    await side_by_side(
        {
            **{how: refused_elsewhere(tenant, how) for how in ("POST", "apply", "dry run")},
            "ReplicaSet": set_says_why_it_has_no_pod(tenant),
            "update": scheduler_stays(tenant),
        }
    )
    await tenant.patch(NAMESPACES, SPACE, {"metadata": {"labels": {"dra-extender.io/admission": "ignore"}}})
    await guarded.api.create(NAMESPACES, objects.namespace("others"))
    with pytest.raises(ApiError) as refused:
        await tenant.patch(NAMESPACES, "others", {"metadata": {"labels": {"dra-extender.io/admission": "ignore"}}})
    assert refused.value.status == 403
