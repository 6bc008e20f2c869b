"""The pod of an installed Deployment, run on this machine: its containers as processes, with their account and settings."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import Object
from tests.controlplane.ports import free_ports
from tests.controlplane.resources import Resource

DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
CONFIG_MAPS: Final = Resource("v1", "configmaps")


@asynccontextmanager
async def installed_pod(
    cluster: ControlPlane, workdir: Path, namespace: str, deployment: str, name: str
) -> AsyncIterator[ExtenderProcess]:
    """The extender of the pod, ready, and beside it its kube-scheduler; both have ended when the context is left.

    Every file of a ConfigMap that the pod mounts is at hand; ports are free ones instead of those in the template.
    """
    spec = (await cluster.api.get(DEPLOYMENTS, deployment, namespace))["spec"]["template"]["spec"]
    folder = workdir / name
    folder.mkdir()
    mounted = await _mounted(cluster, spec, namespace, folder)
    account = shutil.copy(cluster.service_account_kubeconfig(namespace, spec["serviceAccountName"]), folder)
    (container,) = [each for each in spec["initContainers"] if each["name"] == "extender"]
    environment = {each["name"]: _here(each.get("value", ""), mounted) for each in container["env"]}
    if "DRA_EXTENDER_PROBES__PORT" in environment:
        environment |= {"DRA_EXTENDER_PROBES__PORT": str(free_ports(1)[0]), "DRA_EXTENDER_PROBES__HOST": "127.0.0.1"}
    extender = ExtenderProcess(folder, Path(account), environment={**environment, **_of_the_pod(namespace)}, name=name)
    await extender.start(ready="/readyz?exclude=leader")
    try:
        (scheduler,) = [each for each in spec["containers"] if each["name"] == "kube-scheduler"]
        (path,) = [each.removeprefix("--config=") for each in scheduler["args"] if each.startswith("--config=")]
        configuration = _read(_here(path, mounted))
        for stanza in configuration["extenders"]:
            stanza["urlPrefix"] = extender.url
        await cluster.start_scheduler(configuration, f"{name}-scheduler", kubeconfig=Path(account))
        try:
            await extender.wait_ready()
            yield extender
        finally:
            await cluster.stop_scheduler(f"{name}-scheduler")
    finally:
        await extender.terminate()


def _read(path: str) -> Object:
    found: Object = yaml.safe_load(Path(path).read_text())
    return found


def _of_the_pod(namespace: str) -> dict[str, str]:
    """What a pod knows by being one."""
    return {
        "DRA_EXTENDER_LEADER_ELECTION__NAMESPACE": namespace,
        "DRA_EXTENDER_LEADER_ELECTION__HOST": os.uname().nodename,
    }


async def _mounted(cluster: ControlPlane, spec: Object, namespace: str, folder: Path) -> dict[str, Path]:
    """The folders that the containers see by their paths there; an optional ConfigMap that does not exist is an empty one."""
    maps = {each["metadata"]["name"]: each for each in await cluster.api.list(CONFIG_MAPS, namespace)}
    files: dict[str, dict[str, Any]] = {
        volume["name"]: maps.get(volume["configMap"]["name"], {}).get("data", {})
        for volume in spec.get("volumes", ())
        if "configMap" in volume
    }
    mounted = {}
    for container in (*spec["initContainers"], *spec["containers"]):
        for mount in container.get("volumeMounts", ()):
            if mount["name"] in files:
                target = folder / mount["name"]
                target.mkdir(exist_ok=True)
                for file, text in files[mount["name"]].items():
                    (target / file).write_text(text)
                mounted[mount["mountPath"]] = target
    return mounted


def _here(path: str, mounted: dict[str, Path]) -> str:
    for inside, outside in mounted.items():
        if path.startswith(f"{inside}/"):
            return str(outside / path.removeprefix(f"{inside}/"))
    return path
