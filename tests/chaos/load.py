"""Pods that come and go."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.chaos.cluster import EXTENDED, choose, named_claim
from tests.chaos.patience import patiently, unless
from tests.controlplane.objects import Object, pod, pod_group
from tests.controlplane.resources import POD_GROUPS, PODS
from tests.support.e2e.namespace_fixture import NamespaceFixture

LOOK_SECONDS: Final = 1.0
SHARERS: Final = 0.15
EXTENDERS: Final = 0.06
GANGS: Final = 0.06
_CONFLICT = 409
_NOT_FOUND = 404


@dataclass(slots=True)
class Life:
    """What became of one pod; times of the event loop, 0 as long as it has not come to that.

    Of a gang of two none ends before its `partner` is bound.
    """

    created: float
    bound: float = 0.0
    ended: float = 0.0
    lives: float = 0.0
    impatient: bool = False
    partner: str = ""


@dataclass(slots=True)
class Load:
    """Makes pods over `seconds`, and ends each some time after it was bound; some are deleted before."""

    scene: NamespaceFixture
    random: Random
    pods: int
    seconds: float
    life_seconds: float
    lives: dict[str, Life] = field(default_factory=dict)
    pairs: set[int] = field(default_factory=set)

    async def make(self) -> None:
        """Create all pods, in bursts of random size."""
        made = 0
        self.pairs = {number for number in range(self.pods // 2) if self.random.random() < GANGS}
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
        number, dice = int(name[1:]), self.random.random()
        impatient = self.random.random() < 0.05 and number // 2 not in self.pairs
        life = self.random.uniform(0.2, 1.8) * (2.0 if impatient else self.life_seconds)
        self.lives[name] = made = Life(asyncio.get_running_loop().time(), lives=life, impatient=impatient)
        fields: dict[str, Any]
        if number // 2 in self.pairs:
            made.partner = f"p{number ^ 1}"
            fields = await self._of_gang(number // 2)
        elif dice < SHARERS:
            # Every other sharer uses the claim of the one before it.
            fields = {"claims": {"gpu": f"c{number // 2}"}}
            await unless(_CONFLICT, lambda: named_claim(self.scene, f"c{number // 2}", choose(self.random)))
        elif dice < SHARERS + EXTENDERS:
            fields = {"extended": {EXTENDED: "1"}}
        else:
            fields = {"templates": {"gpu": choose(self.random)}}
        body = pod(name, self.scene.name, cpu="10m", **fields)
        await unless(_CONFLICT, lambda: self.scene.api.create(PODS, body))

    async def _of_gang(self, pair: int) -> dict[str, Any]:
        """Members that start together; of every other gang both use the claim of the group, else each has its own."""
        group = f"g{pair}"
        claims = {"gpu": f"c{pair}"} if pair % 2 else {}
        if claims:
            await unless(_CONFLICT, lambda: named_claim(self.scene, f"c{pair}", choose(self.random)))
        body = pod_group(group, self.scene.name, min_count=2, claims=claims)
        await unless(_CONFLICT, lambda: self.scene.api.create(POD_GROUPS, body))
        own: dict[str, Any] = {"claims": claims} if claims else {"templates": {"gpu": choose(self.random)}}
        return {"schedulingGroup": {"podGroupName": group}, **own}

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for each in await patiently(lambda: self.scene.api.list(PODS, self.scene.name)):
            life = self.lives.get(each["metadata"]["name"])
            if life is not None and each["spec"].get("nodeName") and not life.bound:
                life.bound = now
        over = [name for name, life in self.lives.items() if not life.ended and self._over(life, now)]
        await asyncio.gather(*(self._end(name, now) for name in over))

    def _over(self, life: Life, now: float) -> bool:
        if life.partner and (life.partner not in self.lives or not self.lives[life.partner].bound):
            return False
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
