"""Pods that come and go."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.chaos.cluster import choose, named_claim
from tests.chaos.patience import patiently, unless
from tests.controlplane.objects import Object, pod
from tests.controlplane.resources import PODS
from tests.e2e.scene import Scene

LOOK_SECONDS: Final = 1.0
_CONFLICT = 409
_NOT_FOUND = 404


@dataclass(slots=True)
class Life:
    """What became of one pod; times of the event loop, 0 as long as it has not come to that."""

    created: float
    bound: float = 0.0
    ended: float = 0.0
    lives: float = 0.0
    impatient: bool = False


@dataclass(slots=True)
class Load:
    """Makes pods over `seconds`, and ends each some time after it was bound; some are deleted before."""

    scene: Scene
    random: Random
    pods: int
    seconds: float
    life_seconds: float
    lives: dict[str, Life] = field(default_factory=dict)

    async def make(self) -> None:
        """Create all pods, in bursts of random size."""
        made = 0
        pause = self.seconds * 8 / self.pods
        while made < self.pods:
            burst = min(self.random.randint(1, 15), self.pods - made)
            await asyncio.gather(*(self._make(f"p{made + number}") for number in range(burst)))
            made += burst
            await asyncio.sleep(self.random.uniform(0, 2) * pause)

    async def tend(self) -> None:
        """Note which pods are bound, and end those whose time has come; until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def waiting(self) -> list[str]:
        """Pods that were neither bound nor deleted."""
        return [name for name, life in self.lives.items() if not life.bound and not life.ended]

    async def _make(self, name: str) -> None:
        kind, shares = choose(self.random), self.random.random() < 0.15
        impatient = self.random.random() < 0.05
        life = self.random.uniform(0.2, 1.8) * (2.0 if impatient else self.life_seconds)
        sources: dict[str, dict[str, str]] = {"templates": {"gpu": kind}}
        if shares:
            # Every other sharer uses the claim of the one before it.
            sources = {"claims": {"gpu": f"c{int(name[1:]) // 2}"}}
            await unless(_CONFLICT, lambda: named_claim(self.scene, sources["claims"]["gpu"], kind))
        body = pod(name, self.scene.name, cpu="10m", **sources)  # type: ignore[arg-type]
        self.lives[name] = Life(asyncio.get_running_loop().time(), lives=life, impatient=impatient)
        await unless(_CONFLICT, lambda: self.scene.api.create(PODS, body))

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for each in await patiently(lambda: self.scene.api.list(PODS, self.scene.name)):
            life = self.lives[each["metadata"]["name"]]
            if each["spec"].get("nodeName") and not life.bound:
                life.bound = now
        over = [name for name, life in self.lives.items() if not life.ended and self._over(life, now)]
        await asyncio.gather(*(self._end(name, now) for name in over))

    def _over(self, life: Life, now: float) -> bool:
        since = life.created if life.impatient else life.bound
        return since > 0 and now > since + life.lives

    async def _end(self, name: str, now: float) -> None:
        """Some pods end by themselves first, most are just deleted."""
        self.lives[name].ended = now
        if self.lives[name].bound and self.random.random() < 0.2:
            done: Object = {"status": {"phase": "Succeeded"}}
            scene = self.scene
            await unless(_NOT_FOUND, lambda: scene.api.patch(PODS, name, done, scene.name, subresource="status"))
            return
        await unless(_NOT_FOUND, lambda: self.scene.api.delete(PODS, name, self.scene.name, grace_seconds=0))
