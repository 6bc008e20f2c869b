"""Every way in which a kubeconfig names a server and an account, on a small server with TLS."""

import asyncio
import base64
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from dra_extender.kube.client.credentials import ConfigurationError, Identity, find_credentials
from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.telemetry.observer import Observer
from multidict import CIMultiDictProxy

from tests.support.api.tls import issuer
from tests.support.kube.recording import ManualClock
from tests.support.serving import serving

TOKEN = "token-of-the-test"  # noqa: S105 - opens nothing but the server of these tests
CALL = ApiCall(RequestIntent("get", "things"), "GET", "/x", 5.0)
SERVER_NAME = "kubernetes.default.svc"


@dataclass
class Config:
    """A kubeconfig with one context, which a test changes before it is written."""

    folder: Path
    cluster: dict[str, Any]
    name: str = "here"
    user: dict[str, Any] = field(default_factory=lambda: {"token": TOKEN})

    def write(self, **fields: Any) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": self.cluster}],
            "users": [{"name": self.name, "user": self.user}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": self.name, "namespace": "ml"}}],
            "current-context": self.name,
            **fields,
        }
        file = self.folder / f"{self.name}.yaml"
        file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        return file


@dataclass
class TlsServer:
    """Answers those who have the token; `seen` are the headers of their requests.

    With `repeats` it refuses all of them, and repeats how they logged in.
    """

    url: str = ""
    repeats: bool = False
    seen: list[CIMultiDictProxy[str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers)
        if self.repeats:
            return web.json_response({"message": f"you sent {request.headers['Authorization']}"}, status=403)
        known = request.headers.get("Authorization", "").lower() == f"bearer {TOKEN}"
        return web.json_response({}, status=200 if known else 401)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[TlsServer]:
    made, started = issuer(tmp_path), TlsServer()
    made.bundle()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made.server("127.0.0.1", SERVER_NAME))
    application = web.Application()
    application.router.add_get("/x", started.answer)
    async with serving(application, context) as started.url:
        yield started


@pytest.fixture
def config(server: TlsServer, tmp_path: Path) -> Config:
    authority = base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode()
    return Config(tmp_path, {"server": server.url, "certificate-authority-data": authority})


async def ask(settings: KubeSettings, **environ: str) -> Identity:
    """Send a request that the server answers."""
    found = await find_credentials(settings, ManualClock(), environ=environ)
    transport = ApiTransport(settings, ManualClock(), Observer())
    transport.connect(found)
    try:
        assert await transport.send(CALL) == b"{}"
    finally:
        await transport.close()
    return found.identity


async def test_of_several_files_the_first_counts_and_contexts_of_all_can_be_chosen(config: Config) -> None:
    elsewhere = Config(config.folder, {"server": "https://127.0.0.1:1"}, "elsewhere")
    files = os.pathsep.join(map(str, (config.write(), elsewhere.write(), config.folder / "absent")))
    identity = await ask(KubeSettings(), KUBECONFIG=files)
    assert (identity.context, identity.namespace) == ("here", "ml")
    with pytest.raises(ApiCallError, match=r"127\.0\.0\.1"):
        await ask(KubeSettings(context="elsewhere"), KUBECONFIG=files)
    with pytest.raises(ConfigurationError, match="there are: elsewhere, here"):
        await ask(KubeSettings(context="nowhere"), KUBECONFIG=files)


async def test_users_and_contexts_may_be_in_different_files(config: Config) -> None:
    first = config.write(users=None)
    users = [{"name": "here", "user": config.user}]
    config.name = "login"
    second = config.write(users=users, clusters=None, contexts=None)
    await ask(KubeSettings(), KUBECONFIG=os.pathsep.join(map(str, (first, second))))


async def test_login_program_has_its_environment_and_its_failure_is_said(config: Config) -> None:
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}})
    program = config.folder / "login.py"
    program.write_text(f"import os\nassert os.environ['TENANT'] == 'ml'\nprint({answer!r})\n")
    config.user = {
        "exec": {
            "apiVersion": version,
            "command": sys.executable,
            "args": [str(program)],
            "env": [{"name": "TENANT", "value": "ml"}],
            "interactiveMode": "Never",
        }
    }
    await ask(KubeSettings(kubeconfig=config.write()))
    program.write_text("import sys\nsys.exit('please log in first')\n")
    with pytest.raises(ConfigurationError, match=r"its login program gave no credentials.*please log in first"):
        await ask(KubeSettings(kubeconfig=config.write()))


async def test_token_file_is_found_from_the_folder_of_the_kubeconfig(config: Config) -> None:
    (config.folder / "token").write_text(f"{TOKEN}\n")
    config.user = {"tokenFile": "token"}
    await ask(KubeSettings(kubeconfig=config.write()))


async def test_requests_are_sent_in_the_name_of_another_user(config: Config, server: TlsServer) -> None:
    config.user |= {"as": "nobody", "as-groups": ["a", "b"]}
    await ask(KubeSettings(kubeconfig=config.write()))
    assert server.seen[-1]["Impersonate-User"] == "nobody"
    assert server.seen[-1].getall("Impersonate-Group") == ["a", "b"]
    settings = KubeSettings(kubeconfig=config.write(), impersonate="somebody", impersonate_groups=("c",))
    await ask(settings)
    assert server.seen[-1]["Impersonate-User"] == "somebody"
    assert server.seen[-1].getall("Impersonate-Group") == ["c"]


