"""Devices of a PodGroup's claim that fail or take too long: they are given back by the rules of the group, and by no other.

While a member is bound, or on the point of it, nothing is; while all only wait, the first that notices gives back for all.
"""

import asyncio

import pytest
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.scheduling.grouped import GROUP, NAMED, PodGroupExtender
from tests.support.scheduling.reclaiming import GRACE, OPTIONS, pass_by, reclaimed
from tests.support.scheduling.seam import Seam, restart
from tests.support.turns import turns, until

FAILED = "binding conditions failed"
LATE = "binding conditions timed out"
TEAM = f"podgroups/{GROUP}"


def attachable(*, backoff: float = 0.0, min_count: int = 0) -> PodGroupExtender:
    """A claim by name for one of two devices that have to be attached, and members a, b and c."""
    world = PodGroupExtender(backoff=backoff)
    world.devices_everywhere(2, conditions=True)
    world.add_claim("shared")
    world.group(NAMED, min_count=min_count)
    for name in ("a", "b", "c"):
        world.member(name)
    return world


async def waiting(world: PodGroupExtender, *pods: str, node: str = "n1") -> list[asyncio.Task[None]]:
    """Binds that wait, begun one after the other."""
    tasks = []
    for pod in pods:
        tasks.append(asyncio.create_task(world.bind(pod, node)))
        await turns()
    assert not any(task.done() for task in tasks)
    return tasks


async def outcomes(tasks: list[asyncio.Task[None]]) -> list[str]:
    return [str(each) for each in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)]


def nominations(world: PodGroupExtender) -> set[str]:
    return {str(world.pod(name)["status"].get("nominatedNodeName", "")) for name in ("a", "b", "c")}


async def end_of(world: PodGroupExtender, how: str) -> None:
    """The devices fail, or their time runs out."""
    if how == FAILED:
        world.report("Failed")
    else:
        world.clock.seconds += world.options.binding_timeout_seconds + 1
        world.extender.binder.recheck()


@pytest.mark.parametrize("how", [FAILED, LATE])
async def test_without_a_bound_member_the_claim_is_released_and_the_next_bind_allocates_again(how: str) -> None:
    world = attachable()
    async with world.watching():
        tasks = await waiting(world, "a")
        assert world.reserved() == [TEAM]
        await end_of(world, how)
        (said,) = await outcomes(tasks)
        assert how in said
        assert (world.devices("shared"), world.reserved()) == ([], [])
        await world.cluster.watch.caught_up()
        tasks = await waiting(world, "a", node="n2")
        world.report("Attached")
        await asyncio.gather(*tasks)
    assert world.is_bound("a")


@pytest.mark.parametrize("how", [FAILED, LATE])
async def test_the_first_of_waiting_members_releases_for_all_and_all_end_their_wait(how: str) -> None:
    world = attachable()
    async with world.watching():
        tasks = await waiting(world, "a", "b", "c")
        assert nominations(world) == {"n1"}
        await end_of(world, how)
        said = await outcomes(tasks)
    assert all(how in each or "was deallocated while pod" in each for each in said)
    assert (world.devices("shared"), world.reserved()) == ([], [])
    assert nominations(world) == {""}


async def test_the_device_that_failed_is_left_alone_by_every_member_that_waits() -> None:
    """Also by one that had no bind in progress: the claim is as much its own."""
    world = attachable(backoff=30.0)
    async with world.watching():
        tasks = await waiting(world, "a", "b")
        (bad,) = world.devices("shared")
        await end_of(world, FAILED)
        await outcomes(tasks)
        await world.cluster.watch.caught_up()
        assert list((await world.filter("c", "n1")).fitting) == ["n1"]
        tasks = await waiting(world, "c")
        (other,) = world.devices("shared")
        assert other != bad
        world.report("Attached")
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("how", [FAILED, LATE])
async def test_with_a_bound_member_the_claim_stays_and_others_are_rejected_with_the_reason(how: str) -> None:
    world = attachable()
    async with world.watching():
        tasks = await waiting(world, "a")
        world.report("Attached")
        await asyncio.gather(*tasks)
        if how == LATE:
            stored = world.claim("shared")
            del stored["status"]["devices"]
            world.cluster.store.update_status(StoredKind.CLAIM, stored)
        await end_of(world, how)
        await world.cluster.watch.caught_up()
        answer = await world.filter("b", "n1")
        assert "not ready in time, and other pods use it" in answer.unresolvable["n1"]
        if how == FAILED:
            with pytest.raises(RetryableError, match=how):
                await world.bind("b", "n1")
    assert (world.devices("shared"), world.reserved()) == (["fabric/gpu-0"], [TEAM])
    await pass_by(world, 2 * GRACE)
    assert (world.devices("shared"), world.reserved()) == (["fabric/gpu-0"], [TEAM])


async def with_a_bound_member() -> PodGroupExtender:
    """A world in which member `a` is bound."""
    world = attachable()
    async with world.watching():
        tasks = await waiting(world, "a")
        world.report("Attached")
        await asyncio.gather(*tasks)
    return world


