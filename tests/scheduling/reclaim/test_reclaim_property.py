"""Whatever happens in whatever order: at rest nothing is taken that nobody uses, and nobody waits for what is free."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.node import node_from
from dra_extender.model.resource_claim import FINALIZER, claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.cluster import ConflictError, RequestRejectedError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController
from hypothesis import given
from hypothesis import strategies as st

from tests.support.audit.raw_objects import audit
from tests.support.audit.waiting_pods import waiting_pods
from tests.support.examples import examples
from tests.support.model.reading import pod_from
from tests.support.scheduling.seam import Seam
from tests.support.scheduling.world import InMemoryExtender

OPTIONS = Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, reclaim_pause_seconds=0.0)
NODES = ("n0", "n1", "n2")
PODS = 5
ROUNDS = 12

Step = tuple[Any, ...]
pods = st.integers(0, PODS - 1)
offered = st.lists(st.sampled_from(NODES), min_size=1, unique=True)
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("add"), pods, st.integers(0, PODS - 1)),
    st.tuples(st.just("bind"), pods, offered),
    st.tuples(st.just("abandon"), pods, offered),
    st.tuples(st.just("filter"), pods, offered),
    st.tuples(st.just("end"), pods),
    st.tuples(st.just("delete"), pods),
    st.tuples(st.just("forget")),
    st.tuples(st.just("time"), st.sampled_from([0.3, 5.0, 20.0, 40.0])),
    st.tuples(st.just("controller")),
)


class Play:
    """Steps upon a small cluster: one device on each node, claims that one or several pods use."""

    def __init__(self) -> None:
        self.world = InMemoryExtender(OPTIONS)
        for name in NODES:
            self.world.node(name)
            self.world.gpus(name, 1)
        self.world.device_class()
        for number in range(PODS):
            self.world.add_claim(f"c{number}")

    async def step(self, kind: str, *arguments: Any) -> None:
        world = self.world
        match kind:
            case "add" if not self._exists(arguments[0]):
                world.add_pod(f"p{arguments[0]}", f"c{arguments[1]}")
            case "filter" | "bind" | "abandon" if self._waits(arguments[0]):
                await self._attempt(kind, f"p{arguments[0]}", arguments[1])
            case "end" if self._exists(arguments[0]) and not self._waits(arguments[0]):
                pod = world.pod(f"p{arguments[0]}")
                pod["status"]["phase"] = "Succeeded"
                world.cluster.store.update_status(StoredKind.POD, pod)
            case "delete" if self._exists(arguments[0]):
                world.delete(StoredKind.POD, f"p{arguments[0]}")
            case "forget":
                world.start()
            case "time":
                await self._time(arguments[0])
            case "controller":
                ClaimController(world.cluster.store).reconcile()
        world.sync()

    async def rest(self) -> None:
        """Everybody does his part until nothing is left to do."""
        for _ in range(ROUNDS):
            version = self.world.cluster.store.version
            await self.step("controller")
            for seconds in (1.0, OPTIONS.reclaim_grace_seconds):
                await self._time(seconds)
            for number in range(PODS):
                await self.step("bind", number, NODES)
            if self.world.cluster.store.version == version:
                return
        raise AssertionError("it does not come to rest")

    def findings(self) -> list[str]:
        """What is wrong now."""
        world, store = self.world, self.world.cluster.store
        claims = [claim_from(each) for each in store.all(StoredKind.CLAIM)]
        slices = [SliceReader().convert(each) for each in store.all(StoredKind.SLICE)]
        everybody = [pod_from(each) for each in store.all(StoredKind.POD)]
        found = [*audit(claims, slices, everybody, [node_from(each) for each in store.all(StoredKind.NODE)])]
        found += waiting_pods(world.ledger, NodeAllocator(world.ledger, world.features, world.options))
        marked = [
            each.metadata.name
            for each in claims
            if each.status.allocation is None
            and (FINALIZER in each.metadata.finalizers or SNAPSHOT_ANNOTATION in each.metadata.annotations)
        ]
        return [*map(str, found), *(f"claim {name} is half written" for name in marked)]

    async def _attempt(self, kind: str, pod: str, nodes: Sequence[str]) -> None:
        fitting = list((await self.world.filter(pod, *nodes)).fitting)
        if not fitting or kind == "filter":
            return
        hung_up = asyncio.Event()
        if kind == "abandon":
            hung_up.set()
        async with self.world.watching():
            with suppress(RetryableError):
                await self.world.bind(pod, fitting[0], hung_up)

    async def _time(self, seconds: float) -> None:
        world = self.world
        await world.extender.reclaim.sweep()
        world.clock.seconds += seconds
        world.sync()
        await world.extender.reclaim.check_suspects()
        world.sync()

    def _exists(self, number: int) -> bool:
        return self.world.cluster.store.find(Key(StoredKind.POD, "default", f"p{number}")) is not None

    def _waits(self, number: int) -> bool:
        return self._exists(number) and not self.world.pod(f"p{number}")["spec"].get("nodeName")


WRITES: Final = ("update", "update_status")
FAULTS: Final = {
    "conflict": ConflictError("the object has been modified"),
    "denied": RequestRejectedError("admission webhook denied the request"),
    "silent": ServerUnavailableError("connection reset"),
}
before = st.tuples(st.just("before"), st.sampled_from([*WRITES, "bind"]), st.sampled_from(sorted(FAULTS)))
unread = st.tuples(st.just("before"), st.just("read"), st.just("silent"))
after = st.tuples(st.just("after"), st.sampled_from([*WRITES, "bind"]), st.just("silent"))
faults = st.tuples(st.just("fault"), st.one_of(before, unread, after))


class FaultyPlay(Play):
    """A play in which calls fail as they are told to, until all is mended for the rest."""

    def __init__(self) -> None:
        super().__init__()
        claims: Any = Seam(self.world.cluster.claims)
        pods: Any = Seam(self.world.cluster.pods)
        self._claims, self._pods = claims, pods
        self.world.claims, self.world.pods = claims, pods
        self.world.start()

    async def step(self, kind: str, *arguments: Any) -> None:
        if kind != "fault":
            await super().step(kind, *arguments)
            return
        when, method, fault = arguments[0]
        for port in (
            (self._pods,) if method == "bind" else (self._claims, self._pods) if method == "read" else (self._claims,)
        ):
            getattr(port, when)(method, FAULTS[fault])

    def given(self) -> list[str]:
        """The devices of all claims."""
        return [device for number in range(PODS) for device in self.world.devices(f"c{number}")]

    async def rest(self) -> None:
        self._claims.mend()
        self._pods.mend()
        await super().rest()


@examples(50)
@given(st.lists(st.one_of(steps, faults, faults), min_size=5, max_size=40))
def test_no_fault_gives_anything_twice_or_leaves_anything_over(story: list[Step]) -> None:
    async def play() -> list[str]:
        stage = FaultyPlay()
        for each in story:
            await stage.step(*each)
            assert len(set(stage.given())) == len(stage.given())
        await stage.rest()
        return stage.findings()

    assert asyncio.run(play()) == []
