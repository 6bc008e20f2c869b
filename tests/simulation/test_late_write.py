"""A write that a leader has handed to its connection may reach the API server after another replica leads."""

import asyncio
from pathlib import Path

import pytest

from tests.simulation.cluster import WHOLE
from tests.simulation.environment import simulated
from tests.simulation.loop import Process
from tests.simulation.network import NetworkedLoop, SimulatedTransport
from tests.simulation.world import REPLICAS, World, logged, run_until_complete


class LateAllocation:
    """A node with one device; the write that allocates it to claim `a` is kept back, and so is all that the leader sends then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent = world.network.on_send
        self._leader: Process | None = None
        self._begun = asyncio.Event()
        world.network.on_send = self._send

    async def begin(self) -> None:
        """Returns when the write is on its way."""
        await self._world.start()
        await asyncio.sleep(5)
        assert self._world.drivers is not None
        self._world.drivers.publish("node-0", frozenset({"whole-1"}))
        await asyncio.sleep(5)
        self._world.users.create_pod("a", WHOLE, "a")
        await self._begun.wait()

    def end(self) -> None:
        self._block(blocked=False)

    def _send(self, transport: SimulatedTransport, data: bytes) -> None:
        is_write = data.startswith(b"PUT") and b"/resourceclaims/a/status" in data.partition(b"\r\n")[0]
        if is_write and self._leader is None and transport.process.name in REPLICAS:
            self._leader = transport.process
            self._begun.set()
            self._block(blocked=True)
        self._sent(transport, data)

    def _block(self, *, blocked: bool) -> None:
        assert self._leader is not None
        self._world.network.block(self._leader.address, self._world.processes["api-server"].address, blocked=blocked)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_allocation_of_a_leader_that_lost_its_lease_does_not_take_what_its_successor_gave(
    tmp_path: Path, seed: int, *, waits: bool
) -> None:
    """`waits`: the pod of the late allocation waits, too, when it arrives; else it is gone."""
    loop = NetworkedLoop(seed)
    with simulated(loop, seed), logged(lambda _: None, str):
        world = World(loop, tmp_path, 1)
        late = LateAllocation(world)

        async def work() -> None:
            await late.begin()
            if not waits:
                world.users.delete_pod("a")
            await asyncio.sleep(14)
            world.users.create_pod("b", WHOLE, "b")
            await asyncio.sleep(20)
            assert len(world.pending()) <= int(waits)
            late.end()
            await asyncio.sleep(60)

        run_until_complete(loop, work())
        assert world.invariants.violations == []
