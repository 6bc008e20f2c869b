"""Fixtures for tests on the real control plane.

A module that uses them runs all its tests in one event loop, which the control plane's client belongs to:

    pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

    async def test_x(control_plane: ControlPlaneFactory) -> None:
        cluster = await control_plane(ControlPlaneOptions(emulated_version="1.36"))

A module's own async fixtures are declared with `@pytest_asyncio.fixture(scope="module", loop_scope="module")`, and those per
test with `@pytest_asyncio.fixture(loop_scope="module")`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.apierror import ApiError
from tests.controlplane.build import CONTROL_PLANE, BuildError, ensure
from tests.controlplane.cluster import DEFAULT_OPTIONS, ControlPlane
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.sweeping import sweep
from tests.support.granted_rights import keep

BUILT = pytest.StashKey[Path | BuildError]()
USED = pytest.StashKey[list[ControlPlane]]()
GARBAGE_PERCENT = "400"
"""The programs live for seconds: they may use some more memory, and less time for collecting garbage."""
MOST_KEPT = 2
"""How many control planes without a module a worker keeps; each costs memory and some processor time while it waits."""


class ControlPlaneFactory:
    """Control planes of one test module: `await control_plane(options)`. They stop when the module ends, or are `used` on."""

    def __init__(self, workdir: Path, stack: AsyncExitStack, used: list[ControlPlane]) -> None:
        self.started: list[ControlPlane] = []
        self.failed = False
        self._workdir = workdir
        self._stack = stack
        self._used = used

    async def __call__(
        self, options: ControlPlaneOptions = DEFAULT_OPTIONS, *, fresh: bool = False, used: bool = False
    ) -> ControlPlane:
        """The module's control plane with these options, started by the first who asks; with `fresh`, always a new one.

        Tests that share one keep apart by namespaces. `used`: one with these options that another module has used will do, and
        the next module gets it, swept, if no test fails here; namespaces and Events stay.
        """
        if not fresh:
            for cluster in self.started:
                if cluster.options == options:
                    return cluster
        if used:
            cluster = await self._used_on(options)
        else:
            cluster = await self._stack.enter_async_context(ControlPlane.start(self._workdir, options))
        self.started.append(cluster)
        return cluster

    async def _used_on(self, options: ControlPlaneOptions) -> ControlPlane:
        cluster = next((kept for kept in self._used if kept.options == options), None)
        if cluster is None:
            cluster = await ControlPlane.open(self._workdir, options)
        else:
            self._used.remove(cluster)
            cluster.connect()
        self._stack.push_async_callback(self._give_on, cluster, options)
        return cluster

    async def _give_on(self, cluster: ControlPlane, options: ControlPlaneOptions) -> None:
        """Leave the control plane to the next module if it is as it was at first."""
        while len(self._used) >= MOST_KEPT:
            await self._used.pop(0).close()
        if not self.failed and cluster.whole and cluster.options == options:
            try:
                await sweep(cluster.api)
            except (ApiError, TimeoutError):
                pass
            else:
                await cluster.disconnect()
                self._used.append(cluster)
                return
        await cluster.close()


def pytest_configure(config: pytest.Config) -> None:
    """Programs in Go, which tests start, collect garbage more rarely."""
    os.environ.setdefault("GOGC", GARBAGE_PERCENT)
    config.stash[USED] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the control planes that no module used on."""
    for cluster in session.config.stash[USED]:
        asyncio.run(cluster.close())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the programs before the first test: a first build takes minutes, and the time limit is for tests."""
    if session.config.option.collectonly:
        return
    if any("binaries" in getattr(item, "fixturenames", ()) for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        # The builder tells what it is doing; minutes of silence would look like a hang.
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            session.stash[BUILT] = _build()


def _build() -> Path | BuildError:
    try:
        return ensure(CONTROL_PLANE)
    except BuildError as error:
        return error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells where the logs are when a test on a control plane fails."""
    report = yield
    factory = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and isinstance(factory, ControlPlaneFactory):
        factory.failed = True
        folders = "\n".join(str(cluster.logs("kube-apiserver").parent) for cluster in factory.started)
        report.sections.append(("control plane logs", folders))
    return report


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Path:
    """Folder of the control plane's programs; fails with the builder's sentence if they cannot be built."""
    built = request.session.stash[BUILT]
    if isinstance(built, BuildError):
        pytest.fail(str(built), pytrace=False)
    return built


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(
    binaries: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlaneFactory]:
    """Starts control planes for the tests of one module; see ControlPlaneFactory."""
    async with AsyncExitStack() as stack:
        factory = ControlPlaneFactory(tmp_path_factory.mktemp("e2e"), stack, request.config.stash[USED])
        yield factory
        for cluster in factory.started:
            keep(request.config.rootpath, request.module.__name__, cluster.asked)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(control_plane: ControlPlaneFactory) -> ControlPlane:
    """The module's control plane with default options."""
    return await control_plane()
