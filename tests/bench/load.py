"""What a scheduling run is given: a cluster, and a queue of pods that waits before anybody schedules."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.bench import workload
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import EXTENDER_USER
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
_GROUP: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Load:
    """So many pods, and what puts them and all that they need into a cluster that `prepare` made ready."""

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


async def prepare(api: ApiClient) -> None:
    """The namespace, the wake-up class and the rights as deploy/ gives them."""
    await api.create(NAMESPACES, objects.namespace(workload.NAMESPACE))
    await api.create(DEVICE_CLASSES, yaml.safe_load((REPOSITORY / "deploy/base/wake-up-class.yaml").read_text("utf-8")))
    await grant(api)


async def grant(api: ApiClient) -> None:
    """Give the extender's user the rights that deploy/ gives its account."""
    rules = yaml.safe_load_all((REPOSITORY / "deploy/base/rbac.yaml").read_text("utf-8"))
    role = next(each for each in rules if each["kind"] == "ClusterRole")
    await api.create(CLUSTER_ROLES, role)
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": EXTENDER_USER}],
    }
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
