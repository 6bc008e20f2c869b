"""A pod counts as unschedulable until it is placed, deleted, or was deleted unseen."""

from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.scheduling.world import InMemoryExtender


async def rejected(*, delivered: bool) -> InMemoryExtender:
    """A world whose extender rejected a pod, which the watch has or has not delivered."""
    world = InMemoryExtender()
    world.node("n0")
    world.device_class()
    world.add_claim("c1")
    spec = {
        "schedulerName": "dra-extender-scheduler",
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "c1", "resourceClaimName": "c1"}],
    }
    world.cluster.store.create(StoredKind.POD, {"metadata": {"name": "p1"}, "spec": spec})
    if delivered:
        world.sync()
    assert list((await world.filter("p1", "n0")).fitting) == []
    assert len(world.extender.unschedulable) == 1
    return world


async def test_a_pod_that_was_deleted_in_a_gap_of_the_watch_is_forgotten_after_a_minute() -> None:
    world = await rejected(delivered=False)
    world.cluster.store.delete(Key(StoredKind.POD, "default", "p1"))
    world.clock.seconds += 59
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 1
    world.clock.seconds += 1
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 0


async def test_a_pod_that_the_watch_has_is_remembered_as_long_as_it_waits() -> None:
    world = await rejected(delivered=True)
    world.clock.seconds += 3600
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 1
    world.delete(StoredKind.POD, "p1")
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 0


async def test_a_pod_waits_since_its_first_rejection_under_the_name_of_its_scheduler() -> None:
    world = await rejected(delivered=True)
    value = world.metrics.registry.get_sample_value
    world.clock.seconds += 30
    assert list((await world.filter("p1", "n0")).fitting) == []
    world.clock.seconds += 12
    await world.metrics.render()
    labels = {"plugin": "DynamicResources", "profile": "dra-extender-scheduler"}
    assert value("scheduler_unschedulable_pods", labels) == 1
    assert value("dra_extender_waiting_pods_longest_seconds") == 42

    world.delete(StoredKind.POD, "p1")
    world.extender.unschedulable.forget_resolved()
    await world.metrics.render()
    assert value("scheduler_unschedulable_pods", labels) is None
    assert value("dra_extender_waiting_pods_longest_seconds") == 0
