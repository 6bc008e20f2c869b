"""Hours of a large cluster: pods arrive and leave, something fails now and then, and the process must not grow."""

import asyncio
import gc
import random
import resource
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final
from unittest.mock import patch

from dra_extender.model.metadata import seconds_of
from dra_extender.scheduling.claims import group_entries
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.scheduling.reclaim import controller as reclaim
from dra_extender.scheduling.requeue import waker
from dra_extender.service import server
from dra_extender.simulator.apiserver.objects import StoredKind, key_of

from tests.simulation.cluster import random_kind
from tests.simulation.course import Course, freed
from tests.simulation.environment import REAL, START, collected, simulated
from tests.simulation.invariants import left_at_rest
from tests.simulation.network import NetworkedLoop
from tests.simulation.world import LEASE, REPLICAS, Periods, World, logged, new_folder, run_until_complete

POD_SECONDS: Final = 45.0
"""A pod comes after so many seconds on average."""
LIFE_SECONDS: Final = 1_800.0
"""So long it stays on average."""
FAULT_SECONDS: Final = 2_400.0
_COMPACTION_SECONDS: Final = 300.0
"""A kube-apiserver has etcd forget after so many seconds what was written before the last such time."""
_EVENT_SECONDS: Final = 3_600.0
"""How long a kube-apiserver keeps Events."""
_HOUR: Final = 3_600.0
_AGAIN_SECONDS: Final = 10.0
_REST_SECONDS: Final = 240.0
_PERIODS: Final = Periods(lease=60, renewal=40.0, retry=10.0, count=600.0, audit=900.0)
"""Each costs as much as the placement of a pod or more; the worlds of seeds have the defaults."""
_TICKS: Final = (
    (reclaim, "_TICK_SECONDS"),
    (group_entries, "_TICK_SECONDS"),
    (waker, "_LAPSE_SECONDS"),
    (server, "_DATE_SECONDS"),
)
"""How often the service looks whether something is due; that would be most callbacks of a day."""
_TICK_SECONDS: Final = 5.0
_CONTAINERS: Final = (dict, list, set, frozenset, tuple, deque)
_MEBIBYTE: Final = 1 << 20
GROWTH: Final = 2 * _MEBIBYTE
"""Bytes by which the resident memory may grow from the middle of a soak to its end."""


LEAST_LOOKS: Final = 4
"""A soak is measured so many times or more: the first half is for warming up."""


@dataclass(slots=True)
class Look:
    """What was measured since the look before: real seconds of CPU and clock, and resident bytes at the end."""

    hours: float
    pods: int
    cpu: float
    wall: float
    resident: int

    def __str__(self) -> str:
        return (
            f"{self.hours:6.2f} h: {self.pods} pods, {self.cpu:.1f} s of CPU in {self.wall:.1f} s, "
            f"{self.resident / _MEBIBYTE:.1f} MiB resident"
        )


