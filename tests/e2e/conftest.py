from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio

from tests.controlplane.cluster import ControlPlane
from tests.support.e2e.checker import expect_sound
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture, namespace_name
from tests.support.e2e.scenes import Scenes


@pytest.fixture(scope="module")
def setup() -> Setup:
    """How the module wants its world; modules override it."""
    return Setup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    cluster: ControlPlane, setup: Setup, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[InstalledExtender]:
    """The module's world."""
    async with InstalledExtender.start(cluster, tmp_path_factory.mktemp("extender"), setup) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def scene(world: InstalledExtender, request: pytest.FixtureRequest) -> AsyncIterator[NamespaceFixture]:
    """A test's own part of the world.  Whatever the test did, the cluster is sound afterwards and the extender's log clean."""
    scene = NamespaceFixture(world, namespace_name(request))
    await scene.open()
    yield scene
    try:
        await expect_sound(world.api, world.kubelets)
        assert world.complaints() == []
    finally:
        await scene.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def scenes(world: InstalledExtender, request: pytest.FixtureRequest) -> AsyncIterator[Scenes]:
    """Parts of the world for the rows of a test."""
    scenes = Scenes(world, request.node.nodeid)
    yield scenes
    await scenes.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the ends of the extender's and the scheduler's logs when a test fails."""
    report = yield
    arguments = getattr(item, "funcargs", {}).values()
    worlds = (getattr(argument, "world", argument) for argument in arguments)
    found = next((each for each in worlds if isinstance(each, InstalledExtender)), None)
    if report.failed and found is not None:
        report.sections.append(("extender and scheduler", found.tails()))
    return report
