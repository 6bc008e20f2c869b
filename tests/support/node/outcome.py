"""What pods have come to, in words: which devices they have, whether they wait or have ended."""

import re
from collections.abc import Iterable
from typing import Final

from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS
from tests.support.node.pod_scene import PodScene

_VALUE: Final = re.compile(r"(?P<device>[^#!]+)(?:#(?P<share>[^!]+))?(?P<admin>!admin)?")


class Names:
    """Letters for devices, and numbers for shares, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._devices: list[str] = []
        self._shares: list[str] = []

    def of(self, value: str) -> str:
        """The short name of a device that a container was told: A, A#1, or `A as admin`."""
        found = _VALUE.fullmatch(value)
        assert found is not None, value
        letter = chr(ord("A") + _place(self._devices, found["device"]))
        share = f"#{_place(self._shares, found['share']) + 1}" if found["share"] else ""
        return f"{letter}{share}{' as admin' if found['admin'] else ''}"


def _place(known: list[str], each: str) -> int:
    if each not in known:
        known.append(each)
    return known.index(each)


async def outcome(scene: PodScene, names: Names) -> str:
    """What all pods of the scene have come to, in the order of their names: `a has A and A; b waits`.

    A pod `has` the devices in the environments of its containers, joined by `and`.  It `waits` when its scheduler has said that no
    node fits, and `does not start` when the kubelet has said that its devices cannot be prepared.  `is on its way`: none of these.
    """
    pods = sorted(await scene.api.list(PODS, scene.name), key=lambda pod: str(pod["metadata"]["name"]))
    return "; ".join([f"{pod['metadata']['name']} {await _of_pod(scene, pod, names)}" for pod in pods])


async def _of_pod(scene: PodScene, pod: Object, names: Names) -> str:
    name, status = pod["metadata"]["name"], pod["status"]
    if status.get("phase") in ("Succeeded", "Failed"):
        return "has ended"
    running = [each for each in status.get("containerStatuses", ()) if "running" in each["state"]]
    if len(running) == len(pod["spec"]["containers"]) and "deletionTimestamp" not in pod["metadata"]:
        found = [await scene.environment(name, each["name"]) for each in running]
        return f"has {' and '.join(_joined(each.values(), names) for each in found)}"
    if not pod["spec"].get("nodeName"):
        conditions = {each["type"]: each.get("reason") for each in status.get("conditions", ())}
        return "waits" if conditions.get("PodScheduled") == "Unschedulable" else "is on its way"
    failed = [each for each in await scene.events(name) if each.get("reason") == "FailedPrepareDynamicResources"]
    return "does not start" if failed else "is on its way"


def _joined(values: Iterable[str], names: Names) -> str:
    return " ".join(sorted(names.of(each) for each in sorted(values)))
