from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.runtime.clock import SystemClock

from tests.support.kube.fake_api_server import FakeApiServer
from tests.support.kube.recording import CountingObserver


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.start() as started:
        yield started


@pytest.fixture
def observer() -> CountingObserver:
    return CountingObserver()


@pytest.fixture
def settings(server: FakeApiServer, tmp_path: Path) -> KubeSettings:
    return KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"), instance="replica-0")


@pytest_asyncio.fixture
async def transport(settings: KubeSettings, observer: CountingObserver) -> AsyncIterator[ApiTransport]:
    made = ApiTransport(settings, SystemClock(), observer)
    made.connect(await find_credentials(settings, SystemClock()))
    yield made
    await made.close()
