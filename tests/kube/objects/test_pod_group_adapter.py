"""PodGroups in whichever version the server serves."""

import json

import pytest
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.objects.pods import KubePodGroups
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError, ServerUnavailableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.simulation.api_discovery import Release
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import Faults


@pytest.fixture(params=["v1beta1", "v1alpha3", "v1alpha2"])
def version(request: pytest.FixtureRequest) -> str:
    return f"scheduling.k8s.io/{request.param}"


@pytest.fixture
def release(version: str) -> Release:
    return Release(versions={StoredKind.POD_GROUP: version})


@pytest.fixture
def groups(transport: ApiTransport, settings: KubeSettings, version: str) -> KubePodGroups:
    return KubePodGroups(transport, settings, lambda: ResourceKind("podgroups", version))


@pytest.fixture
def team(server: ApiServer) -> PodGroup:
    """A stored PodGroup."""
    stored = server.store.create(StoredKind.POD_GROUP, {"metadata": {"name": "team", "namespace": "space"}, "spec": {}})
    uid, resource_version = (stored["metadata"][name] for name in ("uid", "resourceVersion"))
    return PodGroup(metadata=ObjectMeta(name="team", namespace="space", uid=uid, resource_version=resource_version))


async def test_claims_are_recorded_in_the_served_version(
    server: ApiServer, faults: Faults, groups: KubePodGroups, team: PodGroup, version: str
) -> None:
    """Guarded by UID and version, by a patch that knows the key of the list."""
    entries = [{"name": "gpu", "resourceClaimName": "claim-1"}, {"name": "net", "resourceClaimName": "claim-2"}]
    await groups.record_claims(team, {"net": "claim-2", "gpu": "claim-1"})
    (seen,) = faults.seen
    assert seen.headers["content-type"] == "application/strategic-merge-patch+json"
    assert seen.query == {"fieldManager": "dra-extender"}
    guards = {"uid": team.metadata.uid, "resourceVersion": team.metadata.resource_version}
    assert json.loads(seen.body) == {"metadata": guards, "status": {"resourceClaimStatuses": entries}}
    assert server.store.get(Key(StoredKind.POD_GROUP, "space", "team"))["status"]["resourceClaimStatuses"] == entries
    assert groups.api_version == version


async def test_a_server_that_does_not_keep_what_is_recorded_is_told_of(
    faults: Faults, groups: KubePodGroups, team: PodGroup
) -> None:
    faults.plan("patch", "podgroups/status", Fault(answer=(200, b'{"metadata": {}}')))
    words = r"does not keep status\.resourceClaimStatuses of gpu \(DRAWorkloadResourceClaims is off there\?\)"
    with pytest.raises(RequestRejectedError, match=words):
        await groups.record_claims(team, {"gpu": "claim-1"})


async def test_a_group_that_cannot_be_read_is_unavailable(faults: Faults, groups: KubePodGroups) -> None:
    faults.plan("get", "podgroups", Fault(answer=(200, b'{"metadata": 3}')))
    with pytest.raises(ServerUnavailableError, match="get podgroups space/team: the answer cannot be read: PodGroup:"):
        await groups.read("space", "team")


async def test_where_none_are_served_there_is_none(transport: ApiTransport, settings: KubeSettings) -> None:
    groups = KubePodGroups(transport, settings, lambda: None)
    assert groups.api_version == ""
    with pytest.raises(NotFoundError, match="podgroups are not served by this API server"):
        await groups.read("space", "team")
    with pytest.raises(NotFoundError):
        await groups.unprotect(PodGroup(metadata=ObjectMeta(name="team", finalizers=("a.example/x",))), "a.example/x")
