"""What goes wrong with whole processes and connections, one thing after the other."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from tests.chaos.patience import patiently
from tests.controlplane.resources import NODES, PODS, RESOURCE_CLAIMS
from tests.support.e2e.api_relay import ApiRelay
from tests.support.e2e.replicas import Pair, Replica

WEIGHTS: Final[Mapping[str, int]] = {
    "watches dropped": 6,
    "leader killed": 3,
    "standby killed": 1,
    "leader frozen": 2,
    "leader stopped": 1,
    "API server restarted": 1,
    "scheduler restarted": 1,
    "controllers frozen": 2,
    "node cordoned": 3,
    "leader killed and node closed": 2,
}
AWAY_SECONDS: Final = 3.0
LEASE_SECONDS: Final = 8
"""Longer than a busy machine stands still: leaders that lose the Lease for nothing else leave no time for pods."""
LEADER_SECONDS: Final = 120.0
"""How long it may take until a replica leads, while requests fail."""
CLOSED_SHARE: Final = 0.2
"""The part of the nodes that may be closed for good."""
LOOK_SECONDS: Final = 0.1
LOOKS: Final = 50


class Troubles:
    """Makes one trouble after the other; `counts` says how many of each."""

    def __init__(self, pair: Pair, relay: ApiRelay, random: Random, pause: float) -> None:
        """`pause`: seconds between two troubles, on the average."""
        self.counts: Counter[str] = Counter()
        self._pair = pair
        self._relay = relay
        self._random = random
        self._pause = pause
        self._closed: set[str] = set()
        self._makers: Mapping[str, Callable[[], Awaitable[None]]] = {
            "watches dropped": self._drop_watches,
            "leader killed": self._kill_leader,
            "standby killed": self._kill_standby,
            "leader frozen": self._freeze_leader,
            "leader stopped": self._stop_leader,
            "API server restarted": self._pair.cluster.restart_apiserver,
            "scheduler restarted": self._restart_scheduler,
            "controllers frozen": self._freeze_controllers,
            "node cordoned": self._cordon,
            "leader killed and node closed": self._close,
        }

    async def run(self, seconds: float) -> None:
        """Trouble for so long, and until each kind has come once: these come first, in random order, then chance alone decides."""
        first = [*WEIGHTS]
        self._random.shuffle(first)
        end = asyncio.get_running_loop().time() + seconds
        while first or asyncio.get_running_loop().time() < end:
            kind = first.pop() if first else self._random.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
            await self._makers[kind]()
            self.counts[kind] += 1
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._pause)

    async def _drop_watches(self) -> None:
        self._relay.drop_watches()

    async def _kill_leader(self) -> None:
        leader = await self._leader()
        leader.process.kill()
        await self._away()
        await leader.process.start(ready=None)

    async def _kill_standby(self) -> None:
        standby = self._pair.other(await self._leader())
        standby.process.kill()
        await self._away()
        await standby.process.start(ready=None)

    async def _freeze_leader(self) -> None:
        """Past the end of its Lease: it wakes up as somebody who must not write."""
        leader = await self._leader()
        leader.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE_SECONDS + self._random.uniform(0.5, 2.0))
        finally:
            leader.send(signal.SIGCONT)

    async def _stop_leader(self) -> None:
        leader = await self._leader()
        await leader.process.terminate()
        await leader.process.start(ready=None)

    async def _restart_scheduler(self) -> None:
        await self._pair.cluster.stop_scheduler()
        await self._pair.start_scheduler()

    async def _freeze_controllers(self) -> None:
        """Meanwhile no claims are made from templates, and nobody else ends the reservations of pods that are gone."""
        pid = self._pair.cluster.pids["kube-controller-manager"]
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * 2 * AWAY_SECONDS)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _cordon(self) -> None:
        """For some time a node takes no pods, not even one for which it has devices already."""
        api = self._pair.api
        names = [each["metadata"]["name"] for each in await patiently(lambda: api.list(NODES))]
        name = self._random.choice(sorted(names))
        await self._unschedulable(name, closed=True)
        await self._away()
        await self._unschedulable(name, closed=name in self._closed)

    async def _close(self) -> None:
        """A pod has its devices and is not bound; its node takes no pods any more, and who was to bind it is gone."""
        nodes = await patiently(lambda: self._pair.api.list(NODES))
        node = await self._node_in_use()
        leader = await self._leader()
        leader.process.kill()
        if node and len(self._closed) < len(nodes) * CLOSED_SHARE:
            self._closed.add(node)
            await self._unschedulable(node, closed=True)
        await leader.process.start(ready=None)

    async def _node_in_use(self) -> str:
        """A node for which a pod that is not bound has a claim allocated; the empty name if there is none for a while."""
        api = self._pair.api
        for _ in range(LOOKS):
            pods = await patiently(lambda: api.list(PODS))
            waiting = {each["metadata"]["uid"] for each in pods if not each["spec"].get("nodeName")}
            for claim in await patiently(lambda: api.list(RESOURCE_CLAIMS)):
                status = claim.get("status", {})
                if any(each["uid"] in waiting for each in status.get("reservedFor", ())):
                    return str(status["allocation"]["devices"]["results"][0]["pool"])
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    async def _leader(self) -> Replica:
        return await self._pair.leader(LEADER_SECONDS)

    async def _unschedulable(self, node: str, *, closed: bool) -> None:
        change = {"spec": {"unschedulable": True if closed else None}}
        await patiently(lambda: self._pair.api.patch(NODES, node, change))

    async def _away(self) -> None:
        await asyncio.sleep(self._random.uniform(0, AWAY_SECONDS))
