"""A node is in backoff for a pod whose binds undid their own allocations there twice."""

from collections.abc import Callable

import pytest
from dra_extender.allocator.rules.violations import GROUPS
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.binding import conflicts, decision
from dra_extender.scheduling.binding.conflicts import FOREIGN, OWN, AllocationConflict
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import StoredKind
from structlog.testing import capture_logs

from tests.support.scheduling.world import DRIVER, InMemoryExtender, Steady
from tests.support.turns import until

BOTH = ("n1", "n2")
REPORTED = "the same was allocated twice"


@pytest.fixture
def world() -> InMemoryExtender:
    return InMemoryExtender().furnish(n1=2, n2=2, p1="c1")


def disagreeing(node: str) -> Callable[..., AllocationConflict | None]:
    """A check after the write that refuses what the search offers on this node."""

    def judge(record: object, *_: object) -> AllocationConflict | None:
        (holding,) = record.holdings  # type: ignore[attr-defined]
        return AllocationConflict(GROUPS, f"{DRIVER}/{node}/s", OWN) if holding.pool == node else None

    return judge


async def tried(world: InMemoryExtender, *nodes: str) -> str:
    """One round of kube-scheduler: the first offered node, with what became of it."""
    offered = list((await world.filter("p1", *nodes)).fitting)
    if not offered:
        return "unschedulable"
    try:
        await world.bind("p1", offered[0])
    except RetryableError as problem:
        return str(problem)
    return f"bound to {offered[0]}"


async def test_node_is_offered_twice_and_then_left_alone_for_a_while(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "find_conflict", disagreeing("n1"))
    undone = f"claim default/c1: groups {DRIVER}/n1/s was allocated to another claim of this scheduler first"
    async with world.watching():
        assert [await tried(world, "n1") for _ in range(3)] == [undone, undone, "unschedulable"]
        assert Code.NODE_IN_BACKOFF in world.messages("p1")[-1]
        assert world.devices("c1") == []
        assert list((await world.filter("p1", *BOTH)).fitting) == ["n2"]
        world.clock.seconds += 61.0
        monkeypatch.setattr(conflicts, "find_conflict", lambda *_: None)
        assert await tried(world, "n1") == "bound to n1"
    labels = {"kind": "groups", "outcome": "yielded", "writer": "own"}
    assert await world.metric("dra_extender_allocation_overlaps_total", **labels) == 2


async def test_undone_twice_within_ten_minutes_counts_for_each_pod_and_node_alone() -> None:
    clock, ended = Steady(), list[str]()
    back_off = DeviceBackoff(clock, 0.0, ended.append)
    back_off.bind_undone("p1", "n1")
    back_off.bind_undone("p1", "n2")
    back_off.bind_undone("p2", "n1")
    assert not any(map(back_off.nodes_of, back_off.pods))
    back_off.bind_undone("p1", "n1")
    assert (back_off.nodes_of("p1"), back_off.nodes_of("p2")) == (frozenset({"n1"}), frozenset())
    clock.seconds += 59.0
    back_off.check_node("p1", "n1")
    assert (back_off.nodes_of("p1"), ended) == (frozenset({"n1"}), [])
    clock.seconds += 2.0
    back_off.check_node("p1", "n1")
    assert (back_off.nodes_of("p1"), ended) == (frozenset(), ["p1"])
    back_off.bind_undone("p1", "n1")
    assert back_off.nodes_of("p1") == {"n1"}
    clock.seconds += 61.0
    back_off.check_node("p1", "n1")
    clock.seconds += 600.0
    for pod, node in (("p1", "n1"), ("p1", "n2"), ("p2", "n1")):
        back_off.check_node(pod, node)
    assert not back_off.pods


async def test_bound_pod_is_forgotten() -> None:
    back_off = DeviceBackoff(Steady(), 0.0, lambda _: None)
    for _ in range(2):
        back_off.bind_undone("p1", "n1")
    back_off.forget("p1")
    assert not back_off.pods


async def test_what_the_rule_refuses_is_decided_anew_and_never_written(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held placement that is no good is searched for again; if the search says the same, nothing is written."""
    clash = AllocationConflict(GROUPS, f"{DRIVER}/n1/s")
    once = [clash]
    monkeypatch.setattr(decision, "find_violation", lambda *_: once.pop() if once else None)
    async with world.watching():
        assert await tried(world, "n1") == "bound to n1"
    world.add_claim("c2")
    world.add_pod("p2", "c2")
    monkeypatch.setattr(decision, "find_violation", lambda *_: clash)
    async with world.watching():
        version = world.claim("c2")["metadata"]["resourceVersion"]
        for _ in range(2):
            assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
            with pytest.raises(RetryableError, match="does not fit on node n1 any more: groups"):
                await world.bind("p2", "n1")
        assert list((await world.filter("p2", "n1")).fitting) == []
        assert world.claim("c2")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("writer", [FOREIGN, OWN])
async def test_allocation_of_a_bound_pods_device_is_reported_with_its_writer(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """A second extender of ours is no other writer: what it wrote has our snapshot."""
    monkeypatch.setattr(world.extender.conflict_monitor, "report_seconds", 0.0)
    await world.extender.start()
    async with world.watching():
        assert await tried(world, "n1") == "bound to n1"
        world.add_claim("other")
        stored = world.claim("other")
        stored["status"] = {"allocation": world.claim("c1")["status"]["allocation"]}
        if writer == OWN:
            snapshot = world.claim("c1")["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
            stored["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: snapshot}
            stored = world.cluster.store.update(StoredKind.CLAIM, {**stored, "status": {}}) | {
                "status": stored["status"]
            }
        with capture_logs() as logs:
            world.cluster.store.update_status(StoredKind.CLAIM, stored)
            await world.cluster.watch.caught_up()
            await until(lambda: any(each["event"] == REPORTED for each in logs))
    await world.extender.stop()
    assert ("by another writer" in world.messages("p1")[-1]) == (writer == FOREIGN)
    (log,) = [each for each in logs if each["event"] == REPORTED]
    assert log["writer"] == writer
    labels = {"kind": "device", "outcome": "reported", "writer": writer}
    assert await world.metric("dra_extender_allocation_overlaps_total", **labels) == 1
