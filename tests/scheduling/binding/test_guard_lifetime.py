"""A guard claim exists only as long as its reason, whatever the order of allocations, answers, news and restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from dra_extender.model.allocation import AllocationResult, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.scheduling.binding.guards import GuardClaims
from dra_extender.scheduling.ports.cluster import Claims, ServerUnavailableError
from dra_extender.scheduling.ports.options import Options, YieldPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scheduling.seam import ANY, Act, Seam
from tests.support.scheduling.world import DRIVER, InMemoryExtender
from tests.support.turns import until

OURS = "dra-extender"
GPU = (DRIVER, "n1", "gpu-0")
_ROUNDS = 12
_TURNS = 12
_SLOW, _LATE, _LOST, _REFUSED = "slow", "late", "lost", "refused"


class UnreliableClaims(Seam):
    """The claims of the cluster: calls are stored late, or their answers are late, lost, or say that nothing was written."""

    def __init__(self, claims: Claims) -> None:
        super().__init__(claims)
        self._late = asyncio.Event()

    def answer_late_calls(self) -> None:
        self._late.set()
        self._late = asyncio.Event()

    def next_answer(self, answer: str) -> None:
        """Let this become of the next call for which nothing is planned yet."""
        late: Act = lambda: self._late.wait()  # noqa: E731, PLW0108 - the event of that time
        before: dict[str, Act] = {_SLOW: late, _REFUSED: ServerUnavailableError("refused")}
        after: dict[str, Act] = {_LATE: late, _LOST: ServerUnavailableError("the answer is lost")}
        self.before(ANY, before.get(answer))
        if answer != _REFUSED:
            self.after(ANY, after.get(answer))


class GuardWorld:
    """One device, claims of ours and of another scheduler that have it, and a service that may restart."""

    def __init__(self) -> None:
        self.world = InMemoryExtender()
        self.claims = UnreliableClaims(self.world.cluster.claims)
        self._tasks: list[asyncio.Task[None]] = []
        self._start()

    def restart(self) -> None:
        """Go on as another process; calls of the former may still be answered."""
        for subscription in self._subscriptions:
            subscription.close()
        self._tasks[-1].cancel()
        self.world.start()
        self._start()

    def prepare(self) -> None:
        self._tasks.insert(0, asyncio.create_task(self.guards.prepare((GPU,))))

    def allocate(self, name: str, *, own: bool = False) -> None:
        """Store a claim that has the device; `own`: with the snapshot that this service writes."""
        if self._exists(name):
            return
        devices = {"results": [dict(zip(("request", "driver", "pool", "device"), ("req", *GPU), strict=True))]}
        metadata: Json = {"name": name, "namespace": "default"}
        if own:
            allocation = msgspec.convert({"devices": devices}, AllocationResult)
            holding = DeviceHolding(driver=GPU[0], pool=GPU[1], device=GPU[2], consumption=())
            metadata["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, (holding,))}
        spec = {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "gpu"}}]}}
        stored = self.world.cluster.store.create(StoredKind.CLAIM, {"metadata": metadata, "spec": spec})
        stored["status"] = {"allocation": {"devices": devices}}
        self.world.cluster.store.update_status(StoredKind.CLAIM, stored)

    def end(self, name: str) -> None:
        if self._exists(name):
            self.world.cluster.store.delete(Key(StoredKind.CLAIM, "default", name))

    def delete_guard(self) -> None:
        """Delete the guard claim, as a person may."""
        for guard in self.stored_guards():
            self.world.cluster.store.delete(Key(StoredKind.CLAIM, OURS, guard["metadata"]["name"]))

    def stored_guards(self) -> list[Json]:
        return [
            each for each in self.world.cluster.store.all(StoredKind.CLAIM) if each["metadata"]["namespace"] == OURS
        ]

    async def settle(self) -> None:
        """Let every call be answered and everything be delivered."""
        self.claims.mend()
        for _ in range(_ROUNDS):
            self.claims.answer_late_calls()
            self.world.sync()
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        self.guards = GuardClaims(self.world.ledger, self.claims, OURS)
        self._subscriptions = self.guards.subscribe()
        self._tasks.append(asyncio.create_task(self.guards.keep_guards()))

    def _exists(self, name: str) -> bool:
        claims = self.world.cluster.store.all(StoredKind.CLAIM)
        return any((each["metadata"]["namespace"], each["metadata"]["name"]) == ("default", name) for each in claims)


@asynccontextmanager
async def guard_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GuardWorld]:
    monkeypatch.setattr("dra_extender.scheduling.binding.guards._RETRY_SECONDS", 0)
    world = GuardWorld()
    try:
        yield world
    finally:
        await world.stop()


@asynccontextmanager
async def contested_device(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GuardWorld]:
    """A guard world in which a claim of ours and one of another scheduler have the device."""
    async with guard_world(monkeypatch) as world:
        world.allocate("ours", own=True)
        world.allocate("foreign")
        world.world.sync()
        yield world


def is_allocated(guard: Json) -> bool:
    return "allocation" in guard.get("status", {})


async def test_guard_that_was_made_before_it_is_needed_waits_for_the_release_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with contested_device(monkeypatch) as world:
        world.prepare()
        await world.settle()
        assert [is_allocated(each) for each in world.stored_guards()] == [False]
        world.end("ours")
        await world.settle()
        assert [is_allocated(each) for each in world.stored_guards()] == [True]


async def test_guards_of_an_earlier_policy_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would count as allocations of another scheduler for ever."""
    async with contested_device(monkeypatch) as world:
        world.end("ours")
        await world.settle()
        assert len(world.stored_guards()) == 1
    other = InMemoryExtender(Options(yield_policy=YieldPolicy.CLEAR))
    other.cluster = world.world.cluster
    other.start()
    await other.extender.start()
    async with other.watching():
        await until(lambda: not world.stored_guards())
    await other.extender.stop()


