"""What another scheduler's set of allocated devices loses when an allocation of ours is released, and what puts it back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from dra_extender.ledger.guard_index import GUARD_PREFIX, name_of_guard
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options, YieldPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.audit.raw_objects import audit
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender
from tests.support.turns import turns, until

OURS = "dra-extender"
GPU = (DRIVER, "n1", "gpu-0")


def a_world(mode: YieldPolicy = YieldPolicy.GUARD) -> InMemoryExtender:
    """One device, whose binding conditions make a bind wait."""
    world = InMemoryExtender(
        Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0, yield_policy=mode)
    )
    world.node("n1")
    world.slice("n1", [{"name": "gpu-0", **CONDITIONS}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    return world


@asynccontextmanager
async def at_work(world: InMemoryExtender) -> AsyncIterator[None]:
    """The service runs, and the watch brings what is stored."""
    await world.extender.start()
    try:
        async with world.watching():
            yield
            await world.cluster.watch.caught_up()
    finally:
        await world.extender.stop()


def foreign(world: InMemoryExtender, name: str = "foreign", namespace: str = "default") -> None:
    """Another scheduler allocates the device to a claim of its own."""
    spec = {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
    stored = world.cluster.store.create(
        StoredKind.CLAIM, {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    )
    stored["status"] = {"allocation": {"devices": {"results": [{"request": "req", **device()}]}}}
    world.cluster.store.update_status(StoredKind.CLAIM, stored)


def device() -> Json:
    return dict(zip(("driver", "pool", "device"), GPU, strict=True))


def guards(world: InMemoryExtender) -> list[Json]:
    return [each for each in world.cluster.store.all(StoredKind.CLAIM) if each["metadata"]["namespace"] == OURS]


async def yielding(world: InMemoryExtender) -> None:
    """A bind of ours that waits for its device and ends because another scheduler allocates that device."""
    bind = await world.waiting()
    foreign(world)
    with pytest.raises(RetryableError, match="another writer allocated device"):
        await bind


async def guarded(world: InMemoryExtender) -> Json:
    """The one guard claim, when it is allocated."""
    await until(lambda: any("allocation" in each.get("status", {}) for each in guards(world)))
    (guard,) = guards(world)
    return guard


async def test_device_that_ours_gives_up_is_guarded_until_the_foreign_allocation_ends() -> None:
    world = a_world()
    async with at_work(world):
        await yielding(world)
        guard = await guarded(world)
        assert guard["status"]["allocation"]["devices"]["results"] == [{"request": "guard", **device()}]
        assert "reservedFor" not in guard["status"]
        await world.cluster.watch.caught_up()
        assert len(world.ledger.claims.usage.pool(GPU[:2])["gpu-0"]) == 1
        assert world.ledger.claims.by_uid(guard["metadata"]["uid"]) is None
        assert "dra_extender_guard_claims 1.0" in (await world.metrics.render()).decode()
        claims = [claim_from(each) for each in world.cluster.store.all(StoredKind.CLAIM)]
        others = [each for each in claims if each.metadata.namespace != OURS]
        assert audit(claims, (), (), (), guard_namespace=OURS) == audit(others, (), (), ())
        world.delete(StoredKind.CLAIM, "foreign")
        await until(lambda: not guards(world))


async def test_ours_is_kept_and_used_where_it_is_to_wait_for_the_end_of_the_foreign_allocation() -> None:
    world = a_world(YieldPolicy.WAIT)
    async with at_work(world):
        bind = await world.waiting()
        foreign(world)
        await turns()
        assert not bind.done()
        world.delete(StoredKind.CLAIM, "foreign")
        world.report("Attached")
        await asyncio.wait_for(bind, 60)
    assert world.node_of("p1") == "n1"
    assert guards(world) == []


async def test_wait_for_a_foreign_allocation_ends_with_the_time_of_the_bind() -> None:
    world = a_world(YieldPolicy.WAIT)
    async with at_work(world):
        bind = await world.waiting()
        foreign(world)
        await turns()
        world.clock.seconds += world.options.binding_timeout_seconds
        with pytest.raises(RetryableError, match=r"waits for the end of that allocation|timed out"):
            await asyncio.wait_for(bind, 60)


async def test_ours_is_released_at_once_and_nothing_guarded_where_that_is_set() -> None:
    world = a_world(YieldPolicy.CLEAR)
    async with at_work(world):
        await yielding(world)
        await turns()
        assert world.devices("c1") == []
        assert guards(world) == []


async def test_guard_that_another_foreign_allocation_crossed_is_allocated_anew() -> None:
    """The other scheduler gave the device to a second claim just when the guard went, and lost it from its set again."""
    world = a_world()
    async with at_work(world):
        await yielding(world)
        first = await guarded(world)
        foreign(world, "second")
        world.delete(StoredKind.CLAIM, "foreign")
        await turns()
        again = await guarded(world)
        assert again["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        world.cluster.store.delete(Key(StoredKind.CLAIM, OURS, name_of_guard(GPU)))
        await turns()
        assert (await guarded(world))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_device_of_a_bound_pod_is_guarded_when_that_pod_ends_before_the_foreign_one() -> None:
    world = a_world()
    async with at_work(world):
        bind = await world.waiting()
        world.report("Attached")
        await bind
        foreign(world)
        await world.cluster.watch.caught_up()
        assert guards(world) == []
        world.delete(StoredKind.POD, "p1")
        ended = world.claim("c1")
        del ended["status"]["allocation"], ended["status"]["reservedFor"]
        world.cluster.store.update_status(StoredKind.CLAIM, ended)
        await guarded(world)


async def test_claim_of_a_tenant_that_is_called_like_a_guard_counts() -> None:
    world = a_world()
    async with at_work(world):
        foreign(world, f"{GUARD_PREFIX}mine")
        await world.cluster.watch.caught_up()
        assert (await world.filter("p1", "n1")).fitting == ()
    assert len(world.ledger.guards) == 0


async def test_no_more_guards_are_made_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.scheduling.binding.guards.MOST_GUARDS", 0)
    world = a_world()
    async with at_work(world):
        await yielding(world)
        await turns()
        assert guards(world) == []


async def test_late_news_of_a_guard_claim_that_was_made_anew_say_nothing_of_the_new_one() -> None:
    world = a_world()
    async with at_work(world):
        await yielding(world)
        stored = await guarded(world)
    ledger = Ledger()
    ledger.guards.namespace = OURS
    old, new = (
        {**stored, "metadata": {**stored["metadata"], "uid": uid, "resourceVersion": version}}
        for uid, version in (("old", "7"), ("new", "9"))
    )
    ledger.guard_stored(msgspec.json.encode(new))
    ledger.claim_seen(msgspec.json.encode(old))
    ledger.claim_gone(OURS, stored["metadata"]["name"], "old")
    guard = ledger.guards.of_device(GPU)
    assert guard is not None
    assert guard.uid == "new"
