"""What others do while a bind waits for devices or for its gang is noticed; devices are given back, or stay the pod's own."""

import asyncio
from collections.abc import Callable

import pytest
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.fields import Gate
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served

from tests.support.scheduling.adversity import edit, troubled_world
from tests.support.scheduling.grouped import NAMED, PodGroupExtender
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender
from tests.support.turns import turns


@pytest.fixture
def world() -> InMemoryExtender:
    return troubled_world()


def strip(claim: Json) -> None:
    """Takes off what protects an allocation and says what it froze."""
    claim["metadata"]["finalizers"] = []
    del claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]


def is_whole(world: InMemoryExtender) -> bool:
    metadata = world.claim("c1")["metadata"]
    return metadata["finalizers"] == [FINALIZER] and SNAPSHOT_ANNOTATION in metadata["annotations"]


async def test_finalizer_and_snapshot_that_are_taken_off_during_the_wait_are_put_back_before_the_binding(
    world: InMemoryExtender,
) -> None:
    """Without the finalizer the claim could be deleted under the running pod."""
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        edit(world, strip)()
        world.report("Attached")
        await bind

    assert is_whole(world)
    assert world.node_of() == "n2"


async def test_conditions_that_only_the_snapshot_has_are_waited_for_even_if_somebody_takes_it_off(
    world: InMemoryExtender,
) -> None:
    """An API server that stores no binding conditions: without the snapshot the device seems to be ready."""
    world.cluster.store._served = Served(off=frozenset({Gate.BINDING_CONDITIONS}))
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        assert "bindingConditions" not in world.claim("c1")["status"]["allocation"]["devices"]["results"][0]
        edit(world, strip)()
        with pytest.raises(RetryableError, match=r"not ready any more: device .*/n2/gpu-0 waits for Attached"):
            await bind
        assert is_whole(world)
        again = await world.waiting("p1", "n2")
        world.report("Attached")
        await again

    assert world.node_of() == "n2"


async def test_slices_that_change_or_vanish_during_the_wait_change_nothing_of_what_is_allocated(
    world: InMemoryExtender,
) -> None:
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        world.delete(StoredKind.SLICE, "n2-devices")
        world.slice("n2", [{"name": "gpu-0"}])
        await turns()
        assert not bind.done()
        world.report("Attached")
        await bind

    assert world.devices("c1") == ["n2/gpu-0"]
    assert world.node_of() == "n2"


async def test_a_node_that_goes_away_ends_the_wait_at_once_and_its_devices_are_given_back(
    world: InMemoryExtender,
) -> None:
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        world.delete(StoredKind.NODE, "n2")
        with pytest.raises(RetryableError, match="node n2 does not exist any more"):
            await asyncio.wait_for(bind, 60)
        await world.extender.reclaim.sweep()
        world.clock.seconds += world.options.reclaim_unfit_seconds
        await world.extender.reclaim.sweep()
        assert world.devices("c1") == []
        await world.cluster.watch.caught_up()
        await world.bind("p1", "n1")

    assert world.node_of() == "n1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), "does not exist any more"),
        (lambda pod: pod["spec"].update(nodeName="n1"), "is bound to node n1 already"),
    ],
)
async def test_a_wait_ends_at_once_when_the_pod_is_being_deleted_or_bound_elsewhere(
    world: InMemoryExtender, change: Callable[[Json], None], words: str
) -> None:
    """Pods of jobs stay for a while when they are deleted: they have finalizers."""
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        world.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", "p1"), change)
        with pytest.raises(RetryableError, match=words):
            await asyncio.wait_for(bind, 60)


async def test_both_of_two_devices_that_fail_are_named_and_left_alone(world: InMemoryExtender) -> None:
    world.add_claim("pair", count=2)
    world.add_pod("p3", "pair")
    async with world.watching():
        bind = asyncio.create_task(world.bind("p3", "n2"))
        await turns()
        world.report("Failed", "pair")
        with pytest.raises(RetryableError, match=r"gpu-0 reports Failed.*gpu-1 reports Failed"):
            await bind

    left_alone = world.extender.device_backoff.devices_of(world.uid("p3"))
    assert left_alone == {(DRIVER, "n2", "gpu-0"), (DRIVER, "n2", "gpu-1")}
    assert world.devices("pair") == []


