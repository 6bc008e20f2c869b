"""Whoever may write a claim may write its `managedFields`: that harms nobody but him, and keeps no devices for him."""

from collections.abc import Callable

import pytest
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.reclaiming import GRACE, bound_to, edit_pod, pass_by, reclaimed, small_world
from tests.support.scheduling.world import InMemoryExtender

US = "dra-extender"


@pytest.fixture
def world() -> InMemoryExtender:
    return small_world()


def wipe(claim: Json) -> None:
    claim["metadata"].pop("managedFields", None)


def name(manager: str) -> Callable[[Json], None]:
    def forge(claim: Json) -> None:
        for entry in claim["metadata"].get("managedFields", ()):
            entry["manager"] = manager

    return forge


def forge(world: InMemoryExtender, change: Callable[[Json], None], number: int = 0) -> None:
    """What a user writes; the label makes it another version each time."""

    def write(claim: Json) -> None:
        change(claim)
        claim["metadata"].setdefault("labels", {})["number"] = str(number)

    world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", "c1"), write)
    world.sync()


def allocate_elsewhere(world: InMemoryExtender, consumers: list[Json]) -> None:
    """Another scheduler's allocation of the device on n1."""
    claim = world.claim("c1")
    result = {"request": "req", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
    world.cluster.store.update_status(StoredKind.CLAIM, claim, "kube-scheduler")
    world.sync()


@pytest.mark.parametrize("change", [wipe, name("kubectl"), name("kube-scheduler")])
async def test_our_unused_allocation_is_released_whatever_its_managed_fields_say(
    world: InMemoryExtender, change: Callable[[Json], None]
) -> None:
    await world.abandoned("p1")
    forge(world, change)
    await pass_by(world, GRACE)
    assert world.devices("c1") == []
    assert await reclaimed(world, "pod_idle") == 1


@pytest.mark.parametrize("change", [wipe, name("kubectl"), name(US)])
async def test_devices_of_a_bound_pod_stay_whatever_the_managed_fields_say(
    world: InMemoryExtender, change: Callable[[Json], None]
) -> None:
    await world.abandoned("p1")
    edit_pod(world, bound_to("n1"))
    for number in range(3):
        forge(world, change, number)
        await pass_by(world, GRACE)
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_devices_that_another_scheduler_gave_a_bound_pod_stay_though_they_are_said_to_be_ours(
    world: InMemoryExtender,
) -> None:
    uid = world.uid("p1")
    edit_pod(world, bound_to("n1"))
    allocate_elsewhere(world, [{"resource": "pods", "name": "p1", "uid": uid}])
    for number in range(3):
        forge(world, name(US), number)
        await pass_by(world, GRACE)
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_what_is_said_to_be_ours_goes_alone_and_only_if_nobody_uses_it(world: InMemoryExtender) -> None:
    """The claim of the author loses an allocation that is reserved for nobody; the other claim keeps its."""
    world.add_claim("other")
    world.add_pod("p2", "other")
    await world.bind_through("p2", "n2")
    allocate_elsewhere(world, [])
    forge(world, name(US))
    await pass_by(world, GRACE)
    assert world.devices("c1") == []
    assert world.devices("other") == ["n2/gpu-0"]


async def test_after_a_restart_forged_managers_keep_an_allocation_and_are_told_of_once_for_each_write(
    world: InMemoryExtender,
) -> None:
    """A new process knows only what is stored; nothing is looked at again before somebody writes."""
    await world.abandoned("p1")
    record = world.known_claim("c1")
    record.written = None
    forge(world, name("kubectl"))
    for _ in range(10):
        await pass_by(world, GRACE)
    assert world.devices("c1") == ["n1/gpu-0"]
    assert await reclaimed(world, "pod_idle", "foreign") == 1
    forge(world, wipe, 1)
    for _ in range(10):
        await pass_by(world, GRACE)
    assert await reclaimed(world, "pod_idle", "foreign") == 2
