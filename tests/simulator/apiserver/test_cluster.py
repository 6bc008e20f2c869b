"""The embedded cluster keeps the contract of dra_extender.scheduling.ports.cluster and delivers changes like a watch."""

import asyncio

import msgspec
import pytest
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.pod import read_pod
from dra_extender.scheduling.ports.cluster import (
    Claims,
    Cluster,
    ConflictError,
    Events,
    NotFoundError,
    Pods,
    RequestRejectedError,
    SchedulerWaker,
)
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.model.reading import pod_from
from tests.support.simulator.things import Steady, claim, node, pod


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(clock=Steady())


def test_it_is_a_cluster_in_the_sense_of_the_ports(cluster: MemoryCluster) -> None:
    everything: Cluster = cluster
    parts: tuple[Claims, Pods, Events, SchedulerWaker] = (cluster.claims, cluster.pods, cluster.events, cluster.waker)
    assert all(parts)
    assert everything.health() == {"memory": None}
    assert everything.notes() == {}
    assert everything.clock.now() == Steady().now()


async def test_metadata_of_claims_are_changed_in_the_version_that_is_meant(cluster: MemoryCluster) -> None:
    cluster.store.create(StoredKind.CLAIM, claim("c"))
    read = await cluster.claims.read("default", "c")
    meta = msgspec.json.decode(read)["metadata"]
    first = MetadataChange(
        uid=meta["uid"], resource_version=meta["resourceVersion"], finalizers=("f",), annotations={"a": "b"}
    )
    written = await cluster.claims.update("default", "c", first)
    assert written == await cluster.claims.read("default", "c")
    meta = msgspec.json.decode(written)["metadata"]
    assert (meta["finalizers"], meta["annotations"]) == (["f"], {"a": "b"})
    with pytest.raises(ConflictError):
        await cluster.claims.update("default", "c", first)
    with pytest.raises(ConflictError):
        await cluster.claims.update_status("default", "c", read)
    with pytest.raises(NotFoundError):
        await cluster.claims.read("default", "other")
    second = MetadataChange(uid=meta["uid"], resource_version=meta["resourceVersion"], annotations={"a": None})
    written = await cluster.claims.update("default", "c", second)
    assert not msgspec.json.decode(written)["metadata"]["annotations"]
    with pytest.raises(RequestRejectedError, match="does not match"):
        await cluster.claims.update_status("default", "other", written)


async def test_a_binding_to_no_node_is_refused(cluster: MemoryCluster) -> None:
    cluster.store.create(StoredKind.POD, pod("p"))
    with pytest.raises(RequestRejectedError, match=r"target\.name"):
        await cluster.pods.bind("default", "p", "", "")


@pytest.mark.parametrize("body", [b"{", b"[]"])
async def test_a_body_that_is_no_object_is_refused(cluster: MemoryCluster, body: bytes) -> None:
    with pytest.raises(RequestRejectedError, match="the body is not"):
        await cluster.claims.update_status("default", "c", body)


def test_equal_events_count_up_and_the_newest_is_last(cluster: MemoryCluster) -> None:
    about = pod_from({"metadata": {"namespace": "default", "name": "p", "uid": "u"}})
    for message in ("one", "two", "one"):
        cluster.events.about_pod(about, warning=True, reason="R", message=message)
    assert [(event.message, event.count) for event in cluster.events.of_pod("u")] == [("two", 1), ("one", 2)]
    assert cluster.events.of_pod("other") == []


async def test_waiting_for_a_wake_up_ends_with_it_or_with_patience(cluster: MemoryCluster) -> None:
    assert not await cluster.waker.called_since(0, 0.01)
    waiting = asyncio.create_task(cluster.waker.called_since(0, 30.0))
    await cluster.waker.wake()
    assert await waiting


class Recorder:
    """A feed that records what it receives."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def changed(self, data: bytes) -> None:
        name = read_pod(data).name
        if name == "bad":
            raise ModelError("Pod: bad")
        self.received.append(f"changed {name}")

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        assert uid
        self.received.append(f"deleted {namespace}/{name}")

    def listing(self) -> None:
        self.received.append("listing")

    def synced(self) -> None:
        self.received.append("synced")

    def absent(self) -> None:
        self.received.append("absent")


def test_a_watch_lists_first_and_then_delivers_in_order_on_demand(cluster: MemoryCluster) -> None:
    feed, empty = Recorder(), Recorder()
    cluster.store.create(StoredKind.POD, pod("before"))
    cluster.watch.attach({"pods": feed, "podgroups": empty})
    assert feed.received == ["changed before", "synced"]
    assert empty.received == ["synced"]
    cluster.store.create(StoredKind.POD, pod("after"))
    cluster.store.create(StoredKind.NODE, node("n"))
    cluster.store.delete(Key(StoredKind.POD, "default", "before"))
    assert feed.received[2:] == []
    assert cluster.watch.deliver() == 3
    assert feed.received[2:] == ["changed after", "deleted default/before"]


async def test_a_running_watch_catches_up_and_survives_what_a_feed_cannot_read(cluster: MemoryCluster) -> None:
    feed = Recorder()
    cluster.watch.attach({"pods": feed})
    task = asyncio.create_task(cluster.watch.keep_delivering())
    for name in ("one", "bad", "two"):
        cluster.store.create(StoredKind.POD, pod(name))
    await asyncio.wait_for(cluster.watch.caught_up(), 60)
    assert feed.received == ["synced", "changed one", "changed two"]
    assert cluster.watch.unreadable == ["Pod: bad"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_lists_anew_has_caught_up_though_changes_were_left(cluster: MemoryCluster) -> None:
    cluster.watch.attach({"pods": Recorder()})
    cluster.store.create(StoredKind.POD, pod("left"))
    feed = Recorder()
    cluster.watch.attach({"pods": feed})
    await asyncio.wait_for(cluster.watch.caught_up(), 60)
    assert feed.received == ["changed left", "synced"]
