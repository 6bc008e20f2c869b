"""What nobody uses is given back, after a while, one claim at a time."""

import asyncio
from collections.abc import Callable

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.reclaiming import (
    GRACE,
    OPTIONS,
    bound_to,
    condition,
    edit_pod,
    edit_status,
    pass_by,
    reclaimed,
    small_world,
)
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import turns, until


@pytest.fixture
def world() -> InMemoryExtender:
    return small_world()


def over(pod: Json) -> None:
    pod["status"]["phase"] = "Succeeded"


def gone(world: InMemoryExtender) -> None:
    world.delete(StoredKind.POD, "p1")


def succeeded(world: InMemoryExtender) -> None:
    edit_pod(world, over)


def elsewhere(world: InMemoryExtender) -> None:
    edit_pod(world, bound_to("n2"))


def unreserved(world: InMemoryExtender) -> None:
    edit_status(world, lambda status: status.pop("reservedFor"))


def idle(world: InMemoryExtender) -> None:
    """Nothing happens: the pod just waits."""


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (gone, "pod_gone"),
        (succeeded, "pod_over"),
        (elsewhere, "pod_elsewhere"),
        (unreserved, "unreserved"),
        (idle, "pod_idle"),
    ],
)
async def test_an_unused_allocation_is_released_after_the_grace(
    world: InMemoryExtender, happens: Callable[[InMemoryExtender], None], reason: str
) -> None:
    await world.abandoned("p1")
    happens(world)
    await pass_by(world, GRACE - 1)
    assert world.devices("c1") == ["n1/gpu-0"]

    await pass_by(world, 2)

    assert world.devices("c1") == []
    assert not world.claim("c1")["status"].get("reservedFor")
    assert SNAPSHOT_ANNOTATION not in world.claim("c1")["metadata"].get("annotations", {})
    assert await reclaimed(world, reason) == 1


