"""Every test of the contract runs on the simulated API server, and, marked e2e, on the real one."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio
from dra_extender.simulator.virtual_time import VirtualClockLoop

from tests.contract.contract_server import ContractServer
from tests.contract.sides import RealServer, SimulatedServer
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.options import WITHOUT_CONTROLLERS, ControlPlaneOptions

OPTIONS = ControlPlaneOptions(without_controllers=(*WITHOUT_CONTROLLERS, "resourceclaim-controller"))
"""That controller would take away reservations of pods that do not exist."""
PLANE = pytest.StashKey[ControlPlane]()
"""The control plane that the modules share."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time for the simulated server, real time for the real one."""
    return {"simulated": VirtualClockLoop, "real": asyncio.new_event_loop}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests on the real server, and let its programs be built for them."""
    if isinstance(item, pytest.Function) and "real" in getattr(getattr(item, "callspec", None), "id", ""):
        item.add_marker("e2e")
        # A list of its own: pytest shares one between the tests of a function.
        item.fixturenames = [*item.fixturenames, "binaries"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the control plane of the contract."""
    plane = session.config.stash.get(PLANE, None)
    if plane is not None:
        asyncio.run(plane.close())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ContractServer]:
    """The server of a module's tests."""
    if isinstance(asyncio.get_running_loop(), VirtualClockLoop):
        simulated = await SimulatedServer.start(tmp_path_factory.mktemp("simulated"))
        yield simulated
        await simulated.close()
        return
    plane = request.config.stash.get(PLANE, None)
    if plane is None:
        plane = await ControlPlane.open(tmp_path_factory.mktemp("contract"), OPTIONS)
        request.config.stash[PLANE] = plane
    else:
        plane.connect()
    real = RealServer(plane)
    yield real
    await real.close()
    await plane.disconnect()


@pytest_asyncio.fixture(loop_scope="module")
async def server(module_server: ContractServer, request: pytest.FixtureRequest) -> ContractServer:
    """The server, with a namespace for the test."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{request.module.__name__.rpartition('.')[2]}-{request.node.originalname}")
    words = name.removeprefix("test-").replace("-test-", "-").strip("-")
    module_server.namespace = f"{words[:50].rstrip('-')}-{zlib.crc32(request.node.name.encode()):x}"
    made = await module_server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": module_server.namespace}})
    assert made.code == 201, made
    return module_server
