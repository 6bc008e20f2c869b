"""Every write on a real API server, by a user with the least rights, and without each one of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import pytest_asyncio
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import OPTIONAL_KINDS, KubeCluster
from dra_extender.kube.discovery import Support
from dra_extender.kube.objects.scheduler_waker import WAKE_UP_CLASS, WOKEN_AT_ANNOTATION
from dra_extender.model.claim_edits import MetadataChange, with_finalizer_and_snapshot
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PROTECTION_FINALIZER, PodGroup, read_pod_group
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.templated_claim import Owner, claim_from, generated_name, read_template
from dra_extender.scheduling.ports.cluster import (
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)

from tests.controlplane import objects
from tests.controlplane.cluster import EXTENDER_USER, ControlPlane
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from tests.support.kube.recording import RecordingSink
from tests.support.kube.rights import RIGHTS, grant, user_without
from tests.support.side_by_side import side_by_side
from tests.support.turns import until

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

SPACE = "writes"
FINALIZER = "resource.kubernetes.io/delete-protection"
DEVICE = {"request": "gpu", "driver": objects.DRIVER, "pool": "worker", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [DEVICE]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def granted(cluster: ControlPlane) -> ControlPlane:
    """A control plane with a node, a claim and a waking class, with a user of the least rights and one without each right."""
    for resource, body in (
        (NAMESPACES, objects.namespace(SPACE)),
        (NODES, objects.node("worker")),
        (DEVICE_CLASSES, objects.device_class(WAKE_UP_CLASS, "false")),
    ):
        await cluster.api.create(resource, body)
    await grant(cluster.api, EXTENDER_USER)
    await asyncio.gather(*(grant(cluster.api, user_without(purpose), purpose) for purpose in RIGHTS))
    return cluster


async def connected(plane: ControlPlane, user: str, **feeds: RecordingSink) -> KubeCluster:
    cluster = KubeCluster(KubeSettings(kubeconfig=plane.kubeconfig_for(user)))
    await cluster.start(feeds)
    return cluster


def _claim(name: str) -> bytes:
    return json.dumps(objects.resource_claim(name, SPACE, objects.request("gpu", "gpu"))).encode()


async def new_claim(plane: ControlPlane, name: str) -> bytes:
    made = await plane.api.create(RESOURCE_CLAIMS, json.loads(_claim(name)))
    return json.dumps(made).encode()


async def new_group(plane: ControlPlane, name: str) -> str:
    entries = {each: each for each in ("a", "b")}
    made = await plane.api.create(POD_GROUPS, objects.pod_group(name, SPACE, templates=entries))
    return str(made["metadata"]["uid"])


async def new_pod(plane: ControlPlane, name: str, **fields: Any) -> str:
    made = await plane.api.create(PODS, objects.pod(name, SPACE, **fields))
    return str(made["metadata"]["uid"])


def finalized(raw: bytes) -> MetadataChange:
    return with_finalizer_and_snapshot(read_claim(raw), "written")


def allocated(raw: bytes, uid: str = "nobody") -> bytes:
    """Reserved for the pod "user"; the resourceclaim controller takes the reservation back unless its UID is this one."""
    claim = json.loads(raw)
    claim["status"] = {
        "allocation": ALLOCATION,
        "reservedFor": [{"resource": "pods", "name": "user", "uid": uid}],
    }
    return json.dumps(claim).encode()


async def a_claim_is_finalized_allocated_and_released_under_our_name(
    plane: ControlPlane, extender: KubeCluster
) -> None:
    uid = await new_pod(plane, "user")
    first = await new_claim(plane, "claim")
    assert json.loads(await extender.claims.read(SPACE, "claim"))["metadata"]["name"] == "claim"
    second = await extender.claims.update(SPACE, "claim", finalized(first))
    third = await extender.claims.update_status(SPACE, "claim", allocated(second, uid))
    stored = json.loads(third)
    assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    managers = {(each["manager"], each.get("subresource")) for each in stored["metadata"]["managedFields"]}
    assert {("dra-extender", None), ("dra-extender", "status")} <= managers
    with pytest.raises(
        ConflictError, match=r"update resourceclaims/status writes/claim: 409 Conflict: .* has been modified"
    ):
        await extender.claims.update_status(SPACE, "claim", allocated(first))
    changed = json.loads(third)
    changed["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    with pytest.raises(RequestRejectedError, match=r"422 Invalid: .*status\.allocation"):
        await extender.claims.update_status(SPACE, "claim", json.dumps(changed).encode())
    changed["status"] = {}
    released = json.loads(await extender.claims.update_status(SPACE, "claim", json.dumps(changed).encode()))
    assert "allocation" not in released.get("status", {})
    with pytest.raises(NotFoundError, match=r'404 NotFound: .*"nothing" not found'):
        await extender.claims.read(SPACE, "nothing")


async def a_claim_is_made_once_under_our_name_and_deleted_if_it_is_the_one_that_is_meant(
    _: ControlPlane, extender: KubeCluster
) -> None:
    body = _claim("made")
    stored = json.loads(await extender.claims.create(SPACE, body))
    assert {each["manager"] for each in stored["metadata"]["managedFields"]} == {"dra-extender"}
    with pytest.raises(ConflictError, match='"made" already exists'):
        await extender.claims.create(SPACE, body)
    with pytest.raises(ConflictError, match=r"the UID in the precondition \(another\) does not match"):
        await extender.claims.delete(SPACE, "made", "another")
    with pytest.raises(ConflictError, match=r"the ResourceVersion in the precondition \(1\) does not match"):
        await extender.claims.delete(SPACE, "made", stored["metadata"]["uid"], "1")
    version = stored["metadata"]["resourceVersion"]
    await extender.claims.delete(SPACE, "made", stored["metadata"]["uid"], version)
    with pytest.raises(NotFoundError):
        await extender.claims.delete(SPACE, "made", stored["metadata"]["uid"])


async def a_pod_is_told_of_its_extended_resource_claim(plane: ControlPlane, extender: KubeCluster) -> None:
    """A second telling replaces the first."""
    uid = await new_pod(plane, "told", extended={"example.com/gpu": "1"})
    for claim in ("first", "second"):
        mapping = ("main", "example.com/gpu", "container-0-request-1")
        assert await extender.pods.record_extended_claim(SPACE, "told", uid, claim, [mapping])
        stored = await plane.api.get(PODS, "told", SPACE)
        assert stored["status"]["extendedResourceClaimStatus"] == {
            "resourceClaimName": claim,
            "requestMappings": [
                {
                    "containerName": "main",
                    "resourceName": "example.com/gpu",
                    "requestName": "container-0-request-1",
                }
            ],
        }
    with pytest.raises(RequestRejectedError, match=r"metadata\.uid: .* field is immutable"):
        await extender.pods.record_extended_claim(SPACE, "told", "another", "first", [])


async def claims_are_recorded_beside_others_if_the_object_is_as_known(
    plane: ControlPlane, extender: KubeCluster
) -> None:
    """For pods and PodGroups alike; entries of others stay, and a version that is not the stored one is a conflict."""
    uid = await new_pod(plane, "recorded", claims={"a": "x", "b": "y"})
    for claims in ({"a": "first"}, {"b": "second"}):
        pod = await extender.pods.read(SPACE, "recorded")
        await extender.pods.record_claims(SPACE, "recorded", uid, pod.resource_version, claims)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await extender.pods.record_claims(SPACE, "recorded", uid, pod.resource_version, {"a": "third"})
    stored = await extender.pods.read(SPACE, "recorded")
    both = {"a": "first", "b": "second"}
    assert {each.name: each.resource_claim_name for each in stored.claim_statuses} == both

    await new_group(plane, "recorded")
    for claims in ({"a": "first"}, {"b": "second"}):
        group = await extender.pod_groups.read(SPACE, "recorded")
        await extender.pod_groups.record_claims(group, claims)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await extender.pod_groups.record_claims(group, {"a": "third"})
    group = await extender.pod_groups.read(SPACE, "recorded")
    assert {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses} == both


async def a_finalizer_is_taken_off_a_pod_group_beside_others(plane: ControlPlane, extender: KubeCluster) -> None:
    await new_group(plane, "protected")
    await plane.api.patch(POD_GROUPS, "protected", {"metadata": {"finalizers": ["a.example/x", "b.example/y"]}}, SPACE)
    for left in (["b.example/y"], None):
        group = await extender.pod_groups.read(SPACE, "protected")
        await extender.pod_groups.unprotect(group, group.metadata.finalizers[0])
        assert (await plane.api.get(POD_GROUPS, "protected", SPACE))["metadata"].get("finalizers") == left
    with pytest.raises(ConflictError, match="the object has been modified"):
        await extender.pod_groups.unprotect(group, "b.example/y")


async def a_template_is_read_and_makes_a_claim_that_the_server_takes(
    plane: ControlPlane, extender: KubeCluster
) -> None:
    template = objects.resource_claim_template("template", SPACE, objects.request("gpu", "gpu"))
    await plane.api.create(RESOURCE_CLAIM_TEMPLATES, template)
    group = await new_group(plane, "making")
    owner = Owner(extender.pod_groups.api_version, "PodGroup", SPACE, "making", group)
    body = claim_from(read_template(await extender.claim_templates.read(SPACE, "template")), owner, "gpu")
    stored = json.loads(await extender.claims.create(SPACE, body))
    assert stored["metadata"]["name"] == generated_name(owner, "gpu")
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    (reference,) = stored["metadata"]["ownerReferences"]
    assert (reference["apiVersion"], reference["kind"]) == ("scheduling.k8s.io/v1beta1", "PodGroup")
    with pytest.raises(NotFoundError, match='"nothing" not found'):
        await extender.claim_templates.read(SPACE, "nothing")


async def an_item_of_a_list_can_be_written_back_as_it_came(plane: ControlPlane, extender: KubeCluster) -> None:
    """Items of a list have no kind and no apiVersion; the server takes both from the path."""
    await new_claim(plane, "listed")
    items = await plane.api.list(RESOURCE_CLAIMS, SPACE)
    item = next(each for each in items if each["metadata"]["name"] == "listed")
    assert not {"kind", "apiVersion"} & item.keys()
    written = await extender.claims.update(SPACE, "listed", finalized(json.dumps(item).encode()))
    written = await extender.claims.update_status(SPACE, "listed", allocated(written))
    assert json.loads(written)["kind"] == "ResourceClaim"


async def a_pod_is_bound_once_and_only_the_pod_that_was_meant(plane: ControlPlane, extender: KubeCluster) -> None:
    uid = await new_pod(plane, "bound")
    with pytest.raises(ConflictError, match="UID"):
        await extender.pods.bind(SPACE, "bound", "another", "worker")
    await extender.pods.bind(SPACE, "bound", uid, "worker")
    assert (await extender.pods.read(SPACE, "bound")).node_name == "worker"
    with pytest.raises(ConflictError, match=r'409 Conflict: .*already assigned to node "worker"'):
        await extender.pods.bind(SPACE, "bound", uid, "worker")
    with pytest.raises(NotFoundError):
        await extender.pods.bind(SPACE, "missing", uid, "worker")
    gated = await new_pod(plane, "gated", schedulingGates=[{"name": "example.com/wait"}])
    with pytest.raises(ConflictError, match=r"has non-empty \.spec\.schedulingGates"):
        await extender.pods.bind(SPACE, "gated", gated, "worker")


async def a_pod_is_nominated_and_that_is_taken_back_for_the_pod_that_was_meant(
    plane: ControlPlane, extender: KubeCluster
) -> None:
    uid = await new_pod(plane, "nominated")
    await extender.pods.nominate(SPACE, "nominated", uid, "worker")
    assert (await extender.pods.read(SPACE, "nominated")).nominated_node_name == "worker"
    with pytest.raises(RequestRejectedError, match=r"metadata\.uid: .* field is immutable"):
        await extender.pods.nominate(SPACE, "nominated", "another", "other")
    await extender.pods.nominate(SPACE, "nominated", uid, "")
    assert (await extender.pods.read(SPACE, "nominated")).nominated_node_name == ""
    with pytest.raises(NotFoundError):
        await extender.pods.nominate(SPACE, "missing", uid, "worker")


async def waking_changes_the_class_each_time(plane: ControlPlane, extender: KubeCluster) -> None:
    versions = set()
    for _ in range(3):
        await extender.waker.wake()
        found = await plane.api.get(DEVICE_CLASSES, WAKE_UP_CLASS)
        assert WOKEN_AT_ANNOTATION in found["metadata"]["annotations"]
        versions.add(found["metadata"]["resourceVersion"])
    assert len(versions) == 3
    assert extender.waker.last_error is None


async def an_event_is_one_object_with_a_count_that_people_see(plane: ControlPlane, extender: KubeCluster) -> None:
    await new_pod(plane, "watched")
    pod = await extender.pods.read(SPACE, "watched")
    for _ in range(3):
        extender.events.about_pod(pod, warning=True, reason="NoDevice", message="x" * 5000)
        await extender.events.flush()
    assert extender.events.last_error is None
    found = [each for each in await plane.api.list(EVENTS, SPACE) if each.get("reportingController") == "dra-extender"]
    assert [(each["regarding"]["name"], each["series"]["count"], each["type"]) for each in found] == [
        ("watched", 3, "Warning")
    ]
    described = plane.kubectl("describe", "pod", "watched", f"--namespace={SPACE}")
    assert "NoDevice" in described
    assert "dra-extender" in described


STORIES: Final = (
    a_claim_is_finalized_allocated_and_released_under_our_name,
    a_claim_is_made_once_under_our_name_and_deleted_if_it_is_the_one_that_is_meant,
    a_pod_is_told_of_its_extended_resource_claim,
    claims_are_recorded_beside_others_if_the_object_is_as_known,
    a_finalizer_is_taken_off_a_pod_group_beside_others,
    a_template_is_read_and_makes_a_claim_that_the_server_takes,
    an_item_of_a_list_can_be_written_back_as_it_came,
    a_pod_is_bound_once_and_only_the_pod_that_was_meant,
    a_pod_is_nominated_and_that_is_taken_back_for_the_pod_that_was_meant,
    waking_changes_the_class_each_time,
    an_event_is_one_object_with_a_count_that_people_see,
)


async def test_what_is_written_is_stored_and_what_must_not_be_is_refused_in_words(
    granted: ControlPlane,
) -> None:
    """Each story has objects of its own; in the end the same calls of a server that stands still are told as an outage."""
    extender = await connected(granted, EXTENDER_USER)
    try:
        await side_by_side({story.__name__: story(granted, extender) for story in STORIES})
        await new_claim(granted, "outage")
        await granted.stop_apiserver()
        try:
            with pytest.raises(ServerUnavailableError, match="get resourceclaims writes/outage: no answer"):
                await extender.claims.read(SPACE, "outage")
        finally:
            await granted.start_apiserver()
        assert await extender.claims.read(SPACE, "outage")
    finally:
        await extender.stop()


async def follow(plane: ControlPlane, cluster: KubeCluster, plural: str) -> None:
    """Raises what stands in the way of listing a kind."""
    second = await connected(plane, cluster_user(cluster), **{plural: RecordingSink()})
    try:
        await until(lambda: second.health()[f"watch-{plural}"] is None or "403" in str(second.health()))
        if problem := second.health()[f"watch-{plural}"]:
            raise RequestRejectedError(problem)
    finally:
        await second.stop()


def cluster_user(cluster: KubeCluster) -> str:
    path = cluster._settings.kubeconfig
    assert path is not None
    return path.stem


async def attempt(plane: ControlPlane, cluster: KubeCluster, purpose: str) -> None:
    """Do what a right is for; raises Refused if it is not allowed."""
    followed = {
        "follow claims": "resourceclaims",
        "follow slices": "resourceslices",
        "follow classes": "deviceclasses",
        "follow taint rules": "devicetaintrules",
        "follow pod groups": "podgroups",
        "follow pods": "pods",
        "follow nodes": "nodes",
    }
    if purpose in followed:
        await follow(plane, cluster, followed[purpose])
        return
    name = f"{purpose.replace(' ', '-').replace(chr(39), '')}-{cluster_user(cluster).replace(':', '-')}"[:60].strip("-")
    actions: dict[str, Callable[[], Awaitable[object]]] = {
        "read a claim": lambda: claim_then(plane, name, lambda raw: cluster.claims.read(SPACE, name)),
        "make a claim": lambda: cluster.claims.create(SPACE, _claim(name)),
        "delete a claim": lambda: claim_then(
            plane, name, lambda raw: cluster.claims.delete(SPACE, name, json.loads(raw)["metadata"]["uid"])
        ),
        "write a claim": lambda: claim_then(
            plane, name, lambda raw: cluster.claims.update(SPACE, name, finalized(raw))
        ),
        "write a claim in its own spelling": lambda: respelled_claim_then(
            plane, name, lambda raw: cluster.claims.update(SPACE, name, finalized(raw))
        ),
        "write a claim's status": lambda: claim_then(
            plane, name, lambda raw: cluster.claims.update_status(SPACE, name, raw)
        ),
        "allocate a claim": lambda: claim_then(
            plane, name, lambda raw: cluster.claims.update_status(SPACE, name, allocated(raw))
        ),
        "read a template": lambda: template_then(plane, name, cluster),
        "read a pod group": lambda: group_then(plane, name, lambda group: cluster.pod_groups.read(SPACE, name)),
        "let a pod group go": lambda: group_then(
            plane, name, lambda group: cluster.pod_groups.unprotect(group, PROTECTION_FINALIZER)
        ),
        "record a group's claims": lambda: group_then(
            plane, name, lambda group: cluster.pod_groups.record_claims(group, {"a": "claim"})
        ),
        "wake": lambda: wake(cluster),
        "read a pod": lambda: pod_then(plane, name, lambda uid: cluster.pods.read(SPACE, name)),
        "bind": lambda: pod_then(plane, name, lambda uid: cluster.pods.bind(SPACE, name, uid, "worker")),
        "nominate": lambda: pod_then(plane, name, lambda uid: cluster.pods.nominate(SPACE, name, uid, "worker")),
        "record an event": lambda: record(plane, cluster, name, 1),
        "repeat an event": lambda: record(plane, cluster, name, 2),
        "read gates": lambda: gates(cluster),
    }
    await actions[purpose]()


async def respelled_claim_then(plane: ControlPlane, name: str, act: Callable[[bytes], Awaitable[object]]) -> None:
    """As `claim_then`, with white space that JSON answers of the API server do not have."""
    opaque = b'"config":[{"opaque":{"driver":"gpu.example.com","parameters":{"a": 1}}}],'
    body = json.dumps(json.loads(_claim(name)), separators=(",", ":")).encode()
    await plane.api.raw("POST", RESOURCE_CLAIMS.path(SPACE), body.replace(b'"requests":', opaque + b'"requests":'))
    await act(json.dumps(await plane.api.get(RESOURCE_CLAIMS, name, SPACE)).encode())


async def claim_then(plane: ControlPlane, name: str, act: Callable[[bytes], Awaitable[object]]) -> None:
    await act(await new_claim(plane, name))


async def pod_then(plane: ControlPlane, name: str, act: Callable[[str], Awaitable[object]]) -> None:
    await act(await new_pod(plane, name))


async def group_then(plane: ControlPlane, name: str, act: Callable[[PodGroup], Awaitable[object]]) -> None:
    await new_group(plane, name)
    stored = await plane.api.get(POD_GROUPS, name, SPACE)
    await act(read_pod_group(json.dumps(stored).encode()))


async def template_then(plane: ControlPlane, name: str, cluster: KubeCluster) -> None:
    template = objects.resource_claim_template(name, SPACE, objects.request("gpu", "gpu"))
    await plane.api.create(RESOURCE_CLAIM_TEMPLATES, template)
    await cluster.claim_templates.read(SPACE, name)


async def wake(cluster: KubeCluster) -> None:
    await cluster.waker.wake()
    if cluster.waker.last_error:
        raise RequestRejectedError(cluster.waker.last_error)


async def record(plane: ControlPlane, cluster: KubeCluster, name: str, times: int) -> None:
    uid = await new_pod(plane, name)
    for _ in range(times):
        cluster.events.about_pod(Pod(namespace=SPACE, name=name, uid=uid), warning=False, reason="Test", message="said")
        await cluster.events.flush()
    if cluster.events.last_error:
        raise RequestRejectedError(cluster.events.last_error)


async def gates(cluster: KubeCluster) -> None:
    assert cluster.facts is not None
    if Support.UNKNOWN in cluster.facts.fields.values():
        raise RequestRejectedError("403")


async def test_each_of_the_least_rights_is_needed_and_all_are_enough(granted: ControlPlane) -> None:
    await everything_is_followed(granted)
    await side_by_side({purpose: needed_and_enough(granted, purpose) for purpose in RIGHTS})


async def everything_is_followed(plane: ControlPlane) -> None:
    feeds = {plural: RecordingSink() for plural in (*WATCHED, *OPTIONAL_KINDS)}
    cluster = await connected(plane, EXTENDER_USER, **feeds)
    async with asyncio.timeout(120):
        await cluster.wait_synced()
    assert all(problem is None for problem in cluster.health().values())
    assert len(cluster.health()) == len(feeds)
    assert cluster.facts is not None
    assert Support.UNKNOWN not in cluster.facts.fields.values()
    await cluster.stop()


async def needed_and_enough(plane: ControlPlane, purpose: str) -> None:
    async def settled(user: str) -> KubeCluster:
        """Connected once the API server has noticed the user's role."""
        cluster = await connected(plane, user)
        probe = "follow pods" if purpose != "follow pods" else "follow nodes"
        async with asyncio.timeout(120):
            while True:
                try:
                    await follow(plane, cluster, {"follow pods": "pods", "follow nodes": "nodes"}[probe])
                except RequestRejectedError:
                    await asyncio.sleep(0.1)
                else:
                    return cluster

    able, unable = await settled(EXTENDER_USER), await settled(user_without(purpose))
    try:
        await attempt(plane, able, purpose)
        # A missing right to allocate comes as 422 with the word Forbidden, all others as 403.
        with pytest.raises(RequestRejectedError, match=r"403|422 Invalid: .*Forbidden: changing status\.allocation"):
            await attempt(plane, unable, purpose)
    finally:
        await able.stop()
        await unable.stop()
