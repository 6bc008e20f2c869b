"""The finalizer of an allocated claim on a real API server under the shipped policy: who may take it off, and who passes."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from dra_extender.model.resource_claim import FINALIZER

from tests.chart.programs import MANIFESTS, Object
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient, PatchKind
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import SCHEDULER_USER, TENANT, ControlPlane
from tests.controlplane.options import default_apis
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
    Resource,
)
from tests.controlplane.schedulers import in_tree_config
from tests.support.side_by_side import side_by_side

OLDER = ("resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.plane(replace(BROKEN, runtime_config=default_apis() | dict.fromkeys(OLDER, True))),
    pytest.mark.asyncio(loop_scope="module"),
]

SPACE = "delete-protection"
SECONDS = 60.0
WAYS = ("merge", "json", "put", "apply", *OLDER)
RESULT = {"request": "gpu", "driver": objects.DRIVER, "pool": "worker", "device": "gpu-0"}
REFUSED = r"finalizer resource.kubernetes.io/delete-protection stays while the claim is allocated; delete the pods"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(cluster: ControlPlane) -> ControlPlane:
    """A cluster that serves all versions of claims, with the policies, and a user with the role edit."""
    await cluster.api.create(NAMESPACES, objects.namespace(SPACE))
    await cluster.api.create(DEVICE_CLASSES, objects.device_class("gpu"))
    binding = objects.role_binding(TENANT, "edit", objects.user(TENANT), namespace=SPACE)
    await cluster.api.create(ROLE_BINDINGS, binding)
    cluster.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "admission-policy.yaml"))
    return cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(guarded: ControlPlane) -> AsyncIterator[ApiClient]:
    """The user, for whom the policy is in force."""
    async with ApiClient.from_kubeconfig(guarded.kubeconfig_for(TENANT)) as api:

        async def enforced() -> bool:
            await allocated(guarded, "probe", "nobody")
            try:
                await strip(api, "probe")
            except ApiError as refused:
                return "delete-protection" in refused.message
            finally:
                await forget(guarded, "probe")
            return False

        await api.wait_for(enforced, SECONDS, "the policy is in force for the tenant")
        yield api


async def allocated(guarded: ControlPlane, name: str, uid: str, consumer: str = "user") -> Object:
    """A new claim with its finalizer, allocated and reserved for a pod."""
    claim = objects.resource_claim(name, SPACE, objects.request("gpu", "gpu"))
    claim["metadata"]["finalizers"] = [FINALIZER]
    made = await guarded.api.create(RESOURCE_CLAIMS, claim)
    made["status"] = objects.allocated(RESULT, consumers=[objects.consumer(consumer, uid)])
    return await guarded.api.replace(RESOURCE_CLAIMS, made, "status")


async def forget(guarded: ControlPlane, name: str) -> None:
    """Remove a claim whatever it is: the administrator may."""
    await guarded.api.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": None}}, SPACE)
    await guarded.api.delete(RESOURCE_CLAIMS, name, SPACE)


async def new_pod(guarded: ControlPlane, name: str) -> str:
    """A pod that nobody schedules and that uses the claim of its own name."""
    made = await guarded.api.create(PODS, objects.pod(name, SPACE, claims={"gpu": name}, scheduler="nobody"))
    return str(made["metadata"]["uid"])


async def strip(api: ApiClient, name: str, kind: PatchKind = "merge", resource: Resource = RESOURCE_CLAIMS) -> Object:
    """Take all finalizers off a claim."""
    operations = [{"op": "remove", "path": "/metadata/finalizers"}]
    change: Object | list[Object] = operations if kind == "json" else {"metadata": {"finalizers": None}}
    return await api.patch(resource, name, change, SPACE, kind=kind)


async def finalizers(api: ApiClient, name: str) -> list[str]:
    claim = await api.get(RESOURCE_CLAIMS, name, SPACE)
    return list(claim["metadata"].get("finalizers", ()))


async def gone(api: ApiClient, name: str) -> bool:
    return all(each["metadata"]["name"] != name for each in await api.list(RESOURCE_CLAIMS, SPACE))


async def user_who_writes_claims_does_not_strip_an_allocated_one(
    guarded: ControlPlane, tenant: ApiClient, how: str
) -> None:
    name = f"kept-{how.rpartition('/')[2]}"
    await allocated(guarded, name, await new_pod(guarded, name), name)
    with pytest.raises(ApiError, match=REFUSED) as refused:
        await stripped(tenant, name, how)
    assert refused.value.status == 403
    assert await finalizers(tenant, name) == [FINALIZER]
    await forget(guarded, name)


async def stripped(api: ApiClient, name: str, how: str) -> None:
    """Take the finalizer off in one of the ways that the API has."""
    if how in OLDER:
        await strip(api, name, resource=Resource(how, RESOURCE_CLAIMS.plural))
    elif how == "put":
        claim = await api.get(RESOURCE_CLAIMS, name, SPACE)
        del claim["metadata"]["finalizers"]
        await api.replace(RESOURCE_CLAIMS, claim)
    elif how == "apply":
        await applied_away(api, name)
    else:
        await strip(api, name, "json" if how == "json" else "merge")


async def applied_away(api: ApiClient, name: str) -> None:
    """Claim to have applied the finalizer, which anybody who writes the object may, then apply without it."""
    owned: Object = {"f:metadata": {"f:finalizers": {".": {}, f'v:"{FINALIZER}"': {}}}}
    version = {"apiVersion": RESOURCE_CLAIMS.group_version, "fieldsType": "FieldsV1"}
    entry = {"manager": "tenant", "operation": "Apply", **version, "fieldsV1": owned}
    await api.patch(RESOURCE_CLAIMS, name, {"metadata": {"managedFields": [entry]}}, SPACE)
    without = {"apiVersion": version["apiVersion"], "kind": "ResourceClaim", "metadata": {"name": name}}
    path = f"{RESOURCE_CLAIMS.path(SPACE, name)}?fieldManager=tenant&force=true"
    await api.raw("PATCH", path, json.dumps(without).encode(), content_type="application/apply-patch+yaml")


async def other_writes_pass_and_so_does_the_strip_once_nothing_is_allocated(
    guarded: ControlPlane, tenant: ApiClient
) -> None:
    stored = await allocated(guarded, "edited", await new_pod(guarded, "edited"), "edited")
    change = {"metadata": {"labels": {"a": "b"}, "finalizers": [FINALIZER, "example.com/own"]}}
    await tenant.patch(RESOURCE_CLAIMS, "edited", change, SPACE)
    own = {"metadata": {"finalizers": [FINALIZER]}}
    stored = await tenant.patch(RESOURCE_CLAIMS, "edited", own, SPACE)
    stored["status"] = {}
    await guarded.api.replace(RESOURCE_CLAIMS, stored, "status")
    assert "finalizers" not in (await strip(tenant, "edited"))["metadata"]
    await tenant.delete(RESOURCE_CLAIMS, "edited", SPACE)


async def deleted_claim_stays_until_its_pod_is_gone(guarded: ControlPlane, tenant: ApiClient) -> None:
    await allocated(guarded, "cleaned", await new_pod(guarded, "cleaned"), "cleaned")
    await tenant.delete(RESOURCE_CLAIMS, "cleaned", SPACE)
    with pytest.raises(ApiError, match=REFUSED):
        await strip(tenant, "cleaned")
    assert not await gone(tenant, "cleaned")
    await tenant.delete(PODS, "cleaned", SPACE, grace_seconds=0)
    await guarded.api.wait_for(lambda: gone(tenant, "cleaned"), SECONDS, "the claim is released and gone")


async def whoever_may_write_the_status_passes(guarded: ControlPlane, tenant: ApiClient) -> None:
    """The in-tree scheduler's account takes the finalizer off allocated claims of its own for extended resources."""
    await allocated(guarded, "passed", await new_pod(guarded, "passed"), "passed")
    async with ApiClient.from_kubeconfig(guarded.kubeconfig_for(SCHEDULER_USER)) as scheduler:
        assert "finalizers" not in (await strip(scheduler, "passed"))["metadata"]
    await guarded.api.delete(RESOURCE_CLAIMS, "passed", SPACE)


