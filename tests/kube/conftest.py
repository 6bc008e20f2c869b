import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.runtime.clock import SystemClock
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.simulation.api_access import User
from tests.simulation.api_discovery import Release
from tests.simulation.api_server import ApiServer
from tests.simulation.faults import Faults
from tests.support.kube.recording import CountingObserver


@pytest.fixture(autouse=True)
def _no_authorities_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Kubernetes client loads them for each connection, plain HTTP too, which takes some 40 ms; tests with TLS name theirs."""
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda _: None)


@pytest.fixture
def release() -> Release:
    """What the server serves."""
    return Release()


@pytest_asyncio.fixture
async def server(release: Release) -> AsyncIterator[ApiServer]:
    """A simulated API server with a namespace `space`."""
    started = ApiServer(SystemClock(), release=release, users={"first-token": User("dra-extender")})
    started.store.create(StoredKind.NAMESPACE, {"metadata": {"name": "space"}})
    await started.start()
    yield started
    started.stop()


@pytest.fixture
def faults(server: ApiServer) -> Faults:
    return Faults(server)


@pytest.fixture
def observer() -> CountingObserver:
    return CountingObserver()


@pytest.fixture
def settings(server: ApiServer, tmp_path: Path) -> KubeSettings:
    return KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"), instance="replica-0")


@pytest_asyncio.fixture
async def transport(settings: KubeSettings, observer: CountingObserver) -> AsyncIterator[ApiTransport]:
    made = ApiTransport(settings, SystemClock(), observer)
    made.connect(await find_credentials(settings, SystemClock()))
    yield made
    await made.close()
