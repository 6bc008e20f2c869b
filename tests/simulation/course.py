"""One run of a seed: the actions happen, then the faults end, and in the end everything must be in order."""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from dra_extender.kube.leader_election import held_on
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part

from tests.controlplane import objects
from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import Fault
from tests.simulation.cluster import NAMESPACE
from tests.simulation.environment import collected, simulated
from tests.simulation.invariants import left_at_rest
from tests.simulation.network import NetworkedLoop
from tests.simulation.schedule import IT, SECONDS, Action, Setting, schedule, setting
from tests.simulation.world import LEASE, REPLICAS, World, logged, new_folder, run_until_complete
from tests.support.background import background_failures

_REST_SECONDS: Final = 240.0
"""So long everything may take to come to rest; what kube-scheduler alone mends, after five minutes, is too late."""
_LOOK_SECONDS: Final = 10.0


_ABOUT: Final = ("touch", "attach", "delete_called")
"""Aimed faults that are about the object whose moment it is."""
_AT_ONCE: Final = ("pause", "suspend")
"""Aimed faults that happen before anything else does."""


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

    def __init__(self, world: World, nodes: int) -> None:
        self._world = world
        self._loop = world.loop
        self._random = random.Random(f"course {world.loop.random.random()}")
        self._nodes = [f"node-{number}" for number in range(nodes)]
        self._troubles: dict[int, _Trouble] = {}
        self._tainted = False
        self._withdrawn: dict[str, None] = {}
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
        # What was withdrawn is back after everything else, in one world at once and in another long after.
        await asyncio.sleep(self._random.choice((0.0, 15.0)) if self._withdrawn else 0.0)
        for node in self._withdrawn:
            self.publish(node, ())

    async def rest(self) -> list[str]:
        """Wait until nothing is left undone; return what is, after a long time."""
        end = self._loop.time() + _REST_SECONDS
        while not self._world.invariants.violations:
            await asyncio.sleep(_LOOK_SECONDS)
            with self._world.honest():
                left = left_at_rest(self._world.store, LEASE.namespace)
                if self._loop.time() > end:
                    return list(left)
                if next(left, None) is None:
                    return []
        return []

    def create_pod(self, name: str, kind: str, shared: str, more: str) -> None:
        self._world.users.create_pod(name, kind, shared, more)

    def create_gang(self, name: str, size: int, shared: str) -> None:
        self._world.users.create_gang(name, size, shared)

    def create_member(self, gang: str, name: str, kind: str) -> None:
        self._world.users.create_member(gang, name, kind)

    def create_claim(self, name: str, kind: str) -> None:
        self._world.users.create_claim(name, kind)

    def delete_claim(self, name: str) -> None:
        self._world.users.delete_claim(name)

    def delete_pod(self, name: str) -> None:
        self._world.users.delete_pod(name)

    def create_hostile(self, name: str) -> None:
        self._world.users.create_hostile(name)

    def place_rival(self, name: str, shared: str) -> None:
        """Have the rival place a pod with a claim of its own, or with this one that others use, too."""
        if self._world.rival is not None:
            self._world.processes["rival"].start(self._world.rival.place(name, shared))

    def publish(self, node: str, absent: tuple[str, ...]) -> None:
        """Publish the slices of a node without these devices."""
        if absent:
            self._withdrawn[node] = None
        if self._world.drivers is not None:
            self._world.drivers.publish(node, frozenset(absent))

    def fail_device(self) -> None:
        if self._world.drivers is not None:
            self._world.drivers.fail(self._random)

    def cordon(self, node: str) -> None:
        self._edit_node(node, lambda thing: thing["spec"].update(unschedulable=True))

    def taint(self, node: str) -> None:
        """Keep pods away that do not tolerate it."""
        taint = {"key": "example.com/maintenance", "effect": "NoSchedule"}
        self._edit_node(node, lambda thing: thing["spec"].update(taints=[taint]))

    def taint_all(self) -> None:
        """Taint every node for good."""
        self._tainted = True
        for node in self._nodes:
            self.taint(node)

    def uncordon(self, node: str) -> None:
        self._edit_node(node, lambda thing: thing["spec"].clear())

    def remove_node(self, node: str) -> None:
        self._world.store.delete(Key(StoredKind.NODE, "", node))

    def add_node(self, node: str) -> None:
        """Have the node again, with its devices."""
        if self._world.store.find(Key(StoredKind.NODE, "", node)) is None:
            self._world.store.create(StoredKind.NODE, objects.node(node))
            self.publish(node, ())

    def _edit_node(self, node: str, edit: Callable[[Json], None]) -> None:
        with suppress(ClusterError):
            self._world.store.edit_unchecked(Key(StoredKind.NODE, "", node), lambda thing: _edit_spec(thing, edit))

    def aim(self, moment: str, count: int, faults: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Have faults happen at the `count`th of such moments."""

        def happen(process: str, about: str) -> None:
            for name, given in faults:
                if name in _ABOUT:
                    call = partial(getattr(self, name), about)
                else:
                    call = partial(getattr(self, name), *(process if each == IT else each for each in given))
                if name in _AT_ONCE:
                    call()
                else:
                    self._loop.call_soon(_suppressed(call), context=self._loop.main.context)

        self._world.moments.arm(moment, count, happen)

    def touch(self, name: str) -> None:
        """Somebody labels the claim that the request is about, if it is about one."""
        self._world.users.touch_claim(name)

    def attach(self, name: str) -> None:
        """The driver reports the devices of the claim that the request is about."""
        if self._world.drivers is not None:
            self._world.drivers.attach(Key(StoredKind.CLAIM, NAMESPACE, name))

    def delete_called(self, name: str) -> None:
        """Somebody deletes the pod that the call is about."""
        self._world.users.delete_pod(name)

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

    def hand_over(self, seconds: float, later: float) -> None:
        """Hold back what is written to claims for a while, and end the leader meanwhile."""
        self.hold_watches(seconds, "resourceclaims")
        self._later(later, self._end_leader)

    def _end_leader(self) -> None:
        for name in self._leaders():
            self.stop(name)

    def lose_leader(self, seconds: float) -> None:
        """End the leader's process at once; another one runs after so many seconds."""
        for name in self._leaders():
            self.kill(name, False, seconds)

    def _leaders(self) -> list[str]:
        """The replica that has the lease, if one has."""
        lease = self._world.store.find(LEASE)
        holder = str(part(lease or {}, "spec").get("holderIdentity") or "")
        return [name for name in REPLICAS if held_on(holder, name)]

    def stop(self, name: str) -> None:
        """Have a process end in its own way; the kubelet starts it again."""
        self._world.processes[name].signal(signal.SIGTERM)

    def pause(self, name: str, seconds: float) -> None:
        if name in (*REPLICAS, "api-server"):
            self._slow(seconds)
        process = self._world.processes[name]
        process.pause()
        self._later(seconds, process.resume)

    def pause_at_step(self, name: str, steps: int, seconds: float) -> None:
        self._world.processes[name].at_step(steps, lambda: self.pause(name, seconds))

    def suspend(self, name: str, seconds: float) -> None:
        """The machine sleeps: the process pauses, and only the clock that counts such times goes on."""
        self._slow(seconds)
        process = self._world.processes[name]
        process.pause(machine=True)
        self._later(seconds, process.resume)

    def jump(self, name: str, seconds: float) -> None:
        """Somebody sets the clock."""
        self._world.processes[name].wall_offset += seconds

    def cut(self, place: float) -> None:
        numbers = list(self._world.network.transports)
        if numbers:
            self._world.network.cut(numbers[int(place * len(numbers))])

    def block(self, source: str, target: str, seconds: float) -> None:
        """Nothing arrives in this direction for a while."""
        self._slow(seconds)
        there, back = self._addresses(source, target)
        self._world.network.block(there, back, blocked=True)
        self._later(seconds, self._unblock, there, back)

    def slow(self, source: str, target: str, longest: float, seconds: float) -> None:
        self._slow(seconds)
        link = self._world.network.link(*self._addresses(source, target))
        link.longest = longest
        link.rate = 100_000
        self._later(seconds, self._world.network.forget_link, *self._addresses(source, target))

    def restart_api(self, seconds: float) -> None:
        self._world.api.stop()
        self.kill("api-server", False, seconds)

    def compact(self, seconds: float) -> None:
        """End watches, let none begin for a while, and then forget what has happened since."""
        self._begin(_Trouble("", "watch", "lost", 1.0), seconds)
        self._world.api.cut_watches()
        self._later(seconds, self._world.api.compact)

    def cut_watches(self) -> None:
        self._world.api.cut_watches()

    def hold_watches(self, seconds: float, kind: str) -> None:
        watched = StoredKind(kind) if kind else None
        self._world.processes["api-server"].context.run(self._world.api.pause_watches, seconds, watched)

    def trouble(self, kind: str, verbs: str, outcome: str, share: float, seconds: float) -> None:
        """Refuse, delay or lose this share of the requests for a while, or their answers."""
        self._slow(seconds)
        self._begin(_Trouble(kind, verbs, outcome, share), seconds)

    def deafen(self, seconds: float, verbs: str = "") -> None:
        """Carry out what is written to claims, and tell nobody for a while: neither the writer nor those who watch or read."""
        self._slow(seconds)
        unanswered = verbs or self._random.choice(("write", "status"))
        self._begin(_Trouble("resourceclaims", unanswered, "unanswered", 1.0), seconds)
        self._begin(_Trouble("resourceclaims", "read", "refused", 1.0), seconds)
        self.hold_watches(seconds + self._random.choice((0.0, 4.0)), "resourceclaims")

    def _slow(self, seconds: float) -> None:
        self._world.knowledge.slow(seconds)

    def _begin(self, trouble: "_Trouble", seconds: float) -> None:
        number = self._loop.number()
        self._troubles[number] = trouble
        self._later(seconds, self._troubles.pop, number, None)

    def _fault(self, request: ApiRequest) -> Fault | None:
        for trouble in self._troubles.values():
            if trouble.concerns(request) and self._random.random() < trouble.share:
                return self._random.choice(trouble.outcomes(request.verb, self._random))
        return None

    def _addresses(self, source: str, target: str) -> tuple[str, str]:
        return self._world.processes[source].address, self._world.processes[target].address

    def _unblock(self, there: str, back: str) -> None:
        self._world.network.block(there, back, blocked=False)

    def _later(self, seconds: float, call: Callable[..., object], *given: object) -> None:
        self._loop.call_later(seconds, call, *given, context=self._loop.main.context)

    def _heal(self) -> None:
        self._troubles.clear()
        self._world.moments.disarm()
        for process in list(self._loop.processes):
            process.resume()
        self._world.network.heal()
        for name in list(self._world.processes):
            if name != "kube-proxy":
                self._world.run(name)
        for node in self._nodes:
            self.add_node(node)
            self.uncordon(node)
            if self._tainted:
                self.taint(node)


class _Trouble(NamedTuple):
    """What goes wrong with this share of the requests of a kind; an empty text means all."""

    kind: str
    verbs: str
    outcome: str
    share: float

    def concerns(self, request: ApiRequest) -> bool:
        """Whether it may happen to this request."""
        does = "write" if request.writes else "watch" if request.verb == "watch" else "read"
        return self.kind in ("", request.plural) and self.verbs in ("", does, request.subresource or "")

    def outcomes(self, verb: str, chance: random.Random) -> list[Fault]:
        """What may happen to it."""
        found = {
            "refused": [Fault(refuse=429, retry_after=1), Fault(refuse=503), Fault(refuse=500)],
            "lost": [Fault(lose_request=True)],
        }
        if verb != "watch":
            found["slow"] = [Fault(delay=chance.uniform(0.0, 12.0)), Fault(late=chance.uniform(0.0, 12.0))]
            found["unanswered"] = [Fault(lose_answer=True)]
        return found.get(self.outcome) or [each for several in found.values() for each in several]


def _edit_spec(thing: Json, edit: Callable[[Json], None]) -> None:
    thing.setdefault("spec", {})
    edit(thing)


def _suppressed(call: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with suppress(ClusterError):
            call()

    return run


def run(
    seed: int,
    *,
    without: frozenset[int] = frozenset(),
    log: Callable[[str], None] | None = None,
    planted: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Result:
    """Run a seed; `without` are the places of actions in its schedule that are left out.

    `log` is given every log line as it is written; `planted` makes a context in which the service lacks something.
    """
    actions = [action for place, action in enumerate(schedule(seed)) if place not in without]
    result = Result(seed, actions=actions)
    fault = ExitStack()

    @contextmanager
    def honest() -> Iterator[None]:
        fault.close()
        try:
            yield
        finally:
            fault.enter_context(planted())

    with freed(), new_folder() as folder, fault:
        fault.enter_context(planted())
        _run_world(result, setting(seed), folder, log, honest)
    return result


def _run_world(
    result: Result,
    given: Setting,
    folder: Path,
    log: Callable[[str], None] | None,
    honest: Callable[[], AbstractContextManager[None]],
) -> None:
    loop = NetworkedLoop(result.seed)
    with simulated(loop, result.seed):
        world = World(
            loop,
            folder,
            given.nodes,
            lacking=given.lacking,
            completing=given.completing,
            lag=given.lag,
            honest=honest,
        )
        with (
            logged(log or world.log.append, lambda: f"{loop.time():.4f} {loop.current.name}"),
            background_failures() as failures,
        ):
            run_until_complete(loop, _run(world, Course(world, given.nodes), result))
        _report(world, result)
        result.wrong += failures
    loop.abandon()


async def _run(world: World, course: Course, result: Result) -> None:
    await world.start()
    await course.run(result.actions)
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
            yield
    finally:
        logging.disable(before)


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
