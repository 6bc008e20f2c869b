"""A page over a made cluster, asked as a browser asks it."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from dra_extender.page.application import PageApplication
from dra_extender.page.sources import FixedState
from dra_extender.page.views import CommandLines

from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster

TOKEN = "token-of-a-test"  # noqa: S105 - opens nothing but this page

Open = Callable[[MadeCluster], httpx.AsyncClient]


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes: partitions of one GPU, one of them allocated, and a tainted GPU; a pod that waits."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="98")],
        [device(f"mig-{index}", consumes=[consumption("gpu-0", groups=["mig"], sm="42")]) for index in range(2)],
    )
    made.gpus("n2", device("gpu-0", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}]))
    made.running("train", "n1", "mig-0", request("gpu", "gpu"))
    made.pod("late", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    return made


@pytest.fixture
async def open_page() -> AsyncIterator[Open]:
    """Opens a page over a cluster; paths are relative to its token."""
    clients: list[httpx.AsyncClient] = []

    def opened(made: MadeCluster) -> httpx.AsyncClient:
        page = PageApplication(FixedState(made.cluster()), CommandLines(("--snapshot", "x.tar.gz")), TOKEN)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(page.asgi), base_url=f"http://127.0.0.1:8000/{TOKEN}/")
        clients.append(client)
        return client

    yield opened
    for each in clients:
        await each.aclose()
