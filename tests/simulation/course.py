"""One run of a seed: the actions happen, then the faults end, and in the end everything must be in order."""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.simulator.apiserver.objects import StoredKind
from fastapi.dependencies import models as fastapi_models

from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import Fault
from tests.simulation.environment import collected, simulated
from tests.simulation.invariants import left_at_rest
from tests.simulation.loop import Process
from tests.simulation.network import NetworkedLoop
from tests.simulation.schedule import NODES, SECONDS, Action, schedule
from tests.simulation.world import LEASE, World, logged, new_folder, run_until_complete

_REST_SECONDS: Final = 240.0
"""So long everything may take to come to rest; what kube-scheduler alone mends, after five minutes, is too late."""
_LOOK_SECONDS: Final = 10.0


@dataclass(slots=True)
class Result:
    """How a run went: what is wrong, the digest, and for those who look closer the actions and the last log lines."""

    seed: int
    digest: str = ""
    steps: int = 0
    seconds: float = 0.0
    writes: int = 0
    wrong: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Course:
    """Carries out actions in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._random = random.Random(f"course {world.loop.random.random()}")
        self._disturbed = 0.0
        self._deaf_until = 0.0
        world.api.fault = self._fault

    async def run(self, actions: Sequence[Action]) -> None:
        """Have each action happen at its time, then end what goes on and bring everything back."""
        for action in actions:
            await asyncio.sleep(action.seconds - self._loop.time())
            with suppress(ClusterError):
                getattr(self, action.name)(*action.given)
            if self._world.invariants.violations:
                return
        await asyncio.sleep(max(0.0, SECONDS - self._loop.time()))
        self._heal()

    async def rest(self) -> list[str]:
        """Wait until nothing is left undone; return what is, after a long time."""
        end = self._loop.time() + _REST_SECONDS
        while not self._world.invariants.violations:
            await asyncio.sleep(_LOOK_SECONDS)
            left = left_at_rest(self._world.store, LEASE.namespace)
            if not left or self._loop.time() > end:
                return left
        return []

    def create_pod(self, name: str, kind: str, shared: str) -> None:
        self._world.users.create_pod(name, kind, shared)

    def delete_pod(self, name: str) -> None:
        self._world.users.delete_pod(name)

    def create_hostile(self, name: str) -> None:
        self._world.users.create_hostile(name)

    def place_rival(self, name: str) -> None:
        """Have the rival place a pod."""
        if self._world.rival is not None:
            self._world.processes["rival"].start(self._world.rival.place(name))

    def publish(self, node: str, absent: tuple[str, ...]) -> None:
        if self._world.drivers is not None:
            self._world.drivers.publish(node, frozenset(absent))

    def kill(self, name: str, lost: bool, seconds: float) -> None:
        """End a process, with its host or without; another one runs after so many seconds."""
        process = self._world.processes[name]
        if lost:
            self._world.network.lose_host(process)
        else:
            process.kill()
        self._later(seconds, self._world.run, name)

    def kill_at_step(self, name: str, steps: int, seconds: float) -> None:
        self._world.processes[name].at_step(steps, lambda: self.kill(name, False, seconds))

    def stop(self, name: str) -> None:
        """Have a process end in its own way; the kubelet starts it again."""
        self._world.processes[name].signal(signal.SIGTERM)

    def pause(self, name: str, seconds: float) -> None:
        process = self._world.processes[name]
        process.paused = True
        self._later(seconds, _resume, process)

    def pause_at_step(self, name: str, steps: int, seconds: float) -> None:
        self._world.processes[name].at_step(steps, lambda: self.pause(name, seconds))

    def suspend(self, name: str, seconds: float) -> None:
        """The machine sleeps: the process pauses, and only the clock that counts such times goes on."""
        self._world.processes[name].suspended += seconds

    def jump(self, name: str, seconds: float) -> None:
        """Somebody sets the clock."""
        self._world.processes[name].wall_offset += seconds

    def cut(self, place: float) -> None:
        numbers = list(self._world.network.transports)
        if numbers:
            self._world.network.cut(numbers[int(place * len(numbers))])

    def block(self, source: str, target: str, seconds: float) -> None:
        """Nothing arrives in this direction for a while."""
        there, back = self._addresses(source, target)
        self._world.network.block(there, back, blocked=True)
        self._later(seconds, self._unblock, there, back)

    def slow(self, source: str, target: str, longest: float, seconds: float) -> None:
        link = self._world.network.link(*self._addresses(source, target))
        link.longest = longest
        link.rate = 100_000
        self._later(seconds, self._world.network.forget_link, *self._addresses(source, target))

    def restart_api(self, seconds: float) -> None:
        self._world.api.stop()
        self.kill("api-server", False, seconds)

    def compact(self) -> None:
        self._world.api.compact()
        self._world.api.cut_watches()

    def cut_watches(self) -> None:
        self._world.api.cut_watches()

    def hold_watches(self, seconds: float) -> None:
        self._world.processes["api-server"].context.run(self._world.api.pause_watches, seconds)

    def disturb(self, share: float, seconds: float) -> None:
        """Refuse, delay and lose this share of the requests and answers."""
        self._disturbed = share
        self._later(seconds, self._calm)

    def deafen(self, seconds: float) -> None:
        """Carry out what is written to claims, and tell nobody for a while: neither the writer nor those who watch."""
        self._deaf_until = self._loop.time() + seconds
        self.hold_watches(seconds)

    def _calm(self) -> None:
        self._disturbed = self._deaf_until = 0.0

    def _fault(self, request: ApiRequest) -> Fault | None:
        if request.writes and request.kind is StoredKind.CLAIM and self._loop.time() < self._deaf_until:
            return Fault(lose_answer=True)
        if self._random.random() >= self._disturbed:
            return None
        if request.verb == "watch":
            return self._random.choice((Fault(refuse=429, retry_after=1), Fault(lose_request=True)))
        return self._random.choice(
            (
                Fault(refuse=429, retry_after=1),
                Fault(refuse=503),
                Fault(refuse=500),
                Fault(delay=self._random.uniform(0.0, 12.0)),
                Fault(late=self._random.uniform(0.0, 12.0)),
                Fault(lose_answer=True),
                Fault(lose_answer=True),
                Fault(lose_request=True),
            )
        )

    def _addresses(self, source: str, target: str) -> tuple[str, str]:
        return self._world.processes[source].address, self._world.processes[target].address

    def _unblock(self, there: str, back: str) -> None:
        self._world.network.block(there, back, blocked=False)

    def _later(self, seconds: float, call: Callable[..., object], *given: object) -> None:
        self._loop.call_later(seconds, call, *given, context=self._loop.main.context)

    def _heal(self) -> None:
        self._calm()
        for process in list(self._loop.processes):
            _resume(process)
        self._world.network.heal()
        for name in list(self._world.processes):
            if name != "kube-proxy":
                self._world.run(name)
        if self._world.drivers is not None:
            for number in range(NODES):
                self._world.drivers.publish(f"node-{number}", frozenset())


def _resume(process: Process) -> None:
    process.paused = False


def run(
    seed: int,
    *,
    without: frozenset[int] = frozenset(),
    log: Callable[[str], None] | None = None,
    planted: Callable[[], Any] = nullcontext,
) -> Result:
    """Run a seed; `without` are the places of actions in its schedule that are left out.

    `log` is given every log line as it is written; `planted` makes a context in which the service lacks something.
    """
    actions = [action for place, action in enumerate(schedule(seed)) if place not in without]
    result = Result(seed, actions=actions)
    with freed(), new_folder() as folder, planted():
        _run_world(result, folder, log)
    return result


def _run_world(result: Result, folder: Path, log: Callable[[str], None] | None) -> None:
    loop = NetworkedLoop(result.seed)
    with simulated(loop, result.seed):
        world = World(loop, folder, NODES)
        with logged(log or world.log.append, lambda: f"{loop.time():.4f} {loop.current.name}"):
            run_until_complete(loop, _run(world, result.actions, result))
        _report(world, result)
    loop.abandon()


async def _run(world: World, actions: Sequence[Action], result: Result) -> None:
    course = Course(world)
    await world.start()
    await course.run(actions)
    result.wrong += await course.rest()


def _report(world: World, result: Result) -> None:
    loop = world.loop
    result.wrong[:0] = [str(each) for each in world.invariants.violations]
    result.wrong += [f"judged otherwise in full: {each}" for each in world.invariants.disagreement()]
    result.wrong += loop.problems
    result.digest, result.steps, result.seconds = loop.digest(), loop.steps, loop.time()
    result.writes = world.invariants.writes
    result.log = list(world.log)


@contextmanager
def freed() -> Iterator[None]:
    """Free at the end what the processes of a world leave, without a word in the log."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with logged(lambda _: None, str), collected():
            try:
                yield
            finally:
                forget_functions()
    finally:
        logging.disable(before)


def forget_functions() -> None:
    """Free what FastAPI keeps: every function that it was ever given."""
    for each in vars(fastapi_models).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def shrink(result: Result, **more: Any) -> tuple[Result, frozenset[int]]:
    """Leave out as many actions as possible, as long as something is wrong; return the run that is left and what it lacks."""
    count = len(schedule(result.seed))
    without: frozenset[int] = frozenset()
    size = max(1, count // 2)
    while size:
        for begin in range(0, count, size):
            part = frozenset(range(begin, min(begin + size, count))) - without
            if part:
                smaller = run(result.seed, without=without | part, **more)
                if smaller.wrong:
                    result, without = smaller, without | part
        size //= 2
    return result, without
