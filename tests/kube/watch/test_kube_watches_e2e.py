"""Watches on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from dra_extender.kube.client.settings import KubeSettings, WatchSettings
from dra_extender.kube.cluster import KubeCluster
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.metadata import version_number
from dra_extender.model.resource_claim import read_claim

from tests.controlplane import objects
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.resources import NAMESPACES, RESOURCE_CLAIMS
from tests.support.kube.recording import CountingObserver
from tests.support.turns import until

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

CLAIMS = 2000
AT_ONCE = 25
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Mirror:
    """What a feed knows: object name -> resourceVersion; versions must grow and deletions must name the right object."""

    known: dict[str, str] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    told: int = 0
    lists: int = 0

    def changed(self, data: bytes) -> None:
        meta = read_claim(data).metadata
        before = self.known.get(meta.name)
        assert before is None or version_number(before) < version_number(meta.resource_version)
        self.known[meta.name] = meta.resource_version
        self.uids[meta.name] = meta.uid
        self.told += 1

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        assert namespace == "crowd"
        assert self.uids.pop(name) == uid
        del self.known[name]
        self.told += 1

    def synced(self) -> None:
        self.lists += 1

    def absent(self) -> None:
        raise AssertionError


@asynccontextmanager
async def following(
    kubeconfig: Path, feeds: dict[str, EventSink], observer: CountingObserver, page: int = 250
) -> AsyncIterator[KubeCluster]:
    cluster = KubeCluster(KubeSettings(kubeconfig=kubeconfig, watch=WatchSettings(page=page)), observer=observer)
    try:
        await cluster.start(feeds)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await cluster.wait_synced()
        yield cluster
    finally:
        await cluster.stop()


def claim(number: int) -> objects.Object:
    return objects.resource_claim(f"claim-{number:04}", "crowd", objects.request("gpu", "gpu"))


async def in_parallel(cluster: ControlPlane, numbers: range, verb: str) -> None:
    """Create, change or delete claims, some at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        name = f"claim-{number:04}"
        async with gate:
            if verb == "create":
                await cluster.api.create(RESOURCE_CLAIMS, claim(number))
            elif verb == "change":
                change: objects.Object = {"metadata": {"annotations": {"changed": "yes"}}}
                await cluster.api.patch(RESOURCE_CLAIMS, name, change, "crowd")
            else:
                await cluster.api.delete(RESOURCE_CLAIMS, name, "crowd")

    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(one(number))


async def stored(cluster: ControlPlane) -> dict[str, str]:
    """Name -> resourceVersion of every claim there is."""
    found = await cluster.api.list(RESOURCE_CLAIMS, "crowd")
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}


async def test_a_crowd_of_claims_is_followed_through_writes_and_a_restart(cluster: ControlPlane) -> None:
    """List and watch agree with the server while it is written to, and after it was restarted."""
    await cluster.api.create(NAMESPACES, objects.namespace("crowd"))
    half = CLAIMS // 2
    await in_parallel(cluster, range(half), "create")
    mirror, observer = Mirror(), CountingObserver()
    async with asyncio.TaskGroup() as writers:
        writers.create_task(in_parallel(cluster, range(half, CLAIMS), "create"))
        writers.create_task(in_parallel(cluster, range(half // 2), "change"))
        async with following(cluster.admin_kubeconfig, {"resourceclaims": mirror}, observer, page=100) as watching:
            await in_parallel(cluster, range(half // 2, half, 5), "delete")

            async def in_step() -> bool:
                found = await stored(cluster)
                return len(found) == CLAIMS - 100 and mirror.known == found

            await cluster.api.wait_for(in_step, PATIENCE_SECONDS, "the feed knows what the server stores")
            assert (mirror.lists, observer.of("watch_failed")) == (1, [])

            told = mirror.told
            await cluster.restart_apiserver()
            await in_parallel(cluster, range(half, half + 10), "change")
            expected = await stored(cluster)
            await until(lambda: mirror.known == expected)
            # Nothing is told twice, whether the watch could be resumed or the server had forgotten.
            assert mirror.told == told + 10
            # The list may have brought these; what comes now was brought by an open watch.
            await in_parallel(cluster, range(half + 10, half + 11), "change")
            expected = await stored(cluster)
            await until(lambda: mirror.known == expected)

            assert watching.health() == {"watch-resourceclaims": None}
            assert watching.notes().keys() == {"api-server"}