@pytest.mark.parametrize("setting", ["always", "never"])
async def test_an_overlap_with_another_writer_takes_nothing_from_a_group_that_runs(setting: str) -> None:
    """The devices are in use already, so the member is bound beside the others, reserved by itself or through the group."""
    world = PodGroupExtender()
    world.devices_everywhere()
    world.add_claim("shared")
    world.group(NAMED)
    for name in ("a", "b"):
        world.member(name)
    await world.bound("a")
    world.set_up(setting)
    world.allocate_foreign(pool="fabric")
    world.sync()
    await world.bound("b")
    assert world.devices("shared") == ["fabric/gpu-0"]
    assert world.reserved() == [TEAM, *(["pods/b"] if setting == "never" else [])]


async def test_a_member_on_the_point_of_being_bound_keeps_the_claim() -> None:
    """Its Binding is on its way when the device fails; another member that still waits for a claim of its own notices."""
    world = attachable()
    world.add_claim("own")
    world.member("d", NAMED, {"name": "own", "resourceClaimName": "own"})
    through = asyncio.Event()
    pods = Seam(world.cluster.pods).before("bind", through.wait)
    restart(world, pods=pods)
    world.sync()
    async with world.watching():
        late = await waiting(world, "d")
        early = await waiting(world, "a")
        world.report("Attached")
        await until(lambda: "bind" in pods.calls)
        world.report("Failed")
        (said,) = await outcomes(late)
        assert FAILED in said
        assert (world.devices("shared"), world.reserved()) == (["fabric/gpu-0"], [TEAM])
        through.set()
        await asyncio.gather(*early)
    assert world.is_bound("a")


async def test_a_member_bound_before_the_watch_tells_keeps_the_claim() -> None:
    world = attachable()
    world.add_claim("own")
    world.member("d", NAMED, {"name": "own", "resourceClaimName": "own"})
    async with world.watching():
        late = await waiting(world, "d")
        early = await waiting(world, "a")
        world.silence("pods")
        world.report("Attached")
        await asyncio.gather(*early)
        world.report("Failed")
        await outcomes(late)
    assert (world.devices("shared"), world.reserved()) == (["fabric/gpu-0"], [TEAM])


async def test_a_member_that_was_ready_is_not_bound_on_devices_that_others_gave_back() -> None:
    """It stands at the gate of its gang while the device fails."""
    world = attachable(min_count=3)
    world.add_claim("own")
    world.member("d", NAMED, {"name": "own", "resourceClaimName": "own"})
    world.member("plain", NAMED)
    async with world.watching():
        late = await waiting(world, "d")
        gate = await waiting(world, "a")
        world.report("Attached")
        await turns()
        assert not gate[0].done()
        world.report("Failed")
        await outcomes(late)
        assert world.devices("shared") == []
        world.cluster.store.edit_unchecked(
            Key(StoredKind.POD, "default", "plain"), lambda pod: pod["spec"].update(nodeName="n2")
        )
        await world.cluster.watch.caught_up()
        world.extender.binder.recheck()
        (said,) = await outcomes(gate)
        assert "was deallocated while pod default/a waited for it" in said
    assert not world.is_bound("a")


async def test_devices_that_failed_while_nobody_is_bound_or_being_bound_do_not_stay_stuck() -> None:
    world = attachable()
    await world.abandoned("a")
    world.report("Failed")
    world.sync()
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)
    assert (world.devices("shared"), world.reserved()) == ([], [])
    assert await reclaimed(world, "device_failed") == 1


async def test_with_mixed_reservations_nobody_bound_all_of_them_go() -> None:
    world = attachable()
    await world.abandoned("a")
    world.set_up("never")
    await world.abandoned("b")
    assert world.reserved() == [TEAM, "pods/b"]
    world.report("Failed")
    world.sync()
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)
    assert (world.devices("shared"), world.reserved()) == ([], [])


async def test_with_mixed_reservations_a_bound_member_keeps_the_claim_of_a_pod_that_gives_back_its_part() -> None:
    world = await with_a_bound_member()
    world.set_up("never")
    await world.abandoned("b")
    async with world.watching():
        world.report("Failed")
        await world.cluster.watch.caught_up()
        with pytest.raises(RetryableError, match=FAILED):
            await world.bind("b", "n1")
    assert (world.devices("shared"), world.reserved()) == (["fabric/gpu-0"], [TEAM])


async def test_when_all_members_are_gone_the_claim_waits_for_the_group_or_for_a_new_member() -> None:
    world = attachable()
    await world.abandoned("a")
    world.report("Failed")
    for name in ("a", "b", "c"):
        world.delete(StoredKind.POD, name)
    await pass_by(world, 2 * GRACE)
    assert world.reserved() == [TEAM]
    world.member("late")
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)
    assert (world.devices("shared"), world.reserved()) == ([], [])


async def test_the_claim_of_a_group_that_is_gone_is_released() -> None:
    """By whoever comes first: kube-controller-manager, if it has its gate, or reclaim."""
    world = attachable()
    await world.abandoned("a")
    world.report("Failed")
    world.end_group(GROUP)
    assert world.reserved() == [TEAM]
    await pass_by(world, 2 * GRACE)
    assert (world.devices("shared"), world.reserved()) == ([], [])
