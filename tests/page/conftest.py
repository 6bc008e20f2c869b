"""A page over a made cluster, asked as a browser asks it."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from dra_extender.page.application import PageApplication
from dra_extender.page.states import fixed_state
from dra_extender.page.views import CommandLines

from tests.controlplane.objects import request
from tests.support.inspection.made_cluster import MadeCluster, partitions_and_a_taint

TOKEN = "token-of-a-test"  # noqa: S105 - opens nothing but this page

Open = Callable[[MadeCluster], httpx.AsyncClient]


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes: partitions of one GPU, one of them allocated, and a tainted GPU; a pod that waits."""
    made = partitions_and_a_taint()
    made.pod("late", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    return made


@pytest.fixture
async def open_page() -> AsyncIterator[Open]:
    """Opens a page over a cluster; paths are relative to its token."""
    clients: list[httpx.AsyncClient] = []

    def opened(made: MadeCluster) -> httpx.AsyncClient:
        page = PageApplication(fixed_state(made.cluster()), CommandLines(("--snapshot", "x.tar.gz")), TOKEN)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(page.asgi), base_url=f"http://127.0.0.1:8000/{TOKEN}/")
        clients.append(client)
        return client

    yield opened
    for each in clients:
        await each.aclose()
