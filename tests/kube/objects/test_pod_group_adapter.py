"""PodGroups in whichever version the server serves."""

import json

import pytest
from aiohttp import web
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.objects.pod_groups import KubePodGroups
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError, ServerUnavailableError

from tests.support.kube.fake_api_server import FakeApiServer

GROUP = PodGroup(
    metadata=ObjectMeta(name="team", namespace="space", uid="u", resource_version="7", finalizers=("a.example/x",))
)


@pytest.fixture(params=["v1beta1", "v1alpha3", "v1alpha2"])
def version(request: pytest.FixtureRequest) -> str:
    return f"scheduling.k8s.io/{request.param}"


@pytest.fixture
def groups(transport: ApiTransport, settings: KubeSettings, version: str) -> KubePodGroups:
    return KubePodGroups(transport, settings, lambda: ResourceKind("podgroups", version))


async def test_claims_are_recorded_in_the_served_version(
    server: FakeApiServer, groups: KubePodGroups, version: str
) -> None:
    """Guarded by UID and version, by a patch that knows the key of the list."""
    path = f"/apis/{version}/namespaces/space/podgroups/team"
    entries = [{"name": "gpu", "resourceClaimName": "claim-1"}, {"name": "net", "resourceClaimName": "claim-2"}]
    status = {"resourceClaimStatuses": entries}
    server.intervene("PATCH", f"{path}/status", lambda _: web.json_response({"metadata": {}, "status": status}))
    await groups.record_claims(GROUP, {"net": "claim-2", "gpu": "claim-1"})
    (seen,) = server.seen
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert dict(seen.query) == {"fieldManager": "dra-extender"}
    assert json.loads(seen.body) == {"metadata": {"uid": "u", "resourceVersion": "7"}, "status": status}
    assert groups.api_version == version


async def test_a_server_that_does_not_keep_what_is_recorded_is_told_of(
    server: FakeApiServer, groups: KubePodGroups, version: str
) -> None:
    path = f"/apis/{version}/namespaces/space/podgroups/team/status"
    server.intervene("PATCH", path, lambda _: web.json_response({"metadata": {}}))
    words = r"does not keep status\.resourceClaimStatuses of gpu \(DRAWorkloadResourceClaims is off there\?\)"
    with pytest.raises(RequestRejectedError, match=words):
        await groups.record_claims(GROUP, {"gpu": "claim-1"})


async def test_a_group_that_cannot_be_read_is_unavailable(
    server: FakeApiServer, groups: KubePodGroups, version: str
) -> None:
    server.pages[f"/apis/{version}/namespaces/space/podgroups/team"] = {"metadata": 3}
    with pytest.raises(ServerUnavailableError, match="get podgroups space/team: the answer cannot be read: PodGroup:"):
        await groups.read("space", "team")


async def test_where_none_are_served_there_is_none(transport: ApiTransport, settings: KubeSettings) -> None:
    groups = KubePodGroups(transport, settings, lambda: None)
    assert groups.api_version == ""
    with pytest.raises(NotFoundError, match="podgroups are not served by this API server"):
        await groups.read("space", "team")
    with pytest.raises(NotFoundError):
        await groups.unprotect(GROUP, "a.example/x")
