"""A claim that is deleted while its pod runs: its devices go to nobody before the pod has ended, and people hear of it."""

import pytest
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.events import AllocationObserved
from dra_extender.scheduling.binding.conflicts import find_conflicting_claims
from dra_extender.scheduling.binding.reports import DELETED_IN_USE_REASON
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import InMemoryExtender


async def running(options: Options | None = None) -> InMemoryExtender:
    """One node with one device, on which `first` runs; `second` wants the same."""
    world = InMemoryExtender(options or Options(hold_wait_seconds=0.0, new_claim_wait_seconds=0.0))
    world.furnish(n1=1, first="first", second="second")
    await world.bind_through("first", "n1")
    return world


def strip_and_delete(world: InMemoryExtender, claim: str) -> None:
    """What the owner of a claim may do without the admission policy."""
    raw = world.claim(claim)
    raw["metadata"]["finalizers"] = []
    world.update(StoredKind.CLAIM, raw)
    world.delete(StoredKind.CLAIM, claim)


@pytest.mark.parametrize("end", ["gone", "over"])
async def test_device_of_a_deleted_claim_goes_to_nobody_before_its_pod_has_ended(end: str) -> None:
    world = await running()
    strip_and_delete(world, "first")
    assert (await world.filter("second", "n1")).fitting == ()
    mark = world.ledger.changes.devices

    if end == "gone":
        world.delete(StoredKind.POD, "first")
    else:
        raw = world.pod("first")
        raw["status"] = {**raw.get("status", {}), "phase": "Succeeded"}
        world.cluster.store.update_status(StoredKind.POD, raw)
        world.sync()

    assert world.ledger.changes.devices > mark
    assert (await world.filter("second", "n1")).fitting == ("n1",)


async def test_preemption_of_the_pod_frees_the_device_of_its_deleted_claim() -> None:
    world = await running()
    strip_and_delete(world, "first")
    victims = {"n1": [world.uid("first")]}

    assert await world.extender.preempt(pod_from(world.pod("second")), victims) == victims


async def test_people_hear_of_it_by_an_event_on_the_pod_and_metrics() -> None:
    world = await running()
    await world.extender.start()
    strip_and_delete(world, "first")
    events = world.cluster.events.of_pod(world.uid("first"))
    told = [each for each in events if each.reason == DELETED_IN_USE_REASON]
    await world.extender.stop()

    assert len(told) == 1
    assert "ResourceClaim default/first was deleted while this pod uses its devices" in told[0].message
    assert "gpu.example.com/n1/gpu-0" in told[0].message
    assert await world.metric("dra_extender_orphaned_allocations") == 1
    assert await world.metric("dra_extender_claims_deleted_in_use_total") == 1
    world.delete(StoredKind.POD, "first")
    assert await world.metric("dra_extender_orphaned_allocations") == 0


async def test_new_leader_reports_what_it_saw_as_a_standby() -> None:
    world = await running()
    strip_and_delete(world, "first")
    assert DELETED_IN_USE_REASON not in [each.reason for each in world.cluster.events.of_pod(world.uid("first"))]
    await world.extender.start()
    events = world.cluster.events.of_pod(world.uid("first"))
    await world.extender.stop()

    assert DELETED_IN_USE_REASON in [each.reason for each in events]


async def test_claim_that_its_pod_has_done_with_leaves_nothing_behind() -> None:
    world = await running()
    world.delete(StoredKind.POD, "first")
    strip_and_delete(world, "first")

    assert len(world.ledger.claims.orphans) == 0
    assert (await world.filter("second", "n1")).fitting == ("n1",)


async def test_allocation_that_is_cleared_while_the_pod_runs_frees_the_device_as_upstream() -> None:
    world = await running()
    raw = world.claim("first")
    raw["status"] = {}
    world.cluster.store.update_status(StoredKind.CLAIM, raw)
    world.sync()

    assert (await world.filter("second", "n1")).fitting == ("n1",)


async def test_allocation_of_another_writer_on_the_same_device_is_reported() -> None:
    world = await running()
    await world.extender.start()
    strip_and_delete(world, "first")
    record = world.ledger.claims.orphans.of_pod(world.uid("first"))[0].record
    world.allocate("second", "gpu-0")
    seen: list[ClaimRecord] = []
    world.ledger.events.subscribe(AllocationObserved, lambda event: seen.append(event.record))
    world.sync()
    await world.extender.stop()

    found = find_conflicting_claims(seen[0], world.ledger.claims, world.ledger.slices)
    assert found is not None
    assert found[1] == (record,)


async def test_a_filter_call_frees_nothing_of_a_pod_whose_binding_is_on_its_way() -> None:
    """kube-scheduler may ask again about a pod whose bind it gave up, and which is bound all the same."""
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, new_claim_wait_seconds=0.0))
    world.furnish(n1=1, first="first", second="second")
    pod = pod_from(world.pod("first"))
    holder = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    result = {"request": "req", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    raw = world.claim("first")
    raw["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]}
    world.cluster.store.update_status(StoredKind.CLAIM, raw)
    world.sync()
    world.ledger.pods.begin_binding(pod)
    world.delete(StoredKind.CLAIM, "first")
    assert (await world.filter("second", "n1")).fitting == ()
    assert (await world.filter("first", "n1")).fitting == ()
    assert (await world.filter("second", "n1")).fitting == ()
    world.ledger.pods.binding_failed(pod.uid)
    await world.filter("first", "n1")
    assert (await world.filter("second", "n1")).fitting == ("n1",)


async def test_a_device_of_a_pod_that_may_be_bound_goes_to_nobody_when_its_claim_is_deleted() -> None:
    """The answer to its Binding is lost, it cannot be read back, and the watch of pods is behind."""
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, new_claim_wait_seconds=0.0))
    world.furnish(n1=1, first="first", second="second")
    pods = Seam(world.cluster.pods)
    restart(world, pods=pods)
    world.silence("pods")
    pods.after("bind", ServerUnavailableError("no answer")).before("read", ServerUnavailableError("no answer"))
    async with world.watching():
        with pytest.raises(RetryableError, match="reading it back: no answer"):
            await world.bind("first", "n1")
    assert world.node_of("first") == "n1"
    strip_and_delete(world, "first")
    assert (await world.filter("second", "n1")).fitting == ()
