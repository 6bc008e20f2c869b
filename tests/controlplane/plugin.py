"""Fixtures for tests on the real control plane.

A module that uses them runs all its tests in one event loop, which the control plane's client belongs to:

    pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

    async def test_x(cluster: ControlPlane) -> None:

planes.py says which control plane that is. A module's own async fixtures are declared with
`@pytest_asyncio.fixture(scope="module", loop_scope="module")`; those of a test without the scope.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.controlplane.apierror import ApiError
from tests.controlplane.build import CONTROL_PLANE, BuildError, ensure, programs_of
from tests.controlplane.cluster import STARTED, ControlPlane
from tests.controlplane.groups import PlaneGroups, write_groups
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.planes import PLANES, plane_of
from tests.controlplane.sweeping import sweep
from tests.support.granted_rights import keep

COUNTED = pytest.StashKey[Counter[str]]()
BUILT = pytest.StashKey[Path | BuildError]()
KEPT = pytest.StashKey[list[ControlPlane]]()
GARBAGE_PERCENT = "400"
"""The programs live for seconds: they may use some more memory, and less time for collecting garbage."""
MOST_KEPT = 2
"""How many control planes without a module a worker keeps: a module may have used two when another begins."""


class ControlPlaneFactory:
    """Control planes of one test module: `await control_plane(options)`.

    One without a name stops when the module ends. One with a name is handed on to the next module that names it, swept of objects,
    unless a test failed here; namespaces and Events stay.
    """

    def __init__(self, workdir: Path, stack: AsyncExitStack, kept: list[ControlPlane]) -> None:
        self.started: list[ControlPlane] = []
        self.failed = False
        self._workdir = workdir
        self._stack = stack
        self._kept = kept

    async def __call__(self, options: ControlPlaneOptions) -> ControlPlane:
        """Return the module's control plane of this name, with these options; the first who asks starts it or takes it over."""
        cluster = _named(self.started, options)
        if cluster is None:
            cluster = _named(self._kept, options)
            if cluster is None:
                cluster = await ControlPlane.open(self._workdir, options)
            else:
                self._kept.remove(cluster)
                cluster.connect()
            self._stack.push_async_callback(self._hand_on if options.name else ControlPlane.close, cluster)
            self.started.append(cluster)
        await cluster.change(options)
        return cluster

    async def _hand_on(self, cluster: ControlPlane) -> None:
        while len(self._kept) >= MOST_KEPT:
            await self._kept.pop(0).close()
        if not self.failed and cluster.whole:
            try:
                await sweep(cluster.api)
            except (ApiError, TimeoutError):
                pass
            else:
                await cluster.disconnect()
                self._kept.append(cluster)
                return
        await cluster.close()


def _named(clusters: list[ControlPlane], options: ControlPlaneOptions) -> ControlPlane | None:
    same = (
        each for each in clusters if each.options.name == options.name and (options.name or each.options == options)
    )
    return next(same, None)


def pytest_configure(config: pytest.Config) -> None:
    """Programs in Go, which tests start, collect garbage more rarely."""
    os.environ.setdefault("GOGC", GARBAGE_PERCENT)
    config.stash[KEPT] = []
    if config.getoption("dist", "no") == "loadgroup":
        config.pluginmanager.register(PlaneGroups(config))
    config.stash[COUNTED] = STARTED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the limit of started control planes."""
    parser.addoption("--most-planes", type=int, help="Fail if the tests start more control planes.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by planes, those of the first plane first."""
    order = {plane.name: number for number, plane in enumerate(PLANES)}
    items.sort(key=lambda item: order[plane_of(item).name])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the control planes that no module needs any more; hold the limit, if no test failed and cost a start."""
    for cluster in session.config.stash[KEPT]:
        asyncio.run(cluster.close())
    if (worker := getattr(session.config, "workeroutput", None)) is not None:
        worker["planes"] = dict(STARTED)
        return
    most = session.config.option.most_planes
    if most is not None and session.config.stash[COUNTED].total() > most and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count the control planes of a worker."""
    node.config.stash[COUNTED].update(getattr(node, "workeroutput", {}).get("planes", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    """Say how many control planes were started."""
    counted, most = config.stash[COUNTED], config.option.most_planes
    if counted:
        each = ", ".join(f"{number} {name or 'without a name'}" for name, number in sorted(counted.items()))
        terminalreporter.write_line(f"control planes started: {counted.total()} ({each})")
        if most is not None and counted.total() > most and exitstatus == pytest.ExitCode.OK:
            terminalreporter.write_line(f"ERROR: at most {most} may be started", red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the programs before the first test: a first build takes minutes, and the time limit is for tests."""
    write_groups(session)
    if session.config.option.collectonly:
        return
    if any("binaries" in getattr(item, "fixturenames", ()) for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        # The builder tells what it is doing; minutes of silence would look like a hang.
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            session.stash[BUILT] = _build({plane_of(item).built for item in session.items})


def _build(releases: set[str | None]) -> Path | BuildError:
    """Build the newest programs, and those of the releases."""
    try:
        for release in releases:
            ensure(programs_of(release))
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
        factory = ControlPlaneFactory(tmp_path_factory.mktemp("e2e"), stack, request.config.stash[KEPT])
        yield factory
        for cluster in factory.started:
            keep(request.config.rootpath, request.module.__name__, cluster.asked)


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> ControlPlaneOptions:
    """The plane that the module or the parameter names."""
    named: ControlPlaneOptions = getattr(request, "param", None) or plane_of(request.node)
    return named


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(control_plane: ControlPlaneFactory, plane: ControlPlaneOptions) -> ControlPlane:
    """The control plane that the module or the parameter names."""
    return await control_plane(plane)
