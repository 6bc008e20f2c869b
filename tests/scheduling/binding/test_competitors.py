"""A pod that lost its device to another scheduler waits for that scheduler's pods only where one could be given the device."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Rejection
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import COST_LIMIT
from dra_extender.ledger.guard_index import guard_reservations
from dra_extender.ledger.member_fit import NODES_PER_STEP, MemberFit
from dra_extender.model.device import DeviceId
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.binding.competitors import NODE_COST, POD_COST, Competitors
from dra_extender.scheduling.binding.guards import MOST_WAIT_SECONDS
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.scheduling.binding.test_guard_claims import GPU, at_work, foreign, guarded
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender, Ticking
from tests.support.turns import turns

OWN_SECOND = "dra-extender-batch"


SLICE_SECONDS = 0.02
TICK_SECONDS = 0.001
PODS = 60
COSTLY = "[1,2,3,4,5].all(a, [1,2,3,4,5].all(b, [1,2,3,4,5].all(c, [1,2,3,4,5].all(d, a*b*c*d < {}))))"


class CountedReads(Ticking):
    """A clock that goes on whenever it is read; `on_read` is called with the number of the reading."""

    def __init__(self) -> None:
        super().__init__(TICK_SECONDS)
        self.reads = 0
        self.on_read: Callable[[int], None] = lambda _: None

    def monotonic(self) -> float:
        self.reads += 1
        self.on_read(self.reads)
        return super().monotonic()


class CountingAllocator(NodeAllocator):
    """Counts how often it is asked what claims ask for."""

    asked = 0

    def demand(self, claims: Sequence[FoundClaim], budget: Budget | None = None) -> Demand | Rejection | UnreadSpecs:
        self.asked += 1
        return super().demand(claims, budget)


def two_nodes() -> InMemoryExtender:
    """A device whose binding conditions make a bind wait, and a free one on another node."""
    world = InMemoryExtender(
        Options(
            hold_wait_seconds=0.0,
            watch_lag_seconds=30.0,
            device_backoff_seconds=0,
            scheduler_names=("dra-extender-scheduler", OWN_SECOND),
        )
    )
    world.node("n1")
    world.node("n2")
    world.slice("n1", [{"name": "gpu-0", "attributes": {"model": {"string": "large"}}, **CONDITIONS}])
    world.slice("n2", [{"name": "gpu-0", "attributes": {"model": {"string": "large"}}}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    return world


def their_pod(
    world: InMemoryExtender, claim: str = "theirs", scheduler: str = "theirs", name: str = "theirs", **spec: Any
) -> None:
    world.add_pod(name, *([] if "resourceClaims" in spec else [claim]), schedulerName=scheduler, **spec)


def many_pods(world: InMemoryExtender, selector: Callable[[int], str], number: int = PODS) -> None:
    """Pods of another scheduler, each with a claim of its own."""
    for index in range(number):
        world.add_claim(f"theirs-{index}", selector=selector(index))
        their_pod(world, f"theirs-{index}", name=f"theirs-{index}")


def never(index: int) -> str:
    """Return a selector of its own for the pod, which no device satisfies."""
    return f'device.attributes["{DRIVER}"].model == "small-{index}"'


def for_nic(world: InMemoryExtender) -> None:
    world.device_class("nic", 'device.driver == "nic.example.com"')
    world.add_claim("theirs", class_name="nic")
    their_pod(world)


def for_other_model(world: InMemoryExtender) -> None:
    world.add_claim("theirs", selector=f'device.attributes["{DRIVER}"].model == "small"')
    their_pod(world)


def on_other_node(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    affinity = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [affinity]}}
    their_pod(world, affinity={"nodeAffinity": required})


def on_no_node(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, nodeSelector={"zone": "none"})


def gated(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, schedulingGates=[{"name": "example.com/wait"}])


def for_more_than_there_are(world: InMemoryExtender) -> None:
    world.add_claim("theirs", count=2)
    their_pod(world)


def without_claim(world: InMemoryExtender) -> None:
    their_pod(world, "missing")


def without_class(world: InMemoryExtender) -> None:
    world.add_claim("theirs", class_name="missing")
    their_pod(world)


def with_admin_access(world: InMemoryExtender) -> None:
    world.add_claim("theirs", adminAccess=True)
    their_pod(world)


def with_own_device(world: InMemoryExtender) -> None:
    """The pod that won the device, and is not bound yet."""
    their_pod(world, "foreign")


def of_our_second_profile(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, scheduler=OWN_SECOND)


def extended_resource_of_plugin(world: InMemoryExtender) -> None:
    container = {"name": "main", "image": "pause", "resources": {"limits": {"example.com/fpga": "1"}}}
    their_pod(world, resourceClaims=[], containers=[container])


async def bound_elsewhere(world: InMemoryExtender) -> None:
    """Filter and bind our pod once more, as kube-scheduler does."""
    assert world.devices("c1") == []
    assert (await world.filter("p1", "n1", "n2")).fitting == ("n2",)
    await asyncio.wait_for(world.bind("p1", "n2"), 60)
    assert world.node_of("p1") == "n2"


@pytest.mark.parametrize(
    "harmless",
    [
        for_nic,
        for_other_model,
        for_more_than_there_are,
        on_other_node,
        on_no_node,
        gated,
        without_claim,
        without_class,
        with_admin_access,
        with_own_device,
        of_our_second_profile,
        extended_resource_of_plugin,
    ],
    ids=lambda harmless: harmless.__name__,
)
async def test_pod_that_cannot_get_the_device_delays_nothing(harmless: Callable[[InMemoryExtender], None]) -> None:
    world = two_nodes()
    async with at_work(world):
        harmless(world)
        bind = await world.waiting()
        foreign(world)
        before = world.clock.seconds
        with pytest.raises(RetryableError, match="another writer allocated device"):
            await asyncio.wait_for(bind, 60)
        assert world.clock.seconds == before
        await bound_elsewhere(world)
        await guarded(world)


def as_alternative(world: InMemoryExtender) -> None:
    world.device_class("nic", 'device.driver == "nic.example.com"')
    alternatives = [{"name": name, "deviceClassName": name, "count": 1} for name in ("nic", "gpu")]
    world.add_claim_of("theirs", {"name": "req", "firstAvailable": alternatives})
    their_pod(world)


def by_claim(world: InMemoryExtender) -> None:
    world.add_claim("theirs", selector=f'device.attributes["{DRIVER}"].model == "large"')
    their_pod(world)


def by_extended_resource(world: InMemoryExtender) -> None:
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}},
    }
    their_pod(world, resourceClaims=[], containers=[container])


async def waited_for(world: InMemoryExtender, competing: Callable[[InMemoryExtender], None]) -> asyncio.Task[None]:
    """A bind whose device another scheduler has taken, and which waits for this competitor."""
    competing(world)
    bind = await world.waiting()
    foreign(world)
    await turns()
    assert not bind.done()
    return bind


@pytest.mark.parametrize(
    "competing", [by_claim, as_alternative, by_extended_resource], ids=lambda competing: competing.__name__
)
async def test_competitor_that_is_never_decided_delays_for_one_backoff_of_kube_scheduler(
    competing: Callable[[InMemoryExtender], None],
) -> None:
    world = two_nodes()
    async with at_work(world):
        bind = await waited_for(world, competing)
        assert world.devices("c1") == ["n1/gpu-0"]
        world.clock.seconds += MOST_WAIT_SECONDS
        with pytest.raises(RetryableError, match="pod default/theirs of scheduler theirs waits for such a device"):
            await asyncio.wait_for(bind, 60)
        await bound_elsewhere(world)
        await guarded(world)


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"nodeName": "n1"}, id="local"),
        pytest.param({"allNodes": True}, id="fabric"),
    ],
)
def test_pod_that_asks_for_two_devices_competes_where_a_node_has_two(second: dict[str, Any]) -> None:
    """Whether the other device is free may change at any moment."""
    world = two_nodes()
    for_more_than_there_are(world)
    finder, _ = competitors(world)
    scheduler = pod_from(world.pod("p1")).scheduler_name
    assert finder.find([GPU], scheduler, CallBudget(world.clock, 60.0)) is None
    pool = {"name": "more", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": [{"name": "gpu-1"}], **second}
    world.create(StoredKind.SLICE, {"metadata": {"name": "more"}, "spec": spec})
    assert finder.find([GPU], scheduler, CallBudget(world.clock, 60.0)) is not None


async def test_competitor_that_gets_another_device_is_waited_for_no_longer() -> None:
    world = two_nodes()
    async with at_work(world):
        bind = await waited_for(world, by_claim)
        world.allocate("theirs", "gpu-0", pool="n2")
        with pytest.raises(RetryableError, match=r"allocated device gpu\.example\.com/n1/gpu-0 first$"):
            await asyncio.wait_for(bind, 60)


def competitors(world: InMemoryExtender) -> tuple[Competitors, CountingAllocator]:
    allocator = CountingAllocator(world.ledger, Features(), world.options)
    return Competitors(world.ledger, allocator, world.options.scheduler_names), allocator


def test_work_for_hostile_selectors_is_bounded_and_a_pod_that_is_not_judged_passes_for_a_competitor() -> None:
    world = two_nodes()
    many_pods(world, lambda index: COSTLY.format(10**6 + index) + " && false")
    finder, allocator = competitors(world)
    budget = CallBudget(world.clock, 60.0)
    budget.remaining = PODS // 2 * POD_COST
    budget.open_slice(SLICE_SECONDS)
    unjudged = finder.find([GPU], pod_from(world.pod("p1")).scheduler_name, budget)
    assert unjudged is not None
    assert 0 < allocator.asked < PODS
    assert -COST_LIMIT < budget.remaining <= 0
    asked = allocator.asked
    assert finder.find([GPU], pod_from(world.pod("p1")).scheduler_name, budget, unjudged) == unjudged
    assert allocator.asked == asked


def far_device(world: InMemoryExtender) -> DeviceId:
    """A device that many nodes reach."""
    for index in range(PODS):
        world.create(StoredKind.NODE, {"metadata": {"name": f"m{index}", "labels": {"fabric": "yes"}}})
    term = {"matchExpressions": [{"key": "fabric", "operator": "Exists"}]}
    spec = {
        "driver": DRIVER,
        "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "devices": [{"name": "far"}],
    }
    world.create(StoredKind.SLICE, {"metadata": {"name": "fabric"}, "spec": spec})
    return DRIVER, "fabric", "far"


def test_nodes_alone_use_the_budget_up() -> None:
    """The pod may run on another node than those that the device reaches."""
    world = two_nodes()
    far = far_device(world)
    on_other_node(world)
    finder, _ = competitors(world)
    scheduler = pod_from(world.pod("p1")).scheduler_name
    assert finder.find([far], scheduler, CallBudget(world.clock, 60.0)) is None
    budget = CallBudget(world.clock, 60.0)
    budget.remaining = POD_COST + PODS // 2 * NODE_COST
    assert finder.find([far], scheduler, budget) is not None


def test_a_look_pauses_between_nodes_and_goes_on_with_those_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node takes up to 0.1 ms, and there may be thousands of them."""
    world = two_nodes()
    far = far_device(world)
    on_other_node(world)
    compared: list[str] = []
    admits = MemberFit.admits

    def counted(fit: MemberFit, uid: str, node: str) -> bool:
        compared.append(node)
        return admits(fit, uid, node)

    monkeypatch.setattr(MemberFit, "admits", counted)
    finder, _ = competitors(world)
    budget = CallBudget(world.clock, 60.0)
    step = partial(finder.find, [far], pod_from(world.pod("p1")).scheduler_name, budget)

    for _ in range(PODS // 2):
        before = len(compared)
        budget.open_slice(-1.0)
        assert within_slice(step) is Awaited.TIME_SLICE
        assert len(compared) <= before + 1
    first, *_ = compared
    world.delete(StoredKind.NODE, first)
    world.create(StoredKind.NODE, {"metadata": {"name": first, "labels": {"fabric": "yes"}}})
    budget.open_slice(60.0)
    assert within_slice(step) is None
    assert sorted(compared) == sorted([first, *(f"m{index}" for index in range(PODS))])


def test_a_look_pauses_while_pods_are_compared_with_nodes(judged: list[str]) -> None:
    world = two_nodes()
    for number in range(3, 3 * NODES_PER_STEP):
        world.node(f"n{number}")
    for number in range(3):
        world.add_claim(f"theirs-{number}")
        their_pod(world, f"theirs-{number}", name=f"theirs-{number}", nodeSelector={"zone": f"z{number}"})
    finder, _ = competitors(world)
    budget = CallBudget(world.clock, 60.0)
    step = partial(finder.find, [GPU], pod_from(world.pod("p1")).scheduler_name, budget)
    found: Any = Awaited.TIME_SLICE
    compared = 0
    while found is Awaited.TIME_SLICE:
        judged.clear()
        budget.open_slice(-1.0)
        found = within_slice(step)
        compared += len(judged)
        assert len(judged) <= NODES_PER_STEP
    assert found is None
    assert compared == 3 * len(world.ledger.nodes)


def ticking() -> tuple[InMemoryExtender, CountedReads]:
    """Two nodes as above, seen by a service whose clock moves by itself."""
    world, clock = two_nodes(), CountedReads()
    world.clock = clock
    world.start()
    return world, clock


async def test_bind_lets_the_event_loop_go_on_while_it_looks_at_many_pods() -> None:
    world, clock = ticking()
    many_pods(world, never)
    async with at_work(world):
        bind = await world.waiting()
        foreign(world)
        begun, beats, is_reserved = clock.seconds, 0, False
        while not bind.done():
            await asyncio.sleep(0)
            beats += 1
            is_reserved = is_reserved or bool(guard_reservations(claim_from(world.claim("c1"))))
        assert is_reserved, "a deletion of the pod in the midst must not release the claim"
        assert beats > PODS * TICK_SECONDS / SLICE_SECONDS
        assert clock.seconds - begun < MOST_WAIT_SECONDS
        with pytest.raises(RetryableError, match=r"allocated device gpu\.example\.com/n1/gpu-0 first$"):
            await bind


async def test_claim_is_kept_if_the_foreign_allocation_ends_between_two_slices_of_a_look() -> None:
    world, clock = ticking()
    many_pods(world, never)
    async with at_work(world):
        bind = await world.waiting()
        foreign(world)

        def end_in_the_midst(reads: int) -> None:
            if reads == last:
                world.cluster.store.delete(Key(StoredKind.CLAIM, "default", "foreign"))

        last = clock.reads + PODS // 2
        clock.on_read = end_in_the_midst
        await turns()
        assert clock.reads > last
        assert not bind.done()
        assert world.devices("c1") == ["n1/gpu-0"]
        bind.cancel()
        await asyncio.gather(bind, return_exceptions=True)
