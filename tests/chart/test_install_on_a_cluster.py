"""The manifests on a real API server: accepted as they are, with the rights and the refusals that they promise."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.chart.programs import NAMESPACE, Object, overlay
from tests.chart.selecting import only
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import TENANT, ControlPlane
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.planes import BROKEN, V1_34
from tests.controlplane.resources import CLUSTER_ROLE_BINDINGS, NAMESPACES, PODS, RESOURCE_CLAIMS, Resource
from tests.support.e2e.service_rights import service_may
from tests.support.side_by_side import side_by_side

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("plane", [BROKEN, V1_34], indirect=True, scope="module"),
]

SECONDS = 60.0
REPLICAS = 2


@pytest.fixture(scope="module")
def folder(plane: ControlPlaneOptions, kubernetes_version: str) -> Path:
    """The manifests for the cluster."""
    return overlay(plane.release or kubernetes_version)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(folder: Path, cluster: ControlPlane) -> ControlPlane:
    """A cluster after `kubectl apply -k`, with a user who may do anything but is no system:masters."""
    cluster.kubectl("apply", "--server-side", "-k", str(folder))
    binding = objects.role_binding(TENANT, "cluster-admin", objects.user(TENANT))
    await cluster.api.create(CLUSTER_ROLE_BINDINGS, binding)
    return cluster


Clients = tuple[ApiClient, ApiClient]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(installed: ControlPlane) -> AsyncIterator[Clients]:
    """Clients of the service's account and of the user; the policy is in force for the latter."""
    account = installed.service_account_kubeconfig(NAMESPACE, "dra-extender")
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(ApiClient.from_kubeconfig(account))
        user = await stack.enter_async_context(ApiClient.from_kubeconfig(installed.kubeconfig_for(TENANT)))

        async def enforced() -> bool:
            try:
                await user.create(RESOURCE_CLAIMS, claim("probe", forged=True))
            except ApiError as refused:
                # Without its role, which the API server may not have loaded yet, the user is refused as well.
                return SNAPSHOT_ANNOTATION in refused.message
            await user.delete(RESOURCE_CLAIMS, "probe", "default")
            return False

        await user.wait_for(enforced, SECONDS, "the admission policy is in force")
        yield extender, user


def claim(name: str, *, forged: bool = False) -> Object:
    """A claim of the default namespace."""
    body = objects.resource_claim(name, "default", objects.request("gpu", "gpu"))
    if forged:
        body["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: "forged"}
    return body


async def annotate(api: ApiClient, name: str, value: str | None, key: str = SNAPSHOT_ANNOTATION) -> Object:
    """Sets (or, with None, removes) an annotation of a claim."""
    return await api.patch(RESOURCE_CLAIMS, name, {"metadata": {"annotations": {key: value}}}, "default")


async def refusal(api: ApiClient, name: str, value: str | None) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await annotate(api, name, value)
    return refused.value


def snapshot(claim: Object) -> str | None:
    """The annotation of a claim, None without it."""
    value: str | None = claim["metadata"].get("annotations", {}).get(SNAPSHOT_ANNOTATION)
    return value


async def nobody_but_the_service_writes_a_snapshot(installed: ControlPlane, clients: Clients) -> None:
    extender, user = clients
    await user.create(RESOURCE_CLAIMS, claim("guarded"))
    try:
        for writer in (user, installed.api):
            refused = await refusal(writer, "guarded", "forged")
            assert (refused.status, refused.reason) == (403, "Forbidden")
            assert f"only system:serviceaccount:{NAMESPACE}:dra-extender writes the annotation" in refused.message
        assert snapshot(await annotate(extender, "guarded", "ours")) == "ours"
        for writer in (user, installed.api):
            await refusal(writer, "guarded", "changed")
        await refusal(user, "guarded", None)
        assert snapshot(await annotate(extender, "guarded", "ours again")) == "ours again"
        assert snapshot(await annotate(extender, "guarded", None)) is None
    finally:
        await installed.api.delete(RESOURCE_CLAIMS, "guarded", "default")


async def administrators_may_remove_a_snapshot(installed: ControlPlane, clients: Clients) -> None:
    extender, user = clients
    await user.create(RESOURCE_CLAIMS, claim("removed"))
    await annotate(extender, "removed", "ours")
    assert snapshot(await annotate(installed.api, "removed", None)) is None
    await installed.api.delete(RESOURCE_CLAIMS, "removed", "default")


async def a_claim_is_not_created_with_a_snapshot(clients: Clients) -> None:
    with pytest.raises(ApiError, match="leave it as it is, or out of a new claim"):
        await clients[1].create(RESOURCE_CLAIMS, claim("forged", forged=True))


async def other_writes_are_left_alone(clients: Clients) -> None:
    """With and without a snapshot on the claim, by somebody who could not write it."""
    extender, user = clients
    await user.create(RESOURCE_CLAIMS, claim("other"))
    await annotate(user, "other", "1", "example.com/note")
    await annotate(extender, "other", "ours")
    changed = await annotate(user, "other", "2", "example.com/note")
    assert (snapshot(changed), changed["metadata"]["annotations"]["example.com/note"]) == ("ours", "2")
    replaced = await user.replace(RESOURCE_CLAIMS, changed | {"metadata": changed["metadata"] | {"labels": {"a": "b"}}})
    assert replaced["metadata"]["labels"] == {"a": "b"}
    await user.delete(RESOURCE_CLAIMS, "other", "default")


# Verb, group, resource/subresource, name, namespace; a path instead of a group and resource asks for a page.
Right = tuple[str, str, str, str, str]
DRA = "resource.k8s.io"
MAY: list[Right] = [
    ("watch", DRA, "resourceclaims", "", ""),
    ("patch", DRA, "resourceclaims", "x", "default"),
    ("update", DRA, "resourceclaims", "x", "default"),
    ("create", DRA, "resourceclaims", "", "default"),
    ("delete", DRA, "resourceclaims", "x", "default"),
    ("update", DRA, "resourceclaims/status", "x", "default"),
    ("update", DRA, "resourceclaims/binding", "x", "default"),
    ("watch", DRA, "resourceslices", "", ""),
    ("watch", DRA, "deviceclasses", "", ""),
    ("watch", "scheduling.k8s.io", "podgroups", "", ""),
    ("watch", DRA, "devicetaintrules", "", ""),
    ("patch", DRA, "deviceclasses", "wake-up.dra-extender.io", ""),
    ("watch", "", "pods", "", ""),
    ("watch", "", "nodes", "", ""),
    ("create", "", "pods/binding", "x", "default"),
    ("patch", "", "pods/status", "x", "default"),
    ("create", "events.k8s.io", "events", "", "default"),
    ("create", "coordination.k8s.io", "leases", "", NAMESPACE),
    ("update", "coordination.k8s.io", "leases", "dra-extender-scheduler", NAMESPACE),
    ("update", "coordination.k8s.io", "leases", "dra-extender", NAMESPACE),
    ("get", "/metrics", "", "", ""),
    ("get", "/version", "", "", ""),
]
MAY_NOT: list[Right] = [
    ("get", "", "secrets", "x", NAMESPACE),
    ("create", "", "pods", "", "default"),
    ("patch", "", "pods", "x", "default"),
    ("update", "", "nodes", "x", ""),
    ("patch", DRA, "deviceclasses", "gpu", ""),
    ("create", DRA, "resourceslices", "", ""),
    ("update", DRA, "resourceclaims/driver", "gpu.example.com", "default"),
    ("update", "coordination.k8s.io", "leases", "other", NAMESPACE),
    ("update", "coordination.k8s.io", "leases", "dra-extender", "kube-system"),
    ("get", "/debug/pprof", "", "", ""),
]


async def allowed(cluster: ControlPlane, right: Right) -> bool:
    """What the API server says of a right of the service's account."""
    verb, group, what, name, namespace = right
    resource, _, subresource = what.partition("/")
    attributes = (
        {"nonResourceAttributes": {"path": group, "verb": verb}}
        if group.startswith("/")
        else {
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "name": name,
                "namespace": namespace,
            }
        }
    )
    return await service_may(cluster.api, attributes)


