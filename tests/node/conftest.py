"""Fixtures of `make node`: real kubelets with containerd and a DRA driver, which start what the extender places."""

from collections.abc import AsyncIterator, Generator, Iterator

import pytest
import pytest_asyncio

from tests.controlplane.plugin import ControlPlaneFactory
from tests.node.needs import missing
from tests.support.e2e.checker import expect_sound
from tests.support.e2e.namespace_fixture import namespace_name
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene
from tests.support.node.prepared import expect_nothing_prepared, expect_prepared, refused


@pytest.fixture(scope="session")
def able() -> None:
    """This machine can run nodes."""
    if said := missing():
        pytest.fail("\n".join(f"node: {each}" for each in said), pytrace=False)


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """How the module wants its nodes and its world; modules override it."""
    return NodesSetup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(
    able: None, control_plane: ControlPlaneFactory, setup: NodesSetup, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RealNodes]:
    """The module's nodes."""
    cluster = await control_plane(setup.options)
    async with RealNodes.start(cluster, tmp_path_factory.mktemp("nodes"), setup) as nodes:
        yield nodes


@pytest_asyncio.fixture(loop_scope="module")
async def scene(nodes: RealNodes, request: pytest.FixtureRequest) -> AsyncIterator[PodScene]:
    """A test's own part of the world.  Whatever the test did, what is allocated is sound, and prepared for nobody else."""
    scene = PodScene(nodes.world, namespace_name(request), nodes=nodes)
    await scene.open()
    yield scene
    try:
        await expect_sound(nodes.api, nodes.world.kubelets)
        await expect_prepared(nodes)
        assert nodes.world.complaints() == []
    finally:
        await scene.clear()
    await expect_nothing_prepared(nodes)


@pytest.fixture
def never_twice(scene: PodScene, nodes: RealNodes) -> Iterator[None]:
    """No driver is told to prepare a device that another claim still has, however short: for tests that end nothing by force."""
    yield
    assert refused(nodes) == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the ends of the logs of extender, scheduler and nodes when a test fails."""
    report = yield
    nodes = getattr(item, "funcargs", {}).get("nodes")
    if report.failed and isinstance(nodes, RealNodes):
        report.sections.append(("extender and scheduler", nodes.world.tails()))
        report.sections.append(("nodes", nodes.tails()))
    return report
