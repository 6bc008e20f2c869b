"""Filter, bind and the check after the write judge alike: what filter offers is bound, and nothing is written to be undone."""

import asyncio
from typing import Any

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender

ROUNDS = 5
TOTAL = 10


def device(name: str, units: int = 1, *groups: str, shared: bool = False) -> Json:
    """A device that draws on counter set `s`."""
    drawn: Json = {"counterSet": "s", "counters": {"units": {"value": str(units)}}}
    if groups:
        drawn["compatibilityGroups"] = list(groups)
    sharing: Json = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}} if shared else {}
    return {"name": name, "attributes": {"name": {"string": name}}, "consumesCounters": [drawn], **sharing}


def named(name: str) -> str:
    return f'device.attributes["{DRIVER}"].name == "{name}"'


def add_pod(world: InMemoryExtender, pod: str, wanted: str, memory: str = "") -> None:
    """A pod with a claim of its own for the device of this name; `memory` of it, if it is shared."""
    capacity: Json = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    world.add_claim(f"{pod}-claim", selector=named(wanted), **capacity)
    world.add_pod(pod, f"{pod}-claim")


def publish(world: InMemoryExtender, *devices: Json, node: str = "n1") -> None:
    """The node's driver replaces its devices."""
    stored = world.cluster.store.get(Key(StoredKind.SLICE, "", f"{node}-devices"))
    stored["spec"]["devices"] = list(devices)
    world.update(StoredKind.SLICE, stored)


def foreign(world: InMemoryExtender, *devices: str) -> None:
    """Another scheduler allocates these devices of n1, each to a claim of its own."""
    for name in devices:
        world.add_claim(f"foreign-{name}")
        world.allocate(f"foreign-{name}", name)
    world.sync()


async def scheduled(world: InMemoryExtender, pod: str, *nodes: str) -> list[str]:
    """Let the pod be scheduled as kube-scheduler does it; what was tried, one sentence each, the last one tells the node."""
    tried: list[str] = []
    for _ in range(ROUNDS):
        offered = list((await world.filter(pod, *nodes)).fitting)
        if not offered:
            return [*tried, "unschedulable"]
        try:
            await world.bind(pod, offered[0])
        except RetryableError as problem:
            tried.append(str(problem))
            continue
        return [*tried, f"bound to {offered[0]}"]
    return tried


@pytest.fixture
def world() -> InMemoryExtender:
    """Two nodes with a shared device `gpu` and a partition `part` on one counter set."""
    world = InMemoryExtender()
    for node in ("n1", "n2"):
        world.node(node)
        world.slice(node, [device("gpu", 2, shared=True), device("part", 3)], {"s": TOTAL})
    world.device_class()
    return world


BEFORE: dict[str, tuple[str, ...]] = {"none": (), "a": ("a",)}


@pytest.mark.parametrize(("before", "after"), [("none", ("a",)), ("a", ()), ("a", ("b",)), ("a", ("b", "c"))], ids=str)
async def test_further_share_while_the_driver_publishes_other_groups(
    world: InMemoryExtender, before: str, after: tuple[str, ...]
) -> None:
    publish(world, device("gpu", 2, *BEFORE[before], shared=True))
    async with world.watching():
        for pod in ("first", "second"):
            add_pod(world, pod, "gpu", "2Gi")
        assert await scheduled(world, "first", "n1") == ["bound to n1"]
        publish(world, device("gpu", 2, *after, shared=True))
        assert await scheduled(world, "second", "n1") == ["bound to n1"]
    assert world.devices("second-claim") == ["n1/gpu"]


async def test_further_share_while_the_driver_raises_what_the_device_consumes(world: InMemoryExtender) -> None:
    async with world.watching():
        for pod, wanted, memory in (("first", "gpu", "2Gi"), ("beside", "part", ""), ("second", "gpu", "2Gi")):
            add_pod(world, pod, wanted, memory)
        assert await scheduled(world, "first", "n1") == ["bound to n1"]
        assert await scheduled(world, "beside", "n1") == ["bound to n1"]
        publish(world, device("gpu", TOTAL - 2, shared=True), device("part", 3))
        assert await scheduled(world, "second", "n1") == ["bound to n1"]


async def test_further_share_while_the_policy_gives_groups(world: InMemoryExtender) -> None:
    publish(world, device("gpu", 2, shared=True))
    async with world.watching():
        for pod in ("first", "second"):
            add_pod(world, pod, "gpu", "2Gi")
        assert await scheduled(world, "first", "n1") == ["bound to n1"]
        policy = PolicyOverlay([PolicyRule(name="mig", compatibility_groups=("mig",))])
        world.ledger.overlays_changed(world.ledger.overlays.use_policy(policy))
        assert await scheduled(world, "second", "n1") == ["bound to n1"]


