"""Pods that come and go on real nodes while things fail."""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random
from typing import Any, Final

import aiohttp

from tests.chaos.patience import patiently, unless
from tests.controlplane import objects
from tests.controlplane.apierror import ApiError
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.node.injected import injected
from tests.support.node.pod_scene import PodScene

KINDS: Final = ("whole", "mig", "vgpu", "shared")
SHARED: Final = "shared-0"
LOOK_SECONDS: Final = 1.0
LIFE_SECONDS: Final = 12.0
"""How long a pod runs, on the average, before it is deleted."""
NOT_STARTED_SECONDS: Final = 60.0
"""A container that a kubelet created so long ago is not started any more."""
COMPLETES: Final = 0.2
JOINS: Final = 0.2
OF_A_CLAIM: Final = 3
"""Pods that use one claim."""
_ENDED: Final = ("Succeeded", "Failed")


def node_options() -> NodeOptions:
    """Whole GPUs, one that is cut as MIG or as vGPU, and one whose capacity is shared."""
    whole = [objects.device(f"whole-{index}", attributes={"type": "whole"}) for index in range(3)]
    shared = objects.device(
        SHARED, attributes={"type": "shared"}, capacity={"memory": "10Gi"}, allowMultipleAllocations=True
    )
    return NodeOptions(devices=[*whole, *mig_or_vgpu(), shared], counter_sets=[gpu()])


@dataclass(slots=True)
class PodLife:
    """What became of a pod; times of the event loop, 0 as long as it has not come to that."""

    lives: float
    bound: float = 0.0
    ran: float = 0.0
    over: float = 0.0
    compared: bool = False


@dataclass(slots=True)
class PodLoad:
    """Makes pods until told to end, and deletes each, with its grace, some time after it was seen to run or to end.

    `wrong` says which containers had other devices than their pod's allocation.
    """

    scene: PodScene
    random: Random
    lives: dict[str, PodLife] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    async def furnish(self) -> None:
        """A template for each kind of device."""
        for kind in KINDS:
            template = objects.resource_claim_template(kind, self.scene.name, self._request(kind))
            await self.scene.api.create(RESOURCE_CLAIM_TEMPLATES, template)

    async def make(self, seconds: float) -> None:
        """Create pods for so long, in bursts of random size."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.gather(*(self._make(len(self.lives) + number) for number in range(self.random.randint(1, 4))))
            await asyncio.sleep(self.random.uniform(0.5, 3.0))

    async def tend(self) -> None:
        """Note what runs, compare its devices with its allocation, and delete what has run long enough; until cancelled."""
        while True:
            pods = {each["metadata"]["name"]: each for each in await patiently(self._pods)}
            await asyncio.gather(*(self._look(name, pods.get(name)) for name in self.lives))
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def waiting(self) -> list[str]:
        """The pods that have not run."""
        return [name for name, life in self.lives.items() if not life.ran]

    @property
    def living(self) -> list[str]:
        """The pods that are not gone."""
        return [name for name, life in self.lives.items() if not life.over]

    async def _pods(self) -> list[Object]:
        return await self.scene.api.list(PODS, self.scene.name)

    async def _make(self, number: int) -> None:
        name, kind = f"p{number}", self.random.choice(KINDS)
        self.lives[name] = PodLife(self.random.uniform(0.2, 1.8) * LIFE_SECONDS)
        source: dict[str, Any] = {"template": kind}
        if self.random.random() < JOINS:
            source = {"claim": f"together-{number // OF_A_CLAIM}"}
            claim = objects.resource_claim(source["claim"], self.scene.name, self._request(kind))
            await unless(HTTPStatus.CONFLICT, lambda: self.scene.api.create(RESOURCE_CLAIMS, claim))
        commands = ("env", "exit", "0") if self.random.random() < COMPLETES else ("env",)
        await unless(HTTPStatus.CONFLICT, lambda: self.scene.pod(name, commands=commands, **source))

    async def _look(self, name: str, pod: Object | None) -> None:
        life, now = self.lives[name], asyncio.get_running_loop().time()
        if pod is None:
            life.over = life.over or (now if life.ran else 0.0)
            return
        phase = pod["status"].get("phase")
        if not life.ran and (phase in _ENDED or (phase == "Running" and _containers_run(pod))):
            life.ran = now
        life.bound = life.bound or (now if pod["spec"].get("nodeName") else 0.0)
        if not life.ran and life.bound and now > life.bound + NOT_STARTED_SECONDS and await self._is_forgotten(name):
            life.ran = now
        if life.ran and not life.compared and phase == "Running":
            await self._compare(name, life)
        if life.ran and now > life.ran + life.lives and "deletionTimestamp" not in pod["metadata"]:
            await unless(HTTPStatus.NOT_FOUND, lambda: self.scene.delete_pod(name))

    async def _is_forgotten(self, name: str) -> bool:
        """Whether a kubelet has created the container and not started it: it does not go on with it after a crash of the node."""
        reasons = {each.get("reason") for each in await patiently(lambda: self.scene.events(name))}
        return "Created" in reasons and "Started" not in reasons

    async def _compare(self, name: str, life: PodLife) -> None:
        """Compare the variables in the container with the allocation, unless a kubelet or the API server is away."""
        try:
            text = await self.scene.logs(name)
            expected = await self.scene.expected(name)
            pod = await self.scene.read(name)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, KeyError):
            return
        # A claim keeps its allocation as long as a pod that uses it runs.
        if "PATH=" in text and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            life.compared = True
            if injected(text) != expected or not expected:
                self.wrong.append(f"pod {name} has {injected(text)} in its container and {expected} allocated")

    def _request(self, kind: str) -> Object:
        fields: dict[str, Any] = {"capacity": {"requests": {"memory": "2Gi"}}} if kind == "shared" else {}
        return self.scene.request(f'{self.scene.attribute("type")} == "{kind}"', **fields)


def _containers_run(pod: Object) -> bool:
    return all("running" in each["state"] for each in pod["status"].get("containerStatuses", ()))
