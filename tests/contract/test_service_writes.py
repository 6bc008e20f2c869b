"""What the service writes, by its own adapters: beside what others have written, and never over it."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from dra_extender.kube.cluster import KubeCluster
from dra_extender.scheduling.ports.cluster import ConflictError, NotFoundError, RequestRejectedError

from tests.contract.contract_server import MERGE, ContractServer
from tests.controlplane import objects

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUPS = ("scheduling.k8s.io/v1beta1", "podgroups")


@pytest_asyncio.fixture(loop_scope="module")
async def service(server: ContractServer) -> AsyncIterator[KubeCluster]:
    """The adapters of the service."""
    cluster = KubeCluster(server.settings)
    await cluster.start({})
    yield cluster
    await cluster.stop()


async def new_pod(server: ContractServer, **sources: Any) -> str:
    made = await server.ask("POST", server.pods(), objects.pod("pod", server.namespace, **sources))
    return str(made.body["metadata"]["uid"])


async def new_group(server: ContractServer) -> None:
    group = objects.pod_group("group", server.namespace, templates={each: each for each in ("a", "b")})
    assert (await server.ask("POST", server.path(*GROUPS), group)).code == 201


async def test_claim_is_made_once_and_deleted_if_it_is_the_one_that_is_meant(
    server: ContractServer, service: KubeCluster
) -> None:
    body = msgspec.json.encode(objects.resource_claim("made", server.namespace, objects.request("gpu", "gpu")))
    metadata = msgspec.json.decode(await service.claims.create(server.namespace, body))["metadata"]
    with pytest.raises(ConflictError, match='"made" already exists'):
        await service.claims.create(server.namespace, body)
    with pytest.raises(ConflictError, match=r"the UID in the precondition \(another\) does not match"):
        await service.claims.delete(server.namespace, "made", "another")
    with pytest.raises(ConflictError, match=r"the ResourceVersion in the precondition \(1\) does not match"):
        await service.claims.delete(server.namespace, "made", metadata["uid"], "1")
    await service.claims.delete(server.namespace, "made", metadata["uid"], metadata["resourceVersion"])
    with pytest.raises(NotFoundError):
        await service.claims.delete(server.namespace, "made", metadata["uid"])


async def test_pod_is_told_of_its_extended_resource_claim_and_of_another_one_in_its_place(
    server: ContractServer, service: KubeCluster
) -> None:
    uid = await new_pod(server, extended={"example.com/gpu": "1"})
    mapping = ("main", "example.com/gpu", "container-0-request-1")
    for claim in ("first", "second"):
        assert await service.pods.record_extended_claim(server.namespace, "pod", uid, claim, [mapping])
        told = (await server.ask("GET", server.pods("pod"))).body["status"]["extendedResourceClaimStatus"]
        names = ("containerName", "resourceName", "requestName")
        assert told == {"resourceClaimName": claim, "requestMappings": [dict(zip(names, mapping, strict=True))]}
    with pytest.raises(RequestRejectedError, match=r"metadata\.uid: .* field is immutable"):
        await service.pods.record_extended_claim(server.namespace, "pod", "another", "first", [])


async def test_claims_of_pods_are_recorded_beside_others_if_the_pod_is_as_known(
    server: ContractServer, service: KubeCluster
) -> None:
    uid = await new_pod(server, claims={"a": "x", "b": "y"})
    for claims in ({"a": "first"}, {"b": "second"}):
        pod = await service.pods.read(server.namespace, "pod")
        await service.pods.record_claims(server.namespace, "pod", uid, pod.resource_version, claims)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await service.pods.record_claims(server.namespace, "pod", uid, pod.resource_version, {"a": "third"})
    stored = (await service.pods.read(server.namespace, "pod")).claim_statuses
    assert {each.name: each.resource_claim_name for each in stored} == {"a": "first", "b": "second"}


async def test_claims_of_pod_groups_are_recorded_beside_others_if_the_group_is_as_known(
    server: ContractServer, service: KubeCluster
) -> None:
    await new_group(server)
    for claims in ({"a": "first"}, {"b": "second"}):
        group = await service.pod_groups.read(server.namespace, "group")
        await service.pod_groups.record_claims(group, claims)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await service.pod_groups.record_claims(group, {"a": "third"})
    stored = (await service.pod_groups.read(server.namespace, "group")).status.resource_claim_statuses
    assert {each.name: each.resource_claim_name for each in stored} == {"a": "first", "b": "second"}


async def test_finalizer_is_taken_off_a_pod_group_beside_others(server: ContractServer, service: KubeCluster) -> None:
    await new_group(server)
    path = server.path(*GROUPS, "group")
    change = {"metadata": {"finalizers": ["a.example/x", "b.example/y"]}}
    assert (await server.ask("PATCH", path, change, media=MERGE)).code == 200
    for left in (["b.example/y"], None):
        group = await service.pod_groups.read(server.namespace, "group")
        await service.pod_groups.unprotect(group, group.metadata.finalizers[0])
        assert (await server.ask("GET", path)).body["metadata"].get("finalizers") == left
    with pytest.raises(ConflictError, match="the object has been modified"):
        await service.pod_groups.unprotect(group, "b.example/y")


async def test_pod_is_nominated_and_that_is_taken_back_for_the_pod_that_is_meant(
    server: ContractServer, service: KubeCluster
) -> None:
    uid = await new_pod(server)
    for node in ("worker", ""):
        await service.pods.nominate(server.namespace, "pod", uid, node)
        assert (await service.pods.read(server.namespace, "pod")).nominated_node_name == node
        with pytest.raises(RequestRejectedError, match=r"metadata\.uid: .* field is immutable"):
            await service.pods.nominate(server.namespace, "pod", "another", "other")
    with pytest.raises(NotFoundError):
        await service.pods.nominate(server.namespace, "missing", uid, "worker")
