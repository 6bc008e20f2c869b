"""A ReplicaSet of pods with devices, so that a pod that goes is made anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS, REPLICA_SETS
from tests.support.node.pod_scene import PodScene

LABEL: Final = "example.com/replicas-of"
GONE_SECONDS: Final = 120.0


def labels(name: str) -> dict[str, str]:
    """What the pods of a ReplicaSet have."""
    return {LABEL: name}


@asynccontextmanager
async def replica_set(scene: PodScene, name: str, replicas: int, template: str, **fields: Any) -> AsyncIterator[None]:
    """So many pods, each with a claim from the template; gone when the context is left.  `fields`: as of `PodScene.pod`."""
    pod = scene.body(name, template=template, restartPolicy="Always", **fields)
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": scene.name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(name)},
            "template": {"metadata": {"labels": labels(name)}, "spec": pod["spec"]},
        },
    }
    await scene.api.create(REPLICA_SETS, body)
    try:
        yield
    finally:
        await scene.api.delete(REPLICA_SETS, name, scene.name)
        await scene.api.delete_collection(PODS, scene.name)
        await scene.api.wait_for(lambda: _is_empty(scene, name), GONE_SECONDS, f"the pods of {name} are gone")


async def pods_of(scene: PodScene, name: str) -> list[Object]:
    """The pods of a ReplicaSet that are not being deleted."""
    found = await scene.api.list(PODS, scene.name, labelSelector=f"{LABEL}={name}")
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


async def _is_empty(scene: PodScene, name: str) -> bool:
    return not await scene.api.list(PODS, scene.name, labelSelector=f"{LABEL}={name}")