@dataclass(slots=True)
class Soaked:
    """How a soak went; `growing` names the attributes whose containers hold more than in the middle."""

    looks: list[Look] = field(default_factory=list)
    pods: int = 0
    writes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    growing: list[str] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """Resident bytes at the end beyond those in the middle."""
        return self.looks[-1].resident - self.looks[len(self.looks) // 2 - 1].resident

    @property
    def failed(self) -> bool:
        """Whether something is wrong, or memory has grown by more than it may."""
        return bool(self.wrong) or self.growth > GROWTH

    def lines(self) -> Iterator[str]:
        """The result in words."""
        cpu, wall = sum(each.cpu for each in self.looks), sum(each.wall for each in self.looks)
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        yield f"{self.pods} pods, {self.writes} writes; faults: {faults or 'none'}"
        yield f"{self.looks[-1].hours:.1f} hours in {cpu:.0f} s of CPU, {wall:.0f} s"
        grown = (
            f"{self.growth / _MEBIBYTE:+.1f} MiB from the middle to the end, at most {GROWTH / _MEBIBYTE:+.1f} may be"
        )
        yield f"resident memory: {grown}"
        yield from (f"  {each}" for each in self.growing if self.growth > GROWTH)
        yield from (f"WRONG: {each}" for each in self.wrong)


class Soak:
    """A world with users, faults, and the housekeeping of an API server."""

    def __init__(self, world: World, seed: int, nodes: int) -> None:
        self._world = world
        self._loop = world.loop
        self._nodes = nodes
        self._random = random.Random(f"soak {seed}")
        self._course = Course(world, nodes)
        # Nothing that runs in a process that has ended has an effect.
        self._graveyard = self._loop.process("graveyard", "192.0.2.2")
        self._graveyard.kill()
        self.soaked = Soaked()

    async def run(self, seconds: float, looks: int, report: Callable[[Look], None]) -> None:
        """Live for so many virtual seconds, and measure so many times."""
        await self._world.start()
        tasks = [self._loop.main.start(work) for work in (self._users(), self._faults(), self._housekeeping())]
        sizes: Counter[str] = Counter()
        for number in range(1, looks + 1):
            await self._look(seconds / looks)
            report(self.soaked.looks[-1])
            if number == looks // 2:
                sizes = sizes_by_owner()
            if self._world.invariants.violations:
                break
        self.soaked.growing = [f"{name}: {more} more" for name, more in (sizes_by_owner() - sizes).most_common(20)]
        for task in tasks:
            task.cancel()
        await self._rest()

    async def _look(self, seconds: float) -> None:
        """Live for so long, free what processes that have ended have left, and measure."""
        cpu, wall, pods = REAL.process_time(), REAL.perf_counter(), self.soaked.pods
        await asyncio.sleep(seconds)
        self._free_ended()
        cpu, wall = REAL.process_time() - cpu, REAL.perf_counter() - wall
        hours = self._loop.time() / _HOUR
        self.soaked.looks.append(Look(hours, self.soaked.pods - pods, cpu, wall, resident_bytes()))
        self.soaked.wrong += [f"judged otherwise in full: {each}" for each in self._world.invariants.disagreement()]

    async def _rest(self) -> None:
        end = self._loop.time() + _REST_SECONDS
        while not self._world.invariants.violations:
            await asyncio.sleep(_AGAIN_SECONDS)
            left = list(left_at_rest(self._world.store, LEASE.namespace))
            if not left or self._loop.time() > end:
                self.soaked.wrong += left
                return

    async def _users(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / POD_SECONDS))
            name, kind = f"pod-{self.soaked.pods}", random_kind(self._random)
            shared = f"common-{kind}-{self._random.randrange(4)}" if self._random.random() < 0.25 else ""
            self.soaked.pods += 1
            with suppress(ClusterError):
                self._world.users.create_pod(name, kind, shared)
            self._loop.call_later(self._random.expovariate(1 / LIFE_SECONDS), self._world.users.delete_pod, name)

    async def _faults(self) -> None:
        faults: dict[str, Callable[[], None]] = {
            "kill": lambda: self._course.kill(self._replica(), False, self._random.uniform(1.0, 20.0)),
            "lose": lambda: self._course.kill(self._replica(), True, self._random.uniform(20.0, 60.0)),
            "stop": lambda: self._course.stop(self._replica()),
            "pause": lambda: self._course.pause(self._replica(), self._random.uniform(1.0, 20.0)),
            "cut": lambda: self._course.cut(self._random.random()),
            "cut_watches": self._course.cut_watches,
            "hold_watches": lambda: self._course.hold_watches(self._random.uniform(1.0, 6.0), ""),
            "trouble": lambda: self._course.trouble("", "", "", 0.3, 10.0),
            "restart_api": lambda: self._course.restart_api(self._random.uniform(1.0, 5.0)),
            "publish": lambda: self._course.publish(f"node-{self._random.randrange(self._nodes)}", ()),
        }
        while True:
            await asyncio.sleep(self._random.expovariate(1 / FAULT_SECONDS))
            name = self._random.choice(list(faults))
            self.soaked.faults[name] += 1
            # Otherwise the resident memory is that of all processes that have ended between two looks.
            self._free_ended()
            faults[name]()

    def _free_ended(self) -> None:
        """Free what processes that have ended have left."""
        self._graveyard.context.run(_collect)

    def _replica(self) -> str:
        return self._random.choice(REPLICAS)

    async def _housekeeping(self) -> None:
        store, version = self._world.store, 0
        while True:
            await asyncio.sleep(_COMPACTION_SECONDS)
            self._world.api.history.compact(version)
            version = store.version
            oldest = START + self._loop.time() - _EVENT_SECONDS
            for event in store.peek_all(StoredKind.EVENT):
                if (seconds_of(event["metadata"]["creationTimestamp"]) or 0.0) < oldest:
                    store.delete(key_of(StoredKind.EVENT, event))


def soak(seed: int, hours: float, nodes: int, looks: int, report: Callable[[Look], None] = lambda _: None) -> Soaked:
    with freed(), new_folder() as folder:
        return _soak(folder, seed, hours, nodes, looks, report)


def _soak(folder: Path, seed: int, hours: float, nodes: int, looks: int, report: Callable[[Look], None]) -> Soaked:
    loop = NetworkedLoop(seed)
    with simulated(loop, seed), ExitStack() as stack:
        for module, name in _TICKS:
            stack.enter_context(patch.object(module, name, _TICK_SECONDS))
        world = World(loop, folder, nodes, periods=_PERIODS)
        course = Soak(world, seed, nodes)
        with logged(world.log.append, lambda: f"{loop.time():.4f} {loop.current.name}"):
            run_until_complete(loop, course.run(hours * _HOUR, looks, report))
    soaked = course.soaked
    soaked.wrong[:0] = [str(each) for each in world.invariants.violations]
    soaked.wrong += loop.problems
    soaked.writes = world.invariants.writes
    loop.abandon()
    return soaked


def resident_bytes() -> int:
    """Return the resident memory of this process; where the system does not tell, the most that it ever was."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        return int(statistics.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def sizes_by_owner() -> Counter[str]:
    """Count what is in containers by the attribute that has them, such as `History._changes`."""
    found: Counter[str] = Counter()
    for thing in gc.get_objects():
        for name, value in _attributes(thing):
            if isinstance(value, _CONTAINERS):
                found[f"{type(thing).__qualname__}.{name}"] += len(value)
    return found


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    kind = type(thing)
    if kind is type or issubclass(kind, (ModuleType, FunctionType, *_CONTAINERS)):
        return
    yield from dict(getattr(thing, "__dict__", None) or {}).items()
    for name in getattr(kind, "__slots__", ()):
        with suppress(AttributeError):
            yield name, object.__getattribute__(thing, name)


def _collect() -> None:
    with collected():
        pass