async def test_finalizer_of_an_allocated_claim_is_taken_off_by_those_alone_who_may_allocate(
    guarded: ControlPlane, tenant: ApiClient
) -> None:
    await side_by_side(
        {
            **{how: user_who_writes_claims_does_not_strip_an_allocated_one(guarded, tenant, how) for how in WAYS},
            "other writes": other_writes_pass_and_so_does_the_strip_once_nothing_is_allocated(guarded, tenant),
            "deleted": deleted_claim_stays_until_its_pod_is_gone(guarded, tenant),
            "scheduler": whoever_may_write_the_status_passes(guarded, tenant),
        }
    )


async def test_the_in_tree_plugin_gives_up_an_allocated_claim_for_extended_resources(
    guarded: ControlPlane, tenant: ApiClient
) -> None:
    """It allocates, waits for the device, which fails, and deletes the claim as it is."""
    await guarded.start_scheduler(in_tree_config())
    name = "example.com/slow"
    await guarded.api.create(NODES, objects.node("worker"))
    slow = objects.device("slow", bindingConditions=["Ready"], bindingFailureConditions=["Broken"])
    await guarded.api.create(RESOURCE_SLICES, objects.resource_slice("slow", node="worker", devices=[slow]))
    await guarded.api.create(DEVICE_CLASSES, objects.device_class("slow", extendedResourceName=name))
    pod = objects.pod("extended", SPACE, extended={name: "1"}, scheduler="default-scheduler")
    await guarded.api.create(PODS, pod)

    async def claim() -> Object | None:
        found = [
            each for each in await guarded.api.list(RESOURCE_CLAIMS, SPACE) if "extended" in each["metadata"]["name"]
        ]
        return next((each for each in found if each["status"].get("allocation")), None)

    made = await guarded.api.wait_for(claim, SECONDS, "the claim is allocated")
    assert made is not None
    assert made["metadata"]["finalizers"] == [FINALIZER]
    device = made["status"]["allocation"]["devices"]["results"][0]
    where = {field: device[field] for field in ("driver", "pool", "device")}
    broken = {"type": "Broken", "status": "True", "reason": "Test", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    change = {"status": {"devices": [{**where, "conditions": [{**broken, "message": ""}]}]}}
    await guarded.api.patch(RESOURCE_CLAIMS, made["metadata"]["name"], change, SPACE, subresource="status")
    await guarded.api.wait_for(
        lambda: gone(tenant, made["metadata"]["name"]), SECONDS, "the plugin has deleted the claim"
    )
    await guarded.api.delete(PODS, "extended", SPACE, grace_seconds=0)
    log = (await asyncio.to_thread(guarded.logs("kube-scheduler").read_text)).splitlines()
    assert [line for line in log if "delete-protection" in line and "denied" in line] == []