async def test_time_starts_anew_when_the_claim_is_allocated_anew(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    await pass_by(world, GRACE - 1)
    status = world.claim("c1")["status"]
    status["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    edit_status(world, lambda stored: stored.clear())
    edit_status(world, lambda stored: stored.update(status), "dra-extender")
    await pass_by(world, GRACE - 1)
    assert world.devices("c1") == ["n1/gpu-0"]
    await pass_by(world, 2)
    assert world.devices("c1") == []


async def test_reports_of_drivers_do_not_delay_the_release_of_devices(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    for number in range(4):
        await pass_by(world, GRACE / 4 - 0.5)
        assert world.devices("c1") == ["n1/gpu-0"]
        report = condition(world, f"Report{number}")
        edit_status(world, lambda status, new=report: status.update(devices=[new]))  # type: ignore[misc]
    await pass_by(world, 3)
    assert world.devices("c1") == []


async def test_a_finished_pod_that_is_reserved_in_turns_does_not_delay_the_release_of_devices(
    world: InMemoryExtender,
) -> None:
    """kube-controller-manager does so with a bound pod that is over while its claim stays allocated for another."""
    world.add_pod("p2", "c1")
    edit_pod(world, over, "p2")
    await world.abandoned("p1")
    (mine,) = world.claim("c1")["status"]["reservedFor"]
    entry = {"resource": "pods", "name": "p2", "uid": world.uid("p2")}
    for turn in range(4):
        await pass_by(world, GRACE / 4 - 0.5)
        assert world.devices("c1") == ["n1/gpu-0"]
        consumers = [mine, entry] if turn % 2 == 0 else [mine]
        edit_status(world, lambda status, new=consumers: status.update(reservedFor=new))  # type: ignore[misc]
    await pass_by(world, 3)
    assert world.devices("c1") == []


async def test_the_reservation_of_one_pod_goes_while_another_uses_the_claim(world: InMemoryExtender) -> None:
    world.add_pod("p2", "c1")
    await world.abandoned("p1")
    await world.bind_through("p2", "n1")

    await pass_by(world, GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]
    assert [each["name"] for each in world.claim("c1")["status"]["reservedFor"]] == ["p2"]
    assert await reclaimed(world, "pod_idle") == 1


async def test_a_bound_pod_keeps_its_devices_for_ever(world: InMemoryExtender) -> None:
    await world.bind_through("p1", "n1")
    version = world.cluster.store.version

    for _ in range(3):
        await pass_by(world, 10 * GRACE)

    assert world.cluster.store.version == version


async def test_a_pod_that_runs_keeps_its_devices_even_when_its_node_is_not_known_any_more(
    world: InMemoryExtender,
) -> None:
    await world.bind_through("p1", "n1")
    edit_pod(world, lambda pod: pod["status"].update(phase="Running"))
    world.delete(StoredKind.NODE, "n1")

    await pass_by(world, 10 * GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]


async def test_an_allocation_for_a_node_that_does_not_suit_its_pod_is_released_at_once(world: InMemoryExtender) -> None:
    """kube-scheduler offers the other node only, because the first is full or cordoned."""
    await world.abandoned("p1")
    assert list((await world.filter("p1", "n2")).fitting) == []

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == []
    assert await reclaimed(world, "node_unfit") == 1
    assert list((await world.filter("p1", "n2")).fitting) == ["n2"]
    assert any("its node does not suit" in text for text in world.messages("p1"))


async def test_a_pod_that_fits_in_the_second_call_of_one_attempt_keeps_its_allocation(world: InMemoryExtender) -> None:
    """kube-scheduler asks about the nominated node alone first."""
    await world.abandoned("p1")
    await world.filter("p1", "n2")
    await world.filter("p1", "n1", "n2")

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == ["n1/gpu-0"]


async def test_a_pod_for_which_others_are_evicted_from_its_node_keeps_its_allocation(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    edit_pod(world, lambda pod: pod["status"].update(nominatedNodeName="n1"))
    await world.filter("p1", "n2")

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == ["n1/gpu-0"]


async def test_an_allocation_whose_node_is_gone_is_released_at_once(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    world.delete(StoredKind.NODE, "n1")

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == []
    assert await reclaimed(world, "node_gone") == 1


async def crashed_while_waiting(world: InMemoryExtender) -> None:
    await world.killed("p1", "n3")
    world.start()


async def test_devices_that_failed_while_nobody_waited_are_released_at_once(world: InMemoryExtender) -> None:
    await crashed_while_waiting(world)
    edit_status(world, lambda status: status.update(devices=[condition(world, "Failed")]))

    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == []
    assert await reclaimed(world, "device_failed") == 1


async def test_devices_are_given_time_to_become_ready_and_not_more(world: InMemoryExtender) -> None:
    await crashed_while_waiting(world)
    await pass_by(world, OPTIONS.binding_timeout_seconds - 10)
    assert world.devices("c1") == ["n3/gpu-0"]

    await pass_by(world, 11)
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)

    assert world.devices("c1") == []
    assert await reclaimed(world, "device_timed_out") == 1


async def test_an_allocation_of_another_scheduler_stays(world: InMemoryExtender) -> None:
    """Its allocation looks like ours; only the managed fields tell, and they are looked at once."""

    def allocate(status: Json) -> None:
        result = {"request": "req", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
        status["allocation"] = {"devices": {"results": [result]}}

    claim = world.claim("c1")
    claim["metadata"]["finalizers"] = [FINALIZER]
    world.cluster.store.update(StoredKind.CLAIM, claim, "kube-scheduler")
    claim = world.claim("c1")
    claim["status"] = {}
    allocate(claim["status"])
    world.cluster.store.update_status(StoredKind.CLAIM, claim, "kube-scheduler")
    world.sync()

    for _ in range(3):
        await pass_by(world, GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]
    assert await reclaimed(world, "unreserved", "foreign") == 1


async def test_a_reservation_of_another_scheduler_keeps_our_allocation(world: InMemoryExtender) -> None:
    await world.abandoned("p1")
    world.add_pod("p2", "c1")
    uid = world.uid("p2")
    consumer = {"resource": "pods", "name": "p2", "uid": uid}
    edit_status(world, lambda status: status["reservedFor"].append(consumer), "kube-scheduler")

    await pass_by(world, GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.claim("c1")["status"]["reservedFor"] == [consumer]
    assert world.messages("p1")[-1].startswith("the reservation of claim default/c1 was given back: ")
    assert not world.messages("p2")


@pytest.mark.parametrize("finalizers", [[], [FINALIZER]])
async def test_our_reservation_in_an_allocation_of_another_scheduler_ends_as_for_kube_controller_manager(
    world: InMemoryExtender, finalizers: list[str]
) -> None:
    claim = world.claim("c1")
    claim["metadata"]["finalizers"] = finalizers
    world.cluster.store.update(StoredKind.CLAIM, claim, "kube-scheduler")
    world.allocate("c1", "gpu-0", writer="kube-scheduler")
    world.sync()
    await world.abandoned("p1")

    await pass_by(world, GRACE)

    assert world.devices("c1") == ([] if finalizers else ["n1/gpu-0"])
    assert not world.claim("c1")["status"].get("reservedFor")
    assert await reclaimed(world, "pod_idle") == 1


async def test_a_half_written_allocation_is_removed(world: InMemoryExtender) -> None:
    restart(world, claims=Seam(world.cluster.claims).before("update_status", asyncio.Event().wait))
    await world.killed("p1", "n1")
    restart(world)
    assert world.claim("c1")["metadata"]["finalizers"] == [FINALIZER]

    await pass_by(world, GRACE)

    metadata = world.claim("c1")["metadata"]
    assert not metadata.get("finalizers")
    assert SNAPSHOT_ANNOTATION not in metadata.get("annotations", {})
    assert await reclaimed(world, "half_written") == 1


async def test_a_hold_without_a_bind_ends_by_itself(world: InMemoryExtender) -> None:
    await world.filter("p1", "n1", "n2")
    world.clock.seconds += OPTIONS.hold_seconds - 1
    await world.extender.reclaim.check_suspects()
    assert len(world.ledger.holds) == 1

    world.clock.seconds += 2
    await world.extender.reclaim.check_suspects()

    assert len(world.ledger.holds) == 0
    assert await reclaimed(world, "hold_expired") == 1


async def test_a_hold_that_expired_in_a_filter_call_is_counted(world: InMemoryExtender) -> None:
    world.add_claim("c2")
    world.add_pod("p2", "c2")
    await world.filter("p1", "n1")
    world.clock.seconds += OPTIONS.hold_seconds
    assert list((await world.filter("p2", "n1")).fitting) == ["n1"]

    await world.extender.reclaim.check_suspects()

    assert await reclaimed(world, "hold_expired") == 1


async def started(options: Options) -> InMemoryExtender:
    """The loop runs by itself; pod p1 holds the only device of n1 for nothing, and p2, which can only use n1, was refused."""
    world = InMemoryExtender(options).furnish(n1=1, p1="c1", p2="c2")
    await world.abandoned("p1")
    assert list((await world.filter("p2", "n1")).fitting) == []
    return world


async def test_the_loop_releases_devices_and_wakes_the_pod_that_waits_for_them() -> None:
    options = Options(reclaim_grace_seconds=0.0, reclaim_pause_seconds=0.0, wake_delay_seconds=0.0)
    world = await started(options)

    async with world.watching():
        await world.extender.start()
        try:
            assert await world.cluster.waker.called_since(0, 10.0)
            await until(lambda: not world.devices("c1"))
            assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
        finally:
            await world.extender.stop()


async def test_the_controller_pauses_between_two_releases() -> None:
    """Here so long a one that the second never comes; the stop does not wait for it."""
    world = InMemoryExtender(Options(reclaim_grace_seconds=0.0, reclaim_pause_seconds=3600.0, hold_wait_seconds=0.0))
    world.furnish(n1=2, p1="c1", p2="c2")
    for pod in ("p1", "p2"):
        await world.abandoned(pod)
    async with world.watching():
        await world.extender.start()
        try:
            async with asyncio.timeout(60):
                await world.ledger.hinted.wait()
            await turns()
        finally:
            await world.extender.stop()
    assert len(world.devices("c1") + world.devices("c2")) == 1


async def test_nothing_is_released_while_reclaim_is_switched_off() -> None:
    world = InMemoryExtender(Options(reclaim_enabled=False, hold_wait_seconds=0.0)).furnish(n1=1, p1="c1")
    await world.abandoned("p1")
    world.delete(StoredKind.POD, "p1")

    await pass_by(world, 10 * GRACE)

    assert world.devices("c1") == ["n1/gpu-0"]
