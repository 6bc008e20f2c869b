import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dra_extender.kube.claims import KubeClaims
from dra_extender.kube.client.errors import ForbiddenError
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings, Timeouts
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.pods import KubePodGroups, KubePods
from dra_extender.kube.scheduler_waker import KubeSchedulerWaker
from dra_extender.kube.secret_store import SecretStore, StoredSecret
from dra_extender.kube.token_reviewer import TokenReviewer
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.ports.cluster import (
    ClusterError,
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.simulation.api_discovery import Release
from tests.simulation.api_requests import StatusError
from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import Faults
from tests.support.kube.recording import CountingObserver, ManualClock

RAW = (
    b'{ "metadata": {"name":"claim", "resourceVersion" : "7"}, "spec":{"future":[1, 2.50]},"status": {"x":"\\u00e9"} }'
)
ANSWERED = Fault(answer=(200, RAW))
CHANGE = MetadataChange(uid="u", resource_version="7", finalizers=("f",))


@pytest.fixture
def claims(transport: ApiTransport, settings: KubeSettings) -> KubeClaims:
    return KubeClaims(transport, settings)


@pytest.fixture
def pods(transport: ApiTransport, settings: KubeSettings) -> KubePods:
    return KubePods(transport, settings)


async def test_a_status_is_written_and_answered_byte_by_byte(faults: Faults, claims: KubeClaims) -> None:
    """Fields and spellings that this program does not know survive."""
    faults.plan("update", "resourceclaims/status", ANSWERED)
    assert await claims.update_status("space", "claim", RAW) == RAW
    (seen,) = faults.seen
    assert (seen.body, seen.query) == (RAW, {"fieldManager": "dra-extender"})
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"] == "dra-extender"


async def test_metadata_are_written_as_a_merge_patch_of_what_changes(faults: Faults, claims: KubeClaims) -> None:
    faults.plan("patch", "resourceclaims", ANSWERED)
    assert await claims.update("space", "claim", CHANGE) == RAW
    (seen,) = faults.seen
    assert (json.loads(seen.body), seen.query) == (
        {"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["f"]}},
        {"fieldManager": "dra-extender"},
    )
    assert seen.headers["content-type"] == "application/merge-patch+json"


async def test_a_claim_is_read_byte_by_byte(faults: Faults, claims: KubeClaims) -> None:
    faults.plan("get", "resourceclaims", ANSWERED)
    assert await claims.read("space", "claim") == RAW


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RequestRejectedError),
        (401, RequestRejectedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, RequestRejectedError),
        (408, ServerUnavailableError),
        (409, ConflictError),
        (410, ServerUnavailableError),
        (413, RequestRejectedError),
        (422, RequestRejectedError),
        (429, ServerUnavailableError),
        (500, ServerUnavailableError),
        (503, ServerUnavailableError),
        (504, ServerUnavailableError),
    ],
)
async def test_a_status_becomes_the_error_that_says_what_can_be_done(
    faults: Faults, claims: KubeClaims, observer: CountingObserver, status: int, error: type[ClusterError]
) -> None:
    body = StatusError(status, "Because", "of " + "x" * 500).body
    faults.plan("update", "resourceclaims/status", Fault(answer=(status, json.dumps(body).encode())))
    with pytest.raises(ClusterError) as caught:
        await claims.update_status("space", "claim", RAW)
    assert type(caught.value) is error
    message = str(caught.value)
    assert message.startswith(f"update resourceclaims/status space/claim: {status} Because: of xxx")
    assert message.endswith("x…")
    assert len(message) < 330
    assert observer.of("request") == [("update", "resourceclaims/status", str(status))]