_STEPS: dict[str, Callable[[GuardWorld], None]] = {
    "ours": lambda world: world.allocate("ours", own=True),
    "ours-ends": lambda world: world.end("ours"),
    "foreign": lambda world: world.allocate("foreign"),
    "foreign-ends": lambda world: world.end("foreign"),
    "second": lambda world: world.allocate("second"),
    "second-ends": lambda world: world.end("second"),
    "prepare": GuardWorld.prepare,
    "guard-deleted": GuardWorld.delete_guard,
    "watch": lambda world: world.world.sync(),
    "answer": lambda world: world.claims.answer_late_calls(),
    "restart": GuardWorld.restart,
    _SLOW: lambda world: world.claims.next_answer(_SLOW),
    _LATE: lambda world: world.claims.next_answer(_LATE),
    _LOST: lambda world: world.claims.next_answer(_LOST),
    _REFUSED: lambda world: world.claims.next_answer(_REFUSED),
}


async def take(world: GuardWorld, steps: list[tuple[str, int]]) -> None:
    """Do each step, and let the event loop turn so often after it."""
    for name, pause in steps:
        _STEPS[name](world)
        for _ in range(pause):
            await asyncio.sleep(0)


_CONTESTED = [("ours", 0), ("foreign", 0), ("watch", 0)]
_PREPARED = ("prepare", 8)
_REASON_ENDS = [("foreign-ends", 0), ("watch", 8)]


@examples(60)
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 8)), max_size=30))
@example(steps=[*_CONTESTED, (_SLOW, 0), _PREPARED, *_REASON_ENDS])
@example(steps=[*_CONTESTED, (_LATE, 0), _PREPARED, *_REASON_ENDS])
@example(steps=[*_CONTESTED, (_LOST, 0), _PREPARED, *_REASON_ENDS])
@example(steps=[*_CONTESTED, _PREPARED, (_LATE, 0), ("ours-ends", 0), ("watch", 8), *_REASON_ENDS])
@example(steps=[*_CONTESTED, (_SLOW, 0), _PREPARED, ("foreign-ends", 0), ("restart", 8), ("answer", 8)])
async def test_no_guard_outlives_its_reason_in_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with guard_world(monkeypatch) as world:
            await take(world, steps)
            world.end("foreign")
            world.end("second")
            await world.settle()
            assert world.stored_guards() == []


@examples(60)
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 8)), max_size=20))
async def test_device_that_ours_loses_is_guarded_after_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with guard_world(monkeypatch) as world:
            await take(world, steps)
            world.allocate("foreign")
            world.allocate("ours", own=True)
            await world.settle()
            world.end("ours")
            await world.settle()
            assert [is_allocated(each) for each in world.stored_guards()] == [True]
