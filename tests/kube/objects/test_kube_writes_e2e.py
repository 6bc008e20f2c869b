"""Every write of the service on a real API server, by a user with the least rights, and without each one of them.

What is stored then, and what is refused, is asked of the real and of the simulated server in tests/contract.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import OPTIONAL_KINDS, KubeCluster
from dra_extender.kube.discovery import Support
from dra_extender.kube.scheduler_waker import WAKE_UP_CLASS
from dra_extender.model.claim_edits import MetadataChange, with_finalizer_and_snapshot
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PROTECTION_FINALIZER, PodGroup, read_pod_group
from dra_extender.model.resource_claim import read_claim
from dra_extender.scheduling.ports.cluster import (
    RequestRejectedError,
)

from tests.controlplane import objects
from tests.controlplane.cluster import EXTENDER_USER, ControlPlane
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import (
    DEVICE_CLASSES,
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
