"""A running cluster is followed: what decisions read of it is there at any time, and only that counts as a change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.running_cluster import FollowedCluster, KeptObjects
from dra_extender.inspection.why.why import why
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.model.api_json import ModelError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import ALWAYS, Faults
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, one_gpu_held
from tests.support.inspection.served_cluster import PATHS, served


@pytest.fixture
def made() -> MadeCluster:
    return one_gpu_held()


@pytest.fixture
async def server(made: MadeCluster) -> AsyncIterator[ApiServer]:
    async with served(made) as started:
        yield started


@pytest.fixture
async def cluster(server: ApiServer, tmp_path: Path) -> AsyncIterator[FollowedCluster]:
    followed = FollowedCluster(KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig")))
    yield followed
    await followed.stop()


async def test_decisions_over_the_followed_cluster_are_those_over_its_objects(
    cluster: FollowedCluster, made: MadeCluster
) -> None:
    await cluster.start()
    objects = await cluster.objects()
    at_the_same_time = objects._replace(origin=made.cluster().origin)
    assert why(ClusterView(at_the_same_time), NAMESPACE, "train") == why(made.view(), NAMESPACE, "train")
    assert objects.origin.release == "v1.37.1"
    assert not objects.origin.partial
    assert set(cluster.contact_ages()) == set(PATHS)
    assert cluster.problems() == []


async def test_change_is_seen_without_a_further_list(
    cluster: FollowedCluster, made: MadeCluster, server: ApiServer
) -> None:
    faults = Faults(server)
    await cluster.start()
    await cluster.objects()
    changed = asyncio.create_task(cluster.change())
    pod = made.objects["pods"][-1]
    pod["spec"]["nodeName"] = "n1"
    server.put(StoredKind.POD, pod)
    async with asyncio.timeout(60):
        await changed
    assert why(ClusterView(await cluster.objects()), NAMESPACE, "train").node == "n1"
    assert len(faults.requests("list", "pods")) == 1


async def test_deleted_object_is_gone(cluster: FollowedCluster, server: ApiServer) -> None:
    await cluster.start()
    await cluster.objects()
    server.store.delete(Key(StoredKind.POD, NAMESPACE, "train"))
    async with asyncio.timeout(60):
        await cluster.change()
    assert ClusterView(await cluster.objects()).pod(NAMESPACE, "train") is None


async def test_kind_that_the_account_may_not_list_is_missing_and_the_rest_is_there(
    cluster: FollowedCluster, server: ApiServer
) -> None:
    Faults(server).plan("list", "nodes", Fault(refuse=403, message="nodes is forbidden"), ALWAYS)
    await cluster.start()
    origin = (await cluster.objects()).origin
    assert origin.partial
    (missing,) = (each for each in origin.missing if each.served)
    assert missing.kind == "nodes"
    assert "nodes is forbidden" in missing.reason
    assert len((await cluster.objects()).of_kind("pods")) == 2


async def test_kubeconfig_that_is_absent_is_said(tmp_path: Path) -> None:
    followed = FollowedCluster(KubeSettings(kubeconfig=tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="does not exist"):
        await followed.start()
    await followed.stop()


def test_version_in_which_nothing_differs_that_decisions_read_is_no_change() -> None:
    changes: list[None] = []
    kept = KeptObjects("pods", lambda: changes.append(None))
    pod = {"metadata": {"name": "a", "namespace": "ml", "resourceVersion": "1"}, "spec": {"nodeName": "n1"}}
    kept.changed(msgspec.json.encode(pod))
    pod["metadata"]["resourceVersion"] = "2"
    pod["spec"]["dnsPolicy"] = "what nobody reads"
    kept.changed(msgspec.json.encode(pod))
    assert len(changes) == 1
    assert [msgspec.json.decode(each)["metadata"]["resourceVersion"] for each in kept.all()] == ["2"]
    pod["spec"]["nodeName"] = "n2"
    kept.changed(msgspec.json.encode(pod))
    assert len(changes) == 2


@pytest.mark.parametrize("data", [b"[]", b"{}", b"no json", b'{"metadata": 1}', b"\xff"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        KeptObjects("pods", lambda: None).changed(data)
