"""The options of kubectl about TLS, on a small server that asks for client certificates."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from dra_extender.cli.app import app
from typer.testing import CliRunner

from tests.support.api.tls import Issuer, issuer
from tests.support.serving import serving

SERVER_NAME = "kubernetes.default.svc"
PASSED = "this server says no"


@dataclass
class TlsServer:
    """Refuses every request; `callers` are the names in the client certificates, empty without one, `seen` the headers."""

    url: str = ""
    callers: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
        self.callers.append("".join(names))
        self.seen.append(request.headers)
        return web.json_response({"message": PASSED}, status=403)


@pytest.fixture
def made(tmp_path: Path) -> Issuer:
    made = issuer(tmp_path / "trusted")
    made.bundle()
    made.client("somebody")
    other = issuer(tmp_path / "other", "other")
    other.bundle()
    other.client("stranger")
    return made


@pytest_asyncio.fixture
async def server(made: Issuer) -> AsyncIterator[TlsServer]:
    started = TlsServer()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.folder / "ca.crt")
    context.load_cert_chain(*made.server("127.0.0.1", SERVER_NAME))
    context.verify_mode = ssl.CERT_OPTIONAL
    application = web.Application()
    application.router.add_get("/{path:.*}", started.answer)
    async with serving(application, context) as started.url:
        yield started


@pytest.fixture
def usage(server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run `usage` on a kubeconfig of the server, with these fields of cluster and user; return what it says."""
    monkeypatch.chdir(tmp_path)

    async def run(*options: str, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
        document = {
            "clusters": [{"name": "a", "cluster": {"server": server.url, **(cluster or {})}}],
            "users": [{"name": "a", "user": user or {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        command = ("usage", "--kubeconfig", "kubeconfig", *options)
        done = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert (done.exit_code, "Traceback" in done.output) == (2, False)
        return done.stderr

    return run


TRUSTED = ("--certificate-authority", "trusted/ca.crt")
NOT_TRUSTED = "certificate is not trusted"


@pytest.mark.parametrize(
    ("options", "cluster", "said"),
    [
        ((), {}, NOT_TRUSTED),
        (TRUSTED, {}, PASSED),
        (TRUSTED, {"certificate-authority": "absent.crt"}, PASSED),
        (TRUSTED, {"certificate-authority-data": "AAAA"}, PASSED),
        (("--certificate-authority", "other/ca.crt"), {"insecure-skip-tls-verify": True}, NOT_TRUSTED),
        (("--insecure-skip-tls-verify",), {}, PASSED),
        (("--insecure-skip-tls-verify",), {"certificate-authority": "absent.crt"}, PASSED),
        ((*TRUSTED, "--tls-server-name", SERVER_NAME), {"tls-server-name": "elsewhere"}, PASSED),
        ((*TRUSTED, "--tls-server-name", "elsewhere"), {}, "elsewhere"),
    ],
)
async def test_options_replace_what_the_kubeconfig_trusts(
    usage: Callable[..., Any], options: tuple[str, ...], cluster: dict[str, Any], said: str
) -> None:
    assert said in await usage(*options, cluster=cluster)


async def test_name_of_the_option_counts_with_another_server(usage: Callable[..., Any], server: TlsServer) -> None:
    there = ("--server", server.url, *TRUSTED)
    cluster = {"server": "https://127.0.0.1:1", "tls-server-name": "elsewhere"}
    assert PASSED in await usage(*there, cluster=cluster)
    assert "nowhere" in await usage(*there, "--tls-server-name", "nowhere", cluster=cluster)


async def test_options_are_enough_without_a_kubeconfig(
    server: TlsServer, made: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = ("--client-certificate", "trusted/client.crt", "--client-key", "trusted/client.key")
    environment = {"KUBECONFIG": None, "HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": None}
    runner = CliRunner(env=environment)
    done = await asyncio.to_thread(runner.invoke, app, ("usage", "--server", server.url, *TRUSTED, *client))
    assert (PASSED in done.stderr, server.callers[0]) == (True, "somebody")


@pytest.mark.parametrize(
    ("options", "user"),
    [
        (("certificate", "key"), {}),
        (("certificate",), {"client-certificate": "absent.crt", "client-key": "trusted/client.key"}),
        (("key",), {"client-certificate": "trusted/client.crt", "client-key": "absent.key"}),
        (("certificate", "key"), {"client-certificate": "other/client.crt", "client-key": "other/client.key"}),
        (("certificate", "key"), {"token": "of somebody else"}),
    ],
)
async def test_client_certificate_and_key_replace_those_of_the_user(
    usage: Callable[..., Any], server: TlsServer, options: tuple[str, ...], user: dict[str, Any]
) -> None:
    extensions = {"certificate": "crt", "key": "key"}
    words = [word for each in options for word in (f"--client-{each}", f"trusted/client.{extensions[each]}")]
    assert PASSED in await usage(*TRUSTED, *words, user=user)
    assert server.callers[0] == "somebody"


async def test_client_certificate_goes_with_a_token(usage: Callable[..., Any], server: TlsServer) -> None:
    client = ("--client-certificate", "trusted/client.crt", "--client-key", "trusted/client.key")
    assert PASSED in await usage(*TRUSTED, *client, "--token", "of-somebody")
    assert (server.callers[0], server.seen[0]["Authorization"]) == ("somebody", "Bearer of-somebody")


async def test_uid_is_sent_with_the_user(usage: Callable[..., Any], server: TlsServer) -> None:
    assert PASSED in await usage(*TRUSTED, "--as", "somebody", "--as-uid", "1234", user={"as": "x", "as-uid": "5"})
    assert (server.seen[0]["Impersonate-User"], server.seen[0]["Impersonate-Uid"]) == ("somebody", "1234")


CERTIFICATE = ("--client-certificate", "trusted/client.crt")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--certificate-authority", "absent"), "--certificate-authority absent: cannot be read: No such file"),
        (("--certificate-authority", "trusted"), "--certificate-authority trusted: cannot be read: Is a directory"),
        (("--certificate-authority", "kubeconfig"), "authority kubeconfig: expected certificates in PEM"),
        ((*TRUSTED, "--insecure-skip-tls-verify"), "--certificate-authority does not go with it"),
        (CERTIFICATE, "--client-certificate trusted/client.crt: needs --client-key"),
        (("--client-key", "trusted/client.key"), "--client-key trusted/client.key: needs --client-certificate"),
        (
            ("--client-certificate", "trusted/client.key", "--client-key", "trusted/client.key"),
            "expected certificates in PEM",
        ),
        ((*CERTIFICATE, "--client-key", "absent"), "--client-key absent: cannot be read: No such file"),
        ((*CERTIFICATE, "--client-key", "other/client.key"), "does not belong to the client certificate"),
        ((*CERTIFICATE, "--client-key", "kubeconfig"), "--client-key kubeconfig: expected a private key in PEM"),
        (("--tls-server-name", "two words"), "--tls-server-name: expected a host name"),
        (("--tls-server-name", "a" * 70), "--tls-server-name: expected a host name"),
        (("--as-uid", "5"), "--as-uid needs --as"),
        (("--as", "a\r\nb"), "--as-uid: expected printable characters"),
    ],
)
async def test_options_that_cannot_be_used_end_with_a_sentence(
    usage: Callable[..., Any], server: TlsServer, options: tuple[str, ...], said: str
) -> None:
    assert said in await usage(*options)
    assert server.seen == []


async def test_nobody_is_asked_for_the_passphrase_of_a_key(usage: Callable[..., Any], made: Issuer) -> None:
    encrypted, key = made.folder / "encrypted.key", made.folder / "client.key"
    loaded = load_pem_private_key(key.read_bytes(), None)
    encrypted.write_bytes(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert "expected a private key in PEM, without a passphrase" in await usage(
        *CERTIFICATE, "--client-key", str(encrypted)
    )


async def test_server_that_cannot_be_reached_is_named_with_the_reason(usage: Callable[..., Any]) -> None:
    assert "no answer: cannot connect to 127.0.0.1:1: Connection refused" in await usage(
        "--server", "https://127.0.0.1:1", "--insecure-skip-tls-verify"
    )
    assert "no answer: cannot connect to nowhere.invalid:443: " in await usage("--server", "https://nowhere.invalid")


async def test_server_without_tls_is_named_with_the_reason(usage: Callable[..., Any]) -> None:
    plain = web.Application()
    async with serving(plain) as url:
        said = await usage("--server", url.replace("http://", "https://"))
    assert "SSL" in said
    assert "cannot connect to 127.0.0.1:" in said
