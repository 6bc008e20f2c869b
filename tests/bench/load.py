"""What a scheduling run is given: a cluster, and a queue of pods that waits before anybody schedules."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from tests.bench import workload
from tests.bench.scale import Scale
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import EXTENDER_USER, ControlPlane
from tests.controlplane.extender import REPOSITORY
from tests.controlplane.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)

_AT_ONCE: Final = 40


@dataclass(frozen=True, slots=True)
class Load:
    """So many pods, and what puts them and all that they need into a control plane that is `prepared`."""

    name: str
    pods: int
    populate: Callable[[ApiClient], Awaitable[None]]


def one_device_each(nodes: int, pods: int) -> Load:
    """Pods with a claim of their own for one device of a node."""

    async def populate(api: ApiClient) -> None:
        await api.create(DEVICE_CLASSES, workload.device_class())
        await create_all(api, NODES, (workload.node(index) for index in range(nodes)))
        await create_all(api, RESOURCE_SLICES, (workload.node_slice(index) for index in range(nodes)))
        await create_all(api, RESOURCE_CLAIMS, (workload.claim(index) for index in range(pods)))
        await create_all(api, PODS, (workload.pod(index) for index in range(pods)))

    return Load(f"{nodes} nodes, {pods} pods", pods, populate)


@asynccontextmanager
async def prepared(scale: Scale, workdir: Path, *namespaces: str) -> AsyncIterator[ControlPlane]:
    """A control plane with these namespaces and that of the workload, and with the wake-up class and the rights of deploy/."""
    async with scale.plane(workdir) as cluster:
        for each in (workload.NAMESPACE, *namespaces):
            await _ensure_namespace(cluster.api, each)
        wake_up = (REPOSITORY / "deploy/base/wake-up-class.yaml").read_text("utf-8")
        await cluster.api.create(DEVICE_CLASSES, yaml.safe_load(wake_up))
        await _grant(cluster.api)
        yield cluster


async def _ensure_namespace(api: ApiClient, name: str) -> None:
    """Create a namespace, which stays on a control plane that several runs share."""
    try:
        await api.create(NAMESPACES, objects.namespace(name))
    except ApiError as refused:
        if refused.status != HTTPStatus.CONFLICT:
            raise


async def _grant(api: ApiClient) -> None:
    """Give the extender's user the rights that deploy/ gives its account."""
    rules = yaml.safe_load_all((REPOSITORY / "deploy/base/rbac.yaml").read_text("utf-8"))
    role = next(each for each in rules if each["kind"] == "ClusterRole")
    await api.create(CLUSTER_ROLES, role)
    binding = objects.role_binding("bench", role["metadata"]["name"], objects.user(EXTENDER_USER))
    await api.create(CLUSTER_ROLE_BINDINGS, binding)


async def create_all(api: ApiClient, resource: Resource, bodies: Iterable[dict[str, Any]]) -> None:
    """Create many objects, some dozens at a time."""
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            await api.create(resource, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
