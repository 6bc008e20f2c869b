import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from dra_extender.kube.client.credentials import ConfigurationError, ServiceAccount, find_credentials
from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from structlog.testing import capture_logs

from tests.simulation.api_access import Access, User
from tests.simulation.api_server import ApiServer
from tests.support.kube.recording import CountingObserver, ManualClock

NOWHERE: dict[str, str] = {}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def account(tmp_path: Path) -> ServiceAccount:
    """A pod's service account; the certificate only has to be there until somebody connects."""
    made = ServiceAccount(tmp_path / "token", tmp_path / "ca.crt")
    made.token.write_text("first-token\n")
    made.certificate.write_text("certificate")
    return made


POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_without_any_configuration_the_sentence_says_where_was_looked(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError, match=r"KUBECONFIG is not set.*not a pod.*\.kube/config does not exist"):
        await find_credentials(KubeSettings(), clock, environ=NOWHERE, home=tmp_path)


async def test_a_kubeconfig_that_is_no_file_is_told_from_one_that_is_missing(
    tmp_path: Path, clock: ManualClock
) -> None:
    for path, words in ((Path("/dev/null"), "is no regular file"), (tmp_path / "none", "does not exist")):
        with pytest.raises(ConfigurationError, match=rf"The kubeconfig {path} {words}\."):
            await find_credentials(KubeSettings(kubeconfig=path), clock, environ=NOWHERE, home=tmp_path)


async def test_a_pod_uses_its_service_account(tmp_path: Path, clock: ManualClock, account: ServiceAccount) -> None:
    found = await find_credentials(KubeSettings(), clock, environ=POD, home=tmp_path, account=account)
    assert found.configuration.host == "https://[fd00::1]:443"
    assert await found.headers() == {"Authorization": "bearer first-token"}
    assert found.configuration.connection_pool_maxsize == 50


async def test_the_order_is_argument_then_variable_then_pod_then_home(
    server: ApiServer, tmp_path: Path, clock: ManualClock, account: ServiceAccount
) -> None:
    given, variable = (server.kubeconfig(tmp_path / name) for name in ("given", "variable"))
    (tmp_path / ".kube").mkdir()
    server.kubeconfig(tmp_path / ".kube" / "config")

    async def source(settings: KubeSettings, environ: dict[str, str]) -> str:
        found = await find_credentials(settings, clock, environ=environ, home=tmp_path, account=account)
        return found.source

    everywhere = {**POD, "KUBECONFIG": str(variable)}
    assert await source(KubeSettings(kubeconfig=given), everywhere) == f"kubeconfig {given}"
    assert await source(KubeSettings(), everywhere) == f"kubeconfig {variable}"
    assert await source(KubeSettings(), POD) == "the service account of this pod"
    assert await source(KubeSettings(), NOWHERE) == f"kubeconfig {tmp_path}/.kube/config"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("{", "cannot be used"),
        ("[]", "cannot be used"),
        ("", "cannot be used"),
        ('{"clusters": [], "contexts": [], "users": [], "current-context": "x"}', "cannot be used.*name x"),
    ],
)
async def test_an_unusable_kubeconfig_is_a_sentence(
    tmp_path: Path, clock: ManualClock, text: str | None, said: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"The kubeconfig {path} .*{said}"):
        await find_credentials(KubeSettings(kubeconfig=path), clock, environ=NOWHERE)


async def test_a_context_can_be_chosen_and_must_exist(server: ApiServer, tmp_path: Path, clock: ManualClock) -> None:
    path = server.kubeconfig(tmp_path / "config")
    found = await find_credentials(KubeSettings(kubeconfig=path, context="simulated"), clock, environ=NOWHERE)
    assert found.configuration.host == server.url
    with pytest.raises(ConfigurationError, match="two"):
        await find_credentials(KubeSettings(kubeconfig=path, context="two"), clock, environ=NOWHERE)


@pytest.mark.parametrize("missing", ["token", "certificate"])
async def test_an_incomplete_service_account_is_a_sentence(
    clock: ManualClock, account: ServiceAccount, missing: str
) -> None:
    getattr(account, missing).unlink()
    with pytest.raises(ConfigurationError, match=r"service account of this pod cannot be used .*does not exist"):
        await find_credentials(KubeSettings(), clock, environ=POD, account=account)