async def account_has_the_rights_it_needs_and_no_others(installed: ControlPlane) -> None:
    asked = [*MAY, *MAY_NOT]
    answers = await asyncio.gather(*(allowed(installed, right) for right in asked))
    assert [right for right, may in zip(asked, answers, strict=True) if may is not (right in MAY)] == []


async def namespace_enforces_the_restricted_standard_and_the_pod_keeps_it(installed: ControlPlane) -> None:
    """The controllers make the pod; a pod that breaks the standard is refused beside it."""

    async def made() -> list[Object]:
        found = await installed.api.list(PODS, NAMESPACE)
        return found if len(found) == REPLICAS else []

    pod, _ = await installed.api.wait_for(made, SECONDS, "the Deployment's pods are made")
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
    assert pod["spec"]["initContainers"][0]["restartPolicy"] == "Always"
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        await installed.api.create(PODS, objects.pod("loose", NAMESPACE))


async def server_accepts_every_object_of_the_chart(installed: ControlPlane, objects_of_the_chart: list[Object]) -> None:
    """Under other names, so that nothing is there already; a server-side dry run, strict about unknown fields."""
    renamed = {"apiVersion": "v1", "kind": "List", "items": [under_another_name(each) for each in objects_of_the_chart]}
    asked = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    await asyncio.to_thread(installed.kubectl, *asked, stdin=json.dumps(renamed))


def under_another_name(each: Object) -> Object:
    name = each["metadata"]["name"]
    return each | {"metadata": each["metadata"] | {"name": f"x-{name}"}}


async def applying_again_changes_nothing(installed: ControlPlane, folder: Path, manifests: list[Object]) -> None:
    resource = Resource("apps/v1", "deployments")
    before = await installed.api.get(resource, "dra-extender", NAMESPACE)
    installed.kubectl("apply", "--server-side", "-k", str(folder))
    after = await installed.api.get(resource, "dra-extender", NAMESPACE)
    assert before["metadata"]["generation"] == after["metadata"]["generation"] == 1
    assert (await installed.api.get(NAMESPACES, NAMESPACE))["metadata"]["labels"].items() >= only(
        manifests, "Namespace"
    )["metadata"]["labels"].items()


async def test_manifests_are_accepted_with_the_rights_and_the_refusals_that_they_promise(
    installed: ControlPlane,
    clients: Clients,
    folder: Path,
    manifests: list[Object],
    rendered: Callable[[str], list[Object]],
) -> None:
    await side_by_side(
        {
            "snapshots": nobody_but_the_service_writes_a_snapshot(installed, clients),
            "removal of a snapshot": administrators_may_remove_a_snapshot(installed, clients),
            "claim with a snapshot": a_claim_is_not_created_with_a_snapshot(clients),
            "other writes": other_writes_are_left_alone(clients),
            "rights": account_has_the_rights_it_needs_and_no_others(installed),
            "namespace": namespace_enforces_the_restricted_standard_and_the_pod_keeps_it(installed),
            **{
                mode: server_accepts_every_object_of_the_chart(installed, rendered(mode))
                for mode in ("secondScheduler", "extenderOnly")
            },
        }
    )
    await applying_again_changes_nothing(installed, folder, manifests)
