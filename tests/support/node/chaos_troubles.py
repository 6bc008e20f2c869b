"""What goes wrong with extender, control plane and real nodes, one thing after the other."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from tests.controlplane.node.node import Node
from tests.support.e2e.api_relay import ApiRelay
from tests.support.node.nodes import RealNodes

WEIGHTS: Final[Mapping[str, int]] = {
    "extender killed": 4,
    "extender stopped": 1,
    "watches dropped": 2,
    "scheduler restarted": 1,
    "API server restarted": 1,
    "kubelet killed": 3,
    "kubelet restarted": 2,
    "driver killed": 2,
    "driver refuses": 3,
    "driver is slow": 1,
    "slices republished": 2,
    "node crashed": 1,
    "extender and kubelet killed": 2,
}
AWAY_SECONDS: Final = 3.0


class NodeTroubles:
    """Makes one trouble after the other; `counts` says how many of each.  In the end everything runs again."""

    def __init__(self, nodes: RealNodes, relay: ApiRelay, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._nodes = nodes
        self._world = nodes.world
        self._relay = relay
        self._random = random
        self._makers: Mapping[str, Callable[[Node], Awaitable[None]]] = {
            "extender killed": self._kill_extender,
            "extender stopped": self._stop_extender,
            "watches dropped": self._drop_watches,
            "scheduler restarted": self._restart_scheduler,
            "API server restarted": self._restart_apiserver,
            "kubelet killed": self._kill_kubelet,
            "kubelet restarted": self._restart_kubelet,
            "driver killed": self._kill_driver,
            "driver refuses": self._refuse,
            "driver is slow": self._delay,
            "slices republished": self._republish,
            "node crashed": self._crash,
            "extender and kubelet killed": self._kill_both,
        }

    async def run(self, seconds: float) -> None:
        """Trouble for so long, and until each kind has come once, in random order; then chance alone decides."""
        first = [*WEIGHTS]
        self._random.shuffle(first)
        end = asyncio.get_running_loop().time() + seconds
        while first or asyncio.get_running_loop().time() < end:
            kind = first.pop() if first else self._random.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
            await self._makers[kind](self._random.choice([*self._nodes]))
            self.counts[kind] += 1
            await asyncio.sleep(self._random.uniform(0.5, 3.0))

    async def _kill_extender(self, _: Node) -> None:
        self._world.extender.kill()
        await self._away()
        await self._world.extender.start()

    async def _stop_extender(self, _: Node) -> None:
        await self._world.extender.restart()

    async def _drop_watches(self, _: Node) -> None:
        self._relay.drop_watches()

    async def _restart_scheduler(self, _: Node) -> None:
        await self._world.cluster.stop_scheduler()
        await self._world.start_scheduler()

    async def _restart_apiserver(self, _: Node) -> None:
        await self._world.cluster.restart_apiserver()

    async def _kill_kubelet(self, node: Node) -> None:
        await node.stop_kubelet(kill=True)
        await self._away()
        await node.start_kubelet()

    async def _restart_kubelet(self, node: Node) -> None:
        await node.restart_kubelet()

    async def _kill_driver(self, node: Node) -> None:
        await node.stop_driver(kill=True)
        await self._away()
        await node.start_driver()
        await node.wait_until_published()

    async def _refuse(self, node: Node) -> None:
        node.behave(prepare_error="out of luck")
        await self._away()
        node.behave(unprepare_error="out of luck")
        await self._away()
        node.behave()

    async def _delay(self, node: Node) -> None:
        node.behave(prepare_delay=1.0)
        await self._away()
        node.behave()

    async def _republish(self, node: Node) -> None:
        """The same devices with another attribute: a new generation, and slices that come one by one."""
        number = self._random.randrange(1_000_000)
        devices = [
            {**each, "attributes": {**each["attributes"], "republished": {"int": number}}}
            for each in node.options.devices
        ]
        await node.publish(devices, node.options.counter_sets)

    async def _crash(self, node: Node) -> None:
        await node.crash()
        await self._away()
        await node.start_again()

    async def _kill_both(self, node: Node) -> None:
        self._world.extender.kill()
        await node.stop_kubelet(kill=True)
        await self._away()
        await node.start_kubelet()
        await self._world.extender.start()

    async def _away(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, AWAY_SECONDS))
