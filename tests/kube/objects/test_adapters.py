import json

import pytest
from dra_extender.kube.client.errors import ForbiddenError
from dra_extender.kube.client.settings import KubeSettings, Timeouts
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.objects.claims import KubeClaims
from dra_extender.kube.objects.pods import KubePods
from dra_extender.kube.objects.scheduler_waker import KubeWaker
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.scheduling.ports.cluster import (
    ClusterError,
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)
from dra_extender.simulator.apiserver.objects import StoredKind

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


def busy(seconds: int) -> Fault:
    return Fault(refuse=429, message="please try again later", retry_after=seconds)


async def test_a_server_that_is_too_busy_is_asked_again_when_it_says(
    faults: Faults, claims: KubeClaims, pods: KubePods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did nothing yet, so that writes may be repeated too."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("dra_extender.kube.client.retry.asyncio.sleep", sleep)
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
    with pytest.raises(ServerUnavailableError, match="get resourceclaims space/claim: no answer: ClientConnectorError"):
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
    waker = KubeWaker(transport, settings, clock)
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
    waker = KubeWaker(transport, settings, ManualClock())
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