async def test_name_of_the_server_is_checked_against_its_certificate(config: Config) -> None:
    config.cluster["tls-server-name"] = SERVER_NAME
    await ask(KubeSettings(kubeconfig=config.write()))
    config.cluster["tls-server-name"] = "elsewhere.example.com"
    with pytest.raises(ApiCallError, match=r"elsewhere\.example\.com"):
        await ask(KubeSettings(kubeconfig=config.write()))
    del config.cluster["tls-server-name"], config.cluster["certificate-authority-data"]
    with pytest.raises(ApiCallError, match="certificate is not trusted"):
        await ask(KubeSettings(kubeconfig=config.write()))


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that knows CONNECT alone: its URL, and where it has connected to."""
    connected: list[str] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
        assert method == "CONNECT"
        connected.append(target)
        host, port = target.rsplit(":", 1)
        back_reader, back_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield "http://{}:{}".format(*listener.sockets[0].getsockname()[:2]), connected


async def test_proxy_of_the_kubeconfig_is_used(config: Config, server: TlsServer) -> None:
    async with proxy() as (url, connected):
        config.cluster["proxy-url"] = url
        await ask(KubeSettings(kubeconfig=config.write()))
        config.cluster["tls-server-name"] = SERVER_NAME
        await ask(KubeSettings(kubeconfig=config.write()))
    assert set(connected) == {server.url.removeprefix("https://")}
    config.cluster["proxy-url"] = "socks5://127.0.0.1:1"
    with pytest.raises(ConfigurationError, match="no SOCKS proxy can be used here"):
        await ask(KubeSettings(kubeconfig=config.write()))


async def test_cluster_and_user_are_used_in_the_place_of_those_of_the_context(config: Config) -> None:
    cluster, user = config.cluster, config.user
    clusters = [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}, {"name": "there", "cluster": cluster}]
    users = [{"name": "stranger", "user": {"token": "other"}}, {"name": "known", "user": user}]
    contexts = [{"name": "here", "context": {"cluster": "gone", "user": "stranger", "namespace": "ml"}}]
    file = config.write(clusters=clusters, users=users, contexts=contexts)
    identity = await ask(KubeSettings(kubeconfig=file, cluster="there", user="known"))
    assert (identity.context, identity.namespace) == ("here", "ml")
    assert identity.instead == ("cluster there", "user known")
    with pytest.raises(ConfigurationError, match="there is no cluster with name nowhere; there are: gone, there"):
        await ask(KubeSettings(kubeconfig=file, cluster="nowhere"))
    with pytest.raises(ConfigurationError, match="there is no user with name nobody; there are: known, stranger"):
        await ask(KubeSettings(kubeconfig=file, user="nobody"))


async def test_cluster_and_user_need_no_context(config: Config) -> None:
    file = config.write(contexts=None, **{"current-context": None})
    await ask(KubeSettings(kubeconfig=file, cluster="here", user="here"))


async def test_server_is_used_with_the_authority_of_the_cluster(config: Config, server: TlsServer) -> None:
    config.cluster["server"] = "https://127.0.0.1:1"
    identity = await ask(KubeSettings(kubeconfig=config.write(), server=server.url))
    assert identity.instead == (f"server {server.url}",)


async def test_server_has_not_the_certificate_name_of_the_cluster(config: Config, server: TlsServer) -> None:
    config.cluster |= {"server": "https://127.0.0.1:1", "tls-server-name": "elsewhere.example.com"}
    await ask(KubeSettings(kubeconfig=config.write(), server=server.url))


async def test_token_is_used_in_the_place_of_every_login_and_never_said(config: Config) -> None:
    config.user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/program"}}
    settings = KubeSettings(kubeconfig=config.write(), token=TOKEN)
    identity = await ask(settings)
    assert identity.instead == ("the given token",)
    assert TOKEN not in repr(settings)


async def test_server_without_a_kubeconfig_gets_no_login_and_never_that_of_a_pod(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    settings = KubeSettings(server="http://127.0.0.1:1")
    found = await find_credentials(settings, ManualClock(), environ=pod, home=tmp_path)
    assert (found.source, found.configuration.host, await found.headers()) == ("no kubeconfig", settings.server, {})
    settings = KubeSettings(server="http://127.0.0.1:1", token=TOKEN)
    found = await find_credentials(settings, ManualClock(), environ={}, home=tmp_path)
    assert await found.headers() == {"Authorization": f"Bearer {TOKEN}"}


async def test_server_that_repeats_the_token_does_not_bring_it_into_a_message(
    config: Config, server: TlsServer
) -> None:
    server.repeats = True
    with pytest.raises(ApiCallError, match="you sent Bearer <token>") as refused:
        await ask(KubeSettings(kubeconfig=config.write()))
    assert TOKEN not in str(refused.value)
