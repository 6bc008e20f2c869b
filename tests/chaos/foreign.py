"""Another scheduler in the cluster, which allocates devices of the same driver and knows nothing of the extender."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from dra_extender.model.resource_claim import FINALIZER

from tests.chaos.cluster import WHOLE, named_claim
from tests.chaos.patience import patiently, unless
from tests.controlplane.objects import Object, allocated, binding, consumer, on_node, pod
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.namespace_fixture import NamespaceFixture

PREFIX: Final = "foreign-"
SCHEDULER: Final = "foreign-scheduler"
AT_ONCE: Final = 6
LAG_SECONDS: Final = 1.0
"""How old its view may be when it allocates, and how long it waits before it looks again and binds."""
TRIES: Final = 30
_CONFLICT = 409
_NOT_FOUND = 404


class Foreign:
    """Takes devices that it sees free for pods of its own, and binds them if nobody else has the device a moment later."""

    def __init__(self, scene: NamespaceFixture, random: Random, life_seconds: float) -> None:
        """`life_seconds`: how long one of its pods keeps its device, on the average."""
        self.bound = 0
        self._scene = scene
        self._random = random
        self._life = life_seconds

    async def run(self, seconds: float) -> None:
        """Work for so long; the last pods stay, with their devices."""
        end = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(self._line(f"{PREFIX}{number}", end) for number in range(AT_ONCE)))

    async def _line(self, name: str, end: float) -> None:
        """One pod after the other."""
        turn = 0
        while asyncio.get_running_loop().time() < end:
            turn += 1
            await self._place(f"{name}-{turn}")
            await asyncio.sleep(self._random.uniform(0.2, 1.8) * self._life)
            if asyncio.get_running_loop().time() < end:
                await self._remove(f"{name}-{turn}")

    async def _place(self, name: str) -> None:
        scene = self._scene
        body = pod(name, scene.name, scheduler=SCHEDULER, cpu="10m", claims={"gpu": name})
        await unless(_CONFLICT, lambda: scene.api.create(PODS, body))
        await unless(_CONFLICT, lambda: named_claim(scene, name, WHOLE))
        user = consumer(name, (await self._read(PODS, name))["metadata"]["uid"])
        for _ in range(TRIES):
            free = await self._free()
            if free:
                driver, pool, device = self._random.choice(free)
                await asyncio.sleep(self._random.uniform(0, LAG_SECONDS))
                await self._write(name, {"driver": driver, "pool": pool, "device": device}, user)
                await asyncio.sleep(LAG_SECONDS)
                if await self._is_mine_alone(name):
                    await self._bind(name, pool)
                    self.bound += 1
                    return
                await self._patch(name, {"status": {"allocation": None, "reservedFor": None}}, "status")
            await asyncio.sleep(self._random.uniform(0.1, LAG_SECONDS))
        await self._remove(name)

    async def _free(self) -> list[tuple[str, str, str]]:
        """The devices that no claim has, as it sees them."""
        taken = {device for claim in await self._claims() for device in devices_of(claim)}
        slices = await patiently(lambda: self._scene.api.list(RESOURCE_SLICES))
        published = [
            (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
            for each in slices
            for device in each["spec"].get("devices", ())
            if device["name"].startswith(WHOLE)
        ]
        return sorted(set(published) - taken)

    async def _write(self, name: str, device: Object, user: Object) -> None:
        await self._patch(name, {"metadata": {"finalizers": [FINALIZER]}})
        result, here = {"request": "gpu", **device}, on_node(device["pool"])
        await self._patch(name, {"status": allocated(result, consumers=[user], nodeSelector=here)}, "status")

    async def _is_mine_alone(self, name: str) -> bool:
        claims = await self._claims()
        (mine,) = [set(devices_of(each)) for each in claims if each["metadata"]["name"] == name]
        return not any(mine & set(devices_of(each)) for each in claims if each["metadata"]["name"] != name)

    async def _bind(self, name: str, node: str) -> None:
        scene = self._scene
        body = binding(name, scene.name, node)
        await unless(_CONFLICT, lambda: scene.api.create(PODS, body, name=name, subresource="binding"))

    async def _remove(self, name: str) -> None:
        scene = self._scene
        await unless(_NOT_FOUND, lambda: scene.api.delete(PODS, name, scene.name, grace_seconds=0))
        await unless(_NOT_FOUND, lambda: scene.api.delete(RESOURCE_CLAIMS, name, scene.name))

    async def _claims(self) -> list[Object]:
        return list(await patiently(lambda: self._scene.api.list(RESOURCE_CLAIMS, self._scene.name)))

    async def _read(self, resource: Any, name: str) -> Object:
        found: Object = await patiently(lambda: self._scene.api.get(resource, name, self._scene.name))
        return found

    async def _patch(self, name: str, change: Object, subresource: str | None = None) -> None:
        scene = self._scene
        await patiently(lambda: scene.api.patch(RESOURCE_CLAIMS, name, change, scene.name, subresource=subresource))


def devices_of(claim: Object) -> Iterator[tuple[str, str, str]]:
    """The devices that a claim has whole."""
    results = ((claim.get("status", {}).get("allocation") or {}).get("devices") or {}).get("results", ())
    for each in results:
        if not each.get("shareID"):
            yield each["driver"], each["pool"], each["device"]


async def bound_twice(scene: NamespaceFixture) -> list[str]:
    """Devices that two bound pods have, at some moment: what a pod has when it is bound stays its own."""
    # Pods first: the claims of those that are bound do not change any more.
    pods = await patiently(lambda: scene.api.list(PODS, scene.name))
    bound = {each["metadata"]["uid"]: each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}
    holders: dict[tuple[str, str, str], list[str]] = {}
    for claim in await patiently(lambda: scene.api.list(RESOURCE_CLAIMS, scene.name)):
        users = [bound[each["uid"]] for each in claim.get("status", {}).get("reservedFor", ()) if each["uid"] in bound]
        for device in devices_of(claim) if users else ():
            holders.setdefault(device, []).append(f"{claim['metadata']['name']} of {', '.join(users)}")
    return [
        f"{'/'.join(device)} is bound twice: {'; '.join(each)}" for device, each in holders.items() if len(each) > 1
    ]