async def test_further_share_keeps_what_the_first_one_froze_when_the_first_one_ends(world: InMemoryExtender) -> None:
    """A partition that goes with the frozen groups fits, one that goes with the published groups does not."""
    publish(world, device("gpu", 2, "a", shared=True), device("part", 3, "a"), device("other", 3, "b"))
    async with world.watching():
        for pod in ("first", "second"):
            add_pod(world, pod, "gpu", "2Gi")
        assert await scheduled(world, "first", "n1") == ["bound to n1"]
        publish(world, device("gpu", 2, "b", shared=True), device("part", 3, "a"), device("other", 3, "b"))
        assert await scheduled(world, "second", "n1") == ["bound to n1"]
        stored = world.claim("first-claim")
        stored["status"] = {}
        world.cluster.store.update_status(StoredKind.CLAIM, stored)
        world.sync()
        add_pod(world, "third", "other")
        add_pod(world, "fourth", "part")
        assert await scheduled(world, "third", "n1") == ["unschedulable"]
        assert await scheduled(world, "fourth", "n1") == ["bound to n1"]


async def test_share_is_frozen_as_published_when_only_a_hold_had_the_older_groups(world: InMemoryExtender) -> None:
    """The first pod was offered the device before its driver changed the groups, and is never bound."""
    publish(world, device("gpu", 2, "a", shared=True))
    async with world.watching():
        for pod in ("first", "second"):
            add_pod(world, pod, "gpu", "2Gi")
        assert list((await world.filter("first", "n1")).fitting) == ["n1"]
        publish(world, device("gpu", 2, "b", shared=True))
        assert await scheduled(world, "second", "n1") == ["bound to n1"]
    (record,) = [each for each in world.ledger.claims.records() if each.claim.metadata.name == "second-claim"]
    assert [each.compatibility_groups for each in record.holdings[0].consumption or ()] == [("b",)]


MIXED: list[Any] = [
    pytest.param(("plain", "grouped"), id="none first"),
    pytest.param(("grouped", "plain"), id="groups first"),
]


@pytest.mark.parametrize("order", MIXED)
@pytest.mark.parametrize("wanted", ["plain-2", "grouped-2"])
async def test_counter_set_on_which_another_scheduler_mixed_none_with_groups_admits_nothing(
    world: InMemoryExtender, order: tuple[str, ...], wanted: str
) -> None:
    by_name = {"plain": device("plain"), "grouped": device("grouped", 1, "a")}
    devices = [*(by_name[each] for each in order), device("plain-2"), device("grouped-2", 1, "a")]
    async with world.watching():
        for node in ("n1", "n2"):
            publish(world, *devices, node=node)
        foreign(world, *order)
        add_pod(world, "pod", wanted)
        assert await scheduled(world, "pod", "n1") == ["unschedulable"]
        assert "contradict each other" in world.messages("pod")[-1]
        assert await scheduled(world, "pod", "n1", "n2") == ["bound to n2"]


MODE = f'device.attributes["{DRIVER}"].mode'


def a_world(**features: bool) -> InMemoryExtender:
    world = InMemoryExtender(
        Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0), **features
    )
    world.node("n1")
    rule = {"compatibleOnlyWith": {"expression": f'{MODE} == "mig"'}}
    devices: list[Json] = [
        {"name": name, "attributes": {"mode": {"string": mode}}} for name, mode in (("mig-1", "mig"), ("vgpu", "vgpu"))
    ]
    world.slice("n1", [{"name": "mig-0", "attributes": {"mode": {"string": "mig"}}, **CONDITIONS, **rule}, *devices])
    world.device_class()
    world.add_claim("c1", selector="device.attributes[device.driver].mode == 'mig'")
    world.add_pod("p1", "c1")
    return world


async def waiting_for_mig_0(world: InMemoryExtender) -> asyncio.Task[None]:
    """A bind that waits for mig-0, which is the only free device of its mode."""
    world.add_claim("other", selector="device.attributes[device.driver].mode == 'mig'")
    world.add_pod("p0", "other")
    await world.bind("p0", "n1")
    assert world.devices("other") == ["n1/mig-1"]
    bind = await world.waiting()
    assert world.devices("c1") == ["n1/mig-0"]
    return bind


async def test_a_neighbour_that_does_not_fit_makes_the_bind_give_way() -> None:
    """At the latest when the Binding would be posted."""
    world = a_world()
    await world.extender.start()
    async with world.watching():
        bind = await waiting_for_mig_0(world)
        world.allocate_foreign("vgpu")
        await world.cluster.watch.caught_up()
        # The bind may have given way already, for it looks again when the neighbour comes.
        if world.devices("c1"):
            world.report("Attached")
        with pytest.raises(RetryableError, match=rf"another writer allocated neighbours {DRIVER}/n1/mig-0 first"):
            await asyncio.wait_for(bind, 30)
        assert world.devices("c1") == []
        answer = await world.filter("p1", "n1")
        assert "not compatible with their neighbours" in answer.unresolvable["n1"]
    await world.extender.stop()


async def test_neighbours_do_not_count_with_compatibility_off() -> None:
    world = a_world(compatibility_groups=False)
    await world.extender.start()
    async with world.watching():
        bind = await waiting_for_mig_0(world)
        world.allocate_foreign("vgpu")
        await world.cluster.watch.caught_up()
        world.report("Attached")
        await asyncio.wait_for(bind, 30)
    await world.extender.stop()
    assert world.node_of("p1") == "n1"