async def test_a_certificate_that_is_none_is_a_sentence(
    clock: ManualClock, account: ServiceAccount, observer: CountingObserver
) -> None:
    found = await find_credentials(KubeSettings(), clock, environ=POD, account=account)
    with pytest.raises(ConfigurationError, match="certificates of the service account of this pod cannot be used"):
        ApiTransport(KubeSettings(), clock, observer).connect(found)


async def test_a_rotated_token_is_read_once_a_minute(clock: ManualClock, account: ServiceAccount) -> None:
    found = await find_credentials(KubeSettings(), clock, environ=POD, account=account)
    account.token.write_text("second-token")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise InterruptedError
        clock.pass_by(seconds)

    with pytest.raises(InterruptedError):
        await found.keep_fresh(sleep)
    assert pauses == [60.0] * 3
    assert await found.headers() == {"Authorization": "bearer second-token"}


async def test_a_token_that_cannot_be_read_any_more_is_kept_and_reported(
    clock: ManualClock, account: ServiceAccount
) -> None:
    found = await find_credentials(KubeSettings(), clock, environ=POD, account=account)
    account.token.unlink()
    with capture_logs() as logs:
        for _ in range(3):
            clock.pass_by(60)
            assert not await found.renew()
    assert await found.headers() == {"Authorization": "bearer first-token"}
    assert found.last_error is not None
    assert "does not exist" in found.last_error
    assert len(logs) == 1
    account.token.write_text("second-token")
    clock.pass_by(60)
    assert await found.renew()
    assert found.last_error is None


def get(path: str) -> ApiCall:
    return ApiCall(RequestIntent("get", "things"), "GET", path, 5.0)


class NotingAccess(Access):
    """Notes who asks."""

    def __init__(self, users: Mapping[str, User]) -> None:
        super().__init__(users)
        self.asked: list[str] = []

    def user(self, headers: Mapping[str, str]) -> User:
        self.asked.append(headers["authorization"])
        return super().user(headers)


async def test_a_refused_token_is_read_again_and_the_request_repeated(
    server: ApiServer, tmp_path: Path, clock: ManualClock, observer: CountingObserver
) -> None:
    server.access = access = NotingAccess(server.access.users)
    token = tmp_path / "token"
    token.write_text("first-token\n")
    settings = KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "config", tokenFile=str(token)))
    transport = ApiTransport(settings, clock, observer)
    transport.connect(await find_credentials(settings, clock))
    assert await transport.send(get("/livez")) == b"ok"
    access.users = {"second-token": User("dra-extender")}
    token.write_text("second-token\n")
    clock.pass_by(60)
    assert await transport.send(get("/livez")) == b"ok"
    assert access.asked == ["Bearer first-token", "Bearer first-token", "Bearer second-token"]
    access.users.clear()
    for _ in range(3):
        with pytest.raises(ApiCallError, match="get things: 401 Unauthorized: Unauthorized"):
            await transport.send(get("/livez"))
    # The token is the same as before, so nothing is repeated.
    assert len(access.asked) == 6
    await transport.close()


async def test_a_login_program_is_asked_again_for_a_token(
    server: ApiServer, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({**credential, "status": {"token": "first-token"}}))
    program = {
        "apiVersion": credential["apiVersion"],
        "command": sys.executable,
        "args": ["-c", f"print(open({str(answer)!r}).read())"],
        "interactiveMode": "Never",
    }
    path = server.kubeconfig(tmp_path / "config", exec=program)
    found = await find_credentials(KubeSettings(kubeconfig=path), clock, environ=NOWHERE)
    assert await found.headers() == {"Authorization": "Bearer first-token"}
    answer.write_text(json.dumps({**credential, "status": {"token": "second-token"}}))
    assert not await found.renew()
    clock.pass_by(60)
    assert await found.renew()
    assert await found.headers() == {"Authorization": "Bearer second-token"}
    monkeypatch.setattr("dra_extender.kube.client.credentials.LOAD_SECONDS", 0.0)
    clock.pass_by(60)
    assert not await found.renew()
    assert found.last_error == f"The kubeconfig {path} cannot be used: no login within 0 s."
    monkeypatch.undo()
    answer.write_text("broken")
    clock.pass_by(60)
    assert not await found.renew()
    assert found.last_error is not None
    assert "its login program gave no credentials: exec: failed to decode process output" in found.last_error
    assert await found.headers() == {"Authorization": "Bearer second-token"}