async def test_a_condition_that_comes_and_goes_counts_when_all_are_there_at_once(world: InMemoryExtender) -> None:
    world.add_claim("pair", count=2)
    world.add_pod("p3", "pair")

    def say(status: str, device: str) -> Json:
        condition = {"type": "Attached", "status": status, "reason": "Test", "message": ""}
        return {"driver": DRIVER, "pool": "n2", "device": device, "conditions": [condition]}

    async def told(first: str, second: str) -> None:
        stored = world.claim("pair")
        stored["status"]["devices"] = [say(first, "gpu-0"), say(second, "gpu-1")]
        world.cluster.store.update_status(StoredKind.CLAIM, stored)
        await turns()

    async with world.watching():
        bind = asyncio.create_task(world.bind("p3", "n2"))
        await turns()
        for statuses in (("True", "False"), ("False", "True"), ("Unknown", "True"), ("False", "False")):
            await told(*statuses)
            assert not bind.done()
        await told("True", "True")
        await bind

    assert world.node_of("p3") == "n2"


async def test_everything_listed_anew_during_a_wait_neither_ends_nor_repeats_it(world: InMemoryExtender) -> None:
    async with world.watching():
        bind = await world.waiting("p1", "n2")
        world.cluster.watch.attach(sinks_of(world.ledger))
        await turns()
        assert not bind.done()
        world.report("Attached")
        await bind

    assert len([each for each in world.messages("p1") if "waits for Attached" in each]) == 1
    assert world.node_of() == "n2"


async def test_a_device_that_fails_while_its_gang_is_waited_for_is_given_back_and_no_member_is_bound() -> None:
    """It was ready in time, and so its pod stood at the gate."""
    world = InMemoryExtender()
    world.node("n1")
    world.slice("n1", [{"name": f"gpu-{index}", **CONDITIONS} for index in range(3)])
    world.device_class()
    world.add_group("g", 2)
    for name in ("p1", "p2"):
        world.add_claim(name)
        world.add_member("g", name, name)
    async with world.watching():
        binds = [asyncio.create_task(world.bind(name, "n1")) for name in ("p1", "p2")]
        await turns()
        world.report("Attached", claim="p1")
        await turns()
        world.report("Failed", claim="p1")
        await turns()
        world.report("Attached", claim="p2")
        with pytest.raises(RetryableError, match="binding conditions failed"):
            await binds[0]
        await turns()
        assert (world.node_of("p1"), world.node_of("p2")) == ("", "")
        assert world.devices("p1") == []
        again = asyncio.create_task(world.bind("p1", "n1"))
        await turns()
        world.report("Attached", claim="p1")
        await asyncio.gather(again, binds[1])

    assert (world.node_of("p1"), world.node_of("p2")) == ("n1", "n1")


async def test_a_device_that_another_writer_has_first_is_given_back_before_anybody_hears_of_a_wait_for_it(
    world: InMemoryExtender,
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    world.add_claim("foreign")
    claims.before("update_status", lambda: world.allocate("foreign", "gpu-0", pool="n2"))
    async with world.watching():
        with pytest.raises(RetryableError, match=r"another writer allocated device .*/n2/gpu-0 first"):
            await world.bind("p1", "n2")
    assert world.devices("c1") == []
    assert not world.messages("p1")
    assert not world.pod("p1").get("status", {}).get("nominatedNodeName")


async def test_all_members_that_run_on_the_claim_of_their_group_are_told_what_a_foreign_writer_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PodGroupExtender()
    monkeypatch.setattr(world.extender.conflict_monitor, "report_seconds", 0.0)
    world.devices_everywhere()
    world.add_claim("shared")
    world.group(NAMED)
    for name in ("a", "b", "waiting"):
        world.member(name)
    await world.extender.start()
    async with world.watching():
        await asyncio.gather(world.bind("a", "n1"), world.bind("b", "n1"))
        await world.cluster.watch.caught_up()
        world.allocate_foreign(pool="fabric")
        await world.cluster.watch.caught_up()
        await turns()
    await world.extender.stop()

    told = ["was given to claim default/foreign" in " ".join(world.messages(each)) for each in ("a", "b", "waiting")]
    assert told == [True, True, False]


@pytest.mark.parametrize("left", ["allocation", "snapshot"])
async def test_a_process_that_dies_while_it_gives_a_failed_device_back_is_carried_on_by_the_next(
    world: InMemoryExtender, left: str
) -> None:
    """What is left is found by the next bind, and where none comes, by reclaim."""
    claims = Seam(world.cluster.claims)
    claims.before("update_status" if left == "allocation" else "update", None, asyncio.Event().wait)
    restart(world, claims=claims)
    async with world.watching():
        dying = await world.waiting("p1", "n2")
        world.report("Failed")
        await turns()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    assert world.devices("c1") == (["n2/gpu-0"] if left == "allocation" else [])
    assert SNAPSHOT_ANNOTATION in world.claim("c1")["metadata"]["annotations"]

    restart(world)
    async with world.watching():
        if left == "allocation":
            with pytest.raises(RetryableError, match="binding conditions failed"):
                await world.bind("p1", "n2")
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.node_of() == "n1"
