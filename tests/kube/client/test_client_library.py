"""What the adapters use of the libraries beyond their documented interface.

`transport` and `credentials` override private methods of the Kubernetes client and of aiohttp, and read attributes that neither
documents.  After an upgrade these tests name the hook that has changed; everything else of the library may change freely.
"""

import asyncio
import inspect
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.connector import Connection
from kubernetes.aio import __version__ as release
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, incluster_config, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

LIBRARY = f"kubernetes {release}"
# The library has no annotations for these.
LOADER: Any = InClusterConfigLoader
LOAD_KUBE_CONFIG: Any = load_kube_config


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (RESTClientObject, {"configuration"}),
        (RESTClientObject._create_connector, {"self"}),
        (RESTClientObject._create_pool_manager, {"self"}),
        (Configuration, {"connection_pool_maxsize"}),
        (Configuration.auth_settings, {"self"}),
        (load_kube_config, {"config_file", "context", "client_configuration", "persist_config"}),
        (InClusterConfigLoader, {"token_filename", "cert_filename", "try_refresh_token", "environ"}),
        (InClusterConfigLoader.load_and_set, {"self", "client_configuration"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_hook_takes_what_the_adapters_pass(function: Callable[..., object], parameters: set[str]) -> None:
    taken = set(inspect.signature(function).parameters)
    name = function.__qualname__
    assert parameters <= taken, f"{LIBRARY}: {name} does not take {sorted(parameters - taken)} any more"
    if name.startswith("RESTClientObject._"):
        assert taken == {"self"}, f"{LIBRARY}: {name} is overridden or called without arguments, but takes {taken}"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "cert_file",
        "client_session_kwargs",
        "connection_pool_maxsize",
        "host",
        "proxy",
        "proxy_headers",
        "ssl_ca_cert",
        "tls_server_name",
        "verify_ssl",
    ],
)
def test_a_configuration_has_what_the_adapters_read_and_set(name: str) -> None:
    assert hasattr(Configuration(), name), f"{LIBRARY}: Configuration has no {name} any more"


def test_a_configuration_is_nobody_elses() -> None:
    first, second = Configuration(), Configuration()
    first.api_key["BearerToken"] = "secret"
    assert not second.api_key, (
        f"{LIBRARY}: two Configurations share their api_key, so that clusters mix up their tokens"
    )


async def test_the_token_is_found_among_the_settings_for_authentication() -> None:
    configuration = Configuration()
    assert "BearerToken" not in await configuration.auth_settings()
    configuration.api_key["BearerToken"] = "Bearer token"
    found = await configuration.auth_settings()
    value = found.get("BearerToken", {}).get("value")
    assert value == "Bearer token", f"{LIBRARY}: auth_settings() has the token in another place: {found}"


class _Rest(RESTClientObject):
    """Overrides what `transport` overrides."""

    made: aiohttp.TCPConnector

    def _create_connector(self) -> aiohttp.TCPConnector:
        assert self.maxsize == 7, f"{LIBRARY}: RESTClientObject.maxsize is not connection_pool_maxsize"
        assert isinstance(self.ssl_context, ssl.SSLContext), f"{LIBRARY}: RESTClientObject.ssl_context is no SSLContext"
        self.made = aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context)
        return self.made


class _Request(aiohttp.ClientRequest):
    """Overrides what `transport` overrides, and notes what was sent."""

    sent: list[str]

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _Request.sent.append(self.method)
        raise ConnectionRefusedError(f"not sent: {conn is not None}")


async def test_a_session_has_the_overridden_connector_and_arguments() -> None:
    configuration = Configuration(connection_pool_maxsize=7)
    configuration.client_session_kwargs = {"trust_env": False, "request_class": _Request}
    rest = _Rest(configuration)
    session = rest._create_pool_manager()
    try:
        assert isinstance(session, aiohttp.ClientSession), f"{LIBRARY}: _create_pool_manager() makes a {type(session)}"
        assert session.connector is rest.made, f"{LIBRARY}: the session does not use what _create_connector() makes"
        assert session.trust_env is False, f"{LIBRARY}: client_session_kwargs do not reach the session"
    finally:
        await session.close()


async def test_every_request_goes_through_the_class_that_may_refuse_it() -> None:
    """The guard for writes stands where aiohttp hands a request to its connection, after the wait for the connection."""

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    _Request.sent = []
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, aiohttp.ClientSession(request_class=_Request) as session:
        for method in ("GET", "PUT"):
            with pytest.raises((OSError, aiohttp.ClientError), match="not sent"):
                await session.request(method, f"http://127.0.0.1:{port}/")
    assert _Request.sent == ["GET", "PUT"], (
        f"aiohttp {aiohttp.__version__}: ClientRequest.send is not what sends a request"
    )


def test_a_service_account_is_read_into_the_given_configuration(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text(name)
    environ = {incluster_config.SERVICE_HOST_ENV_NAME: "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    given: dict[str, Any] = {
        "token_filename": str(tmp_path / "token"),
        "cert_filename": str(tmp_path / "ca.crt"),
        "try_refresh_token": False,
    }
    configuration = Configuration()
    before = configuration.refresh_api_key_hook
    LOADER(**given, environ=environ).load_and_set(configuration)
    assert configuration.host == "https://10.0.0.1:443", f"{LIBRARY}: the host is read in another way"
    assert configuration.api_key == {"BearerToken": "bearer token"}, f"{LIBRARY}: the token is kept in another place"
    assert configuration.ssl_ca_cert == given["cert_filename"], f"{LIBRARY}: the authority is kept in another place"
    assert configuration.refresh_api_key_hook is before, f"{LIBRARY}: the loader renews the token although it must not"
    with pytest.raises(ConfigException):
        LOADER(**given, environ={}).load_and_set(Configuration())


async def test_a_wrong_kubeconfig_raises_what_the_adapters_expect(tmp_path: Path) -> None:
    (tmp_path / "config").write_text('{"clusters": [], "contexts": [], "users": [], "current-context": "x"}')
    with pytest.raises(ConfigException):
        await LOAD_KUBE_CONFIG(
            config_file=str(tmp_path / "config"), client_configuration=Configuration(), persist_config=False
        )


def test_the_files_of_a_service_account_are_where_kubernetes_mounts_them() -> None:
    mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert f"{mounted}/token" == incluster_config.SERVICE_TOKEN_FILENAME
    assert f"{mounted}/ca.crt" == incluster_config.SERVICE_CERT_FILENAME