@pytest.mark.parametrize(
    ("status", "field", "error"),
    [
        (422, "status.allocation", NotFoundError),
        (422, "status.reservedFor", RequestRejectedError),
        (400, "status.allocation", RequestRejectedError),
    ],
)
async def test_a_status_is_written_in_another_form_where_a_field_that_we_do_not_change_is_said_to_be_invalid(
    faults: Faults, claims: KubeClaims, status: int, field: str, error: type[ClusterError]
) -> None:
    """For that the claim is read again, and here it is gone by then."""
    refusal = StatusError(status, "Invalid", "field is immutable", [{"field": field}]).body
    faults.plan("update", "resourceclaims/status", Fault(answer=(status, json.dumps(refusal).encode())))
    with pytest.raises(error):
        await claims.update_status("space", "claim", RAW)


def busy(seconds: int) -> Fault:
    return Fault(refuse=429, message="please try again later", retry_after=seconds)


async def test_a_server_that_is_too_busy_is_asked_again_when_it_says(
    faults: Faults, claims: KubeClaims, pods: KubePods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did nothing yet, so that writes may be repeated too."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("dra_extender.kube.client.backoff.asyncio.sleep", sleep)
    faults.plan("patch", "resourceclaims", busy(2), times=3)
    faults.plan("patch", "resourceclaims", ANSWERED)
    assert await claims.update("space", "claim", CHANGE) == RAW
    faults.plan("create", "pods/binding", busy(1))
    faults.plan("create", "pods/binding", ANSWERED)
    await pods.bind("space", "pod", "uid", "node")
    assert pauses == [2.0, 2.0, 2.0, 1.0]


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_server_that_is_too_busy_for_longer_than_a_request_may_take_is_unavailable(
    faults: Faults, claims: KubeClaims, seconds: int
) -> None:
    faults.plan("patch", "resourceclaims", busy(seconds))
    with pytest.raises(ServerUnavailableError, match="429 TooManyRequests: please try again later"):
        await claims.update("space", "claim", CHANGE)
    assert len(faults.requests("patch", "resourceclaims")) == 1


async def test_words_of_a_proxy_are_passed_on(faults: Faults, claims: KubeClaims) -> None:
    faults.plan("get", "resourceclaims", Fault(answer=(502, b"<h1>Bad\n\n gateway</h1>")))
    with pytest.raises(ServerUnavailableError, match="get resourceclaims space/claim: 502: <h1>Bad gateway</h1>"):
        await claims.read("space", "claim")


async def test_a_server_that_does_not_answer_is_unavailable(
    faults: Faults, transport: ApiTransport, observer: CountingObserver
) -> None:
    faults.plan("get", "resourceclaims", Fault(delay=3600))
    hasty = KubeClaims(transport, KubeSettings(timeouts=Timeouts(read=0.05)))
    with pytest.raises(
        ServerUnavailableError, match=r"get resourceclaims space/claim: no answer: .* silent for 0.05 s"
    ):
        await hasty.read("space", "claim")
    assert observer.of("request") == [("get", "resourceclaims", "none")]


async def test_a_server_that_is_gone_is_unavailable(server: ApiServer, claims: KubeClaims) -> None:
    server.stop()
    with pytest.raises(
        ServerUnavailableError,
        match=r"get resourceclaims space/claim: no answer: cannot connect to .*: Connection refused",
    ):
        await claims.read("space", "claim")


async def test_without_a_connection_every_call_is_unavailable(observer: CountingObserver) -> None:
    transport = ApiTransport(KubeSettings(), ManualClock(), observer)
    with pytest.raises(ServerUnavailableError, match="there is no connection to an API server"):
        await KubeClaims(transport, KubeSettings()).read("space", "claim")


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../pods/x", "a%2fb"])
async def test_a_name_that_would_mean_another_path_is_refused(
    faults: Faults, claims: KubeClaims, pods: KubePods, name: str
) -> None:
    with pytest.raises(RequestRejectedError, match="cannot be the name"):
        await claims.read("space", name)
    with pytest.raises(RequestRejectedError, match="cannot be the name"):
        await pods.bind(name, "pod", "uid", "node")
    assert faults.seen == []


async def test_other_odd_characters_in_a_name_stay_inside_their_segment(faults: Faults, claims: KubeClaims) -> None:
    with pytest.raises(NotFoundError):
        await claims.read("space", "a?b#c d")
    assert faults.seen[0].path == "/apis/resource.k8s.io/v1/namespaces/space/resourceclaims/a?b#c d"


async def test_a_binding_names_pod_uid_and_node(faults: Faults, pods: KubePods) -> None:
    faults.plan("create", "pods/binding", ANSWERED)
    await pods.bind("space", "pod", "uid-1", "worker")
    assert json.loads(faults.seen[0].body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "space", "name": "pod", "uid": "uid-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "worker"},
    }


async def test_a_binding_is_never_posted_twice(faults: Faults, pods: KubePods) -> None:
    """A connection that breaks leaves open whether the pod is bound."""
    faults.plan("create", "pods/binding", Fault(lose_request=True), times=2)
    with pytest.raises(ServerUnavailableError, match="create pods/binding space/pod: no answer"):
        await pods.bind("space", "pod", "uid-1", "worker")
    assert len(faults.seen) == 1


async def test_a_pod_is_read_as_a_value(server: ApiServer, faults: Faults, pods: KubePods) -> None:
    stored = {"metadata": {"name": "pod", "namespace": "space", "uid": "u"}, "spec": {"nodeName": "worker"}}
    server.store.create(StoredKind.POD, stored)
    pod = await pods.read("space", "pod")
    assert (pod.key, pod.uid, pod.node_name) == ("space/pod", "u", "worker")
    faults.plan("get", "pods", Fault(answer=(200, b'{"metadata": 3}')))
    with pytest.raises(ServerUnavailableError, match="get pods space/pod: the answer cannot be read: Pod:"):
        await pods.read("space", "pod")


async def test_waking_changes_one_annotation_each_time(
    faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    clock = ManualClock()
    waker = KubeSchedulerWaker(transport, settings, clock)
    faults.plan("patch", "deviceclasses", ANSWERED, times=2)
    await waker.wake()
    clock.pass_by(0.000001)
    await waker.wake()
    first, second = (json.loads(each.body) for each in faults.seen)
    assert first == {"metadata": {"annotations": {"dra-extender.io/woken-at": "2023-11-14T22:13:20.000000Z"}}}
    assert first != second
    assert faults.seen[0].headers["content-type"] == "application/merge-patch+json"


async def test_a_missing_class_or_right_is_a_sentence_and_no_error(
    faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    waker = KubeSchedulerWaker(transport, settings, ManualClock())
    await waker.wake()
    assert waker.last_error is not None
    assert "DeviceClass wake-up.dra-extender.io does not exist" in waker.last_error
    faults.plan("patch", "deviceclasses", Fault(refuse=403, message="you may not"))
    await waker.wake()
    assert waker.last_error is not None
    assert "403 Forbidden: you may not" in waker.last_error
    faults.plan("patch", "deviceclasses", Fault(refuse=503))
    with pytest.raises(ServerUnavailableError):
        await waker.wake()
    faults.plan("patch", "deviceclasses", ANSWERED)
    await waker.wake()
    assert waker.last_error is None


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


@pytest_asyncio.fixture
async def store(settings: KubeSettings) -> AsyncIterator[SecretStore]:
    made = SecretStore(settings, "space")
    await made.connect()
    yield made
    await made.close()


async def test_a_secret_is_read_with_its_version_and_without_what_is_no_base64(
    faults: Faults, store: SecretStore
) -> None:
    body = b'{"metadata":{"resourceVersion":"7"},"data":{"a":"AHg=","b":"?"}}'
    faults.plan("get", "secrets", Fault(answer=(200, body)))
    assert await store.read("tls") == StoredSecret({"resourceVersion": "7"}, "kubernetes.io/tls", {"a": b"\0x"})


async def test_a_secret_that_is_not_there_is_none(store: SecretStore) -> None:
    assert await store.read("tls") is None


async def test_a_secret_that_cannot_be_read_is_no_reason_to_replace_it(faults: Faults, store: SecretStore) -> None:
    faults.plan("get", "secrets", Fault(answer=(200, b'{"data": 7}')))
    with pytest.raises(ServerUnavailableError, match="get secrets space/tls: the answer cannot be read: Secret:"):
        await store.read("tls")


async def test_a_secret_is_created_or_its_data_replaced_in_the_version_that_was_read(
    server: ApiServer, store: SecretStore
) -> None:
    await store.write("tls", {"a": b"1"}, None)
    key = Key(StoredKind.SECRET, "space", "tls")
    created = server.store.get(key)
    assert (created["type"], created["data"]) == ("kubernetes.io/tls", {"a": "MQ=="})
    server.store.edit_unchecked(key, lambda secret: secret.update(type="Opaque"))
    before = await store.read("tls")
    assert before is not None
    await store.write("tls", {"a": b"2"}, before)
    with pytest.raises(ConflictError):
        await store.write("tls", {"a": b"3"}, before)
    replaced = server.store.get(key)
    assert (replaced["type"], replaced["data"]) == ("Opaque", {"a": "Mg=="})
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]


TOKENS, ACCESS = "tokenreviews", "subjectaccessreviews"
USER = {"username": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}


@pytest_asyncio.fixture
async def reviewer(settings: KubeSettings, observer: CountingObserver) -> AsyncIterator[TokenReviewer]:
    made = TokenReviewer(settings, observer)
    yield made
    await made.close()


def answer(faults: Faults, review: str, **status: object) -> None:
    faults.plan("create", review, Fault(answer=(201, json.dumps({"status": status}).encode())))


async def test_the_user_of_the_token_is_asked_about_with_all_that_is_known(
    faults: Faults, reviewer: TokenReviewer
) -> None:
    answer(faults, TOKENS, authenticated=True, user=USER)
    answer(faults, ACCESS, allowed=True)
    assert await reviewer.review("secret") == ("prometheus", True)
    first, second = (json.loads(each.body) for each in faults.seen)
    assert first["spec"] == {"token": "secret"}
    attributes = {"path": "/metrics", "verb": "get"}
    known = {"user": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}
    assert second["spec"] == {**known, "nonResourceAttributes": attributes}


async def test_a_token_of_nobody_is_not_asked_about_further(faults: Faults, reviewer: TokenReviewer) -> None:
    answer(faults, TOKENS, authenticated=False, user=USER)
    assert await reviewer.review("secret") == ("", False)
    assert len(faults.seen) == 1


@pytest.mark.parametrize("status", [{}, {"allowed": False}, {"denied": True}])
async def test_only_a_yes_is_a_yes(faults: Faults, reviewer: TokenReviewer, status: dict[str, object]) -> None:
    answer(faults, TOKENS, authenticated=True, user=USER)
    answer(faults, ACCESS, **status)
    assert await reviewer.review("secret") == ("prometheus", False)


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"status": 7}', '{"status": {"authenticated": "yes"}}'])
async def test_an_answer_that_says_nothing_allows_nothing(faults: Faults, reviewer: TokenReviewer, text: str) -> None:
    faults.plan("create", TOKENS, Fault(answer=(201, text.encode())))
    with pytest.raises(ServerUnavailableError, match="cannot be read"):
        await reviewer.review("secret")


async def test_a_refusal_is_an_error_without_the_token(faults: Faults, reviewer: TokenReviewer) -> None:
    faults.plan("create", TOKENS, Fault(refuse=403, message="may not create tokenreviews"))
    with pytest.raises(ClusterError, match="tokenreviews") as refused:
        await reviewer.review("secret")
    assert "secret" not in str(refused.value)
