import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import aiohttp
import typer
import uvloop
from rich.console import Console

from dra_extender.config.policy_file import read_policy
from dra_extender.config.settings import InvalidSettingsError, Settings, load_settings
from dra_extender.config.timeouts import FILTER_HTTP_SECONDS, bind_http_seconds
from dra_extender.service.http_server import listen
from dra_extender.service.service import Service
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.served_fields import served_by
from dra_extender.simulator.demo.manifests import ManifestError, Manifests, load_files, load_texts
from dra_extender.simulator.demo.report import StoryReport, as_json
from dra_extender.simulator.demo.results import StoryResult
from dra_extender.simulator.demo.runner import EXIT_USAGE, exit_code, run_story
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging
from dra_extender.telemetry.metrics import Metrics

_LOOPBACK: Final = "127.0.0.1"
_STDIN: Final = Path("-")


class UnknownReleaseError(ValueError):
    """No release whose API server can be emulated."""


class Story(NamedTuple):
    """What is played on one cluster, and the policy file in force there."""

    title: str
    manifests: Manifests
    policy: Path | None = None


class DemoOutput(StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command `demo`."""
    app.command("demo")(demo)


def demo(
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", help="Manifests to play as one story, in this order; a folder, or - for standard input."
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", metavar="FILE", help="Policy for devices (docs/policy.md); default: policies/NAME beside FILE."
        ),
    ] = None,
    output: Annotated[DemoOutput, typer.Option("--output", "-o", help="How to tell what happened.")] = DemoOutput.TEXT,
    kubernetes: Annotated[
        str, typer.Option("--kubernetes", help="Release whose API server is emulated, from 1.34 to 1.37.")
    ] = "1.37",
) -> None:
    """Play manifests on a cluster in memory, with the real extender behind real HTTP.

    Without files, the examples of the project are played, each on a cluster of its own.  Exit status: 0 when every expectation in
    the manifests holds, 1 when one does not, 2 when a manifest cannot be used.
    """
    try:
        stories = [_given(file)] if file else examples()
        if policy is not None:
            stories = [story._replace(policy=policy) for story in stories]
        minor = _minor(kubernetes)
        settings = load_settings(None, {"server": {"host": _LOOPBACK, "port": 0}})
        for path in {story.policy for story in stories if story.policy is not None}:
            read_policy(path)
    except (ManifestError, InvalidSettingsError, UnknownReleaseError) as problem:
        sys.stderr.write(f"{problem}\n")
        raise typer.Exit(EXIT_USAGE) from problem
    configure_logging(LogFormat.TEXT, LogLevel.WARNING)
    report = StoryReport(Console(highlight=False)) if output is DemoOutput.TEXT else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(_play(stories, minor, settings, report))
    if report is None:
        sys.stdout.write(as_json(results) + "\n")
    else:
        report.summary(results)
    raise typer.Exit(exit_code(results))


def examples() -> list[Story]:
    """The stories that come with the project, by file name: from the installed package, else from the source tree.

    A story for which the folder `policies` has a file of the same name is played with that policy.

    Raises:
        ManifestError: a manifest cannot be used, or there are none.
    """
    for folder in (resources.files("dra_extender") / "_examples", Path(__file__).parents[4] / "deploy" / "examples"):
        if folder.is_dir():
            found = sorted(
                (each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name
            )
            return [
                Story(each.name, load_texts([(each.name, each.read_text(encoding="utf-8"))]), _policy_of(str(each)))
                for each in found
            ]
    raise ManifestError.saying("the examples are not part of this installation; name manifests with -f")


def _policy_of(story: str) -> Path | None:
    path = Path(story)
    policy = path.parent / "policies" / path.name
    return policy if policy.is_file() else None


@asynccontextmanager
async def serve(cluster: MemoryCluster, settings: Settings) -> AsyncIterator["HttpTransport"]:
    """The whole service over this cluster, behind HTTP on the configured address, ready for calls."""
    service, stop = Service(settings, cluster, Metrics()), asyncio.Event()
    with listen(settings.server) as listener:
        listener.listen()
        running = asyncio.create_task(service.run(stop, listener))
        try:
            await _ready(service, running)
            host, port = listener.getsockname()[:2]
            async with aiohttp.ClientSession() as session:
                timeout = settings.scheduling.binding_timeout_seconds
                yield HttpTransport(session, f"http://{host}:{port}", timeout)
        finally:
            stop.set()
            await running


async def _ready(service: Service, running: asyncio.Task[None]) -> None:
    """Return when the verbs are answered; a service that ends before says why."""
    while service.gate.reason is not None:
        await asyncio.wait({running}, timeout=0.005)
        if running.done():
            running.result()


class HttpTransport:
    """Calls the extender as kube-scheduler does: POST, JSON, a time-out for each call.  Implements the simulator's Transport."""

    def __init__(self, session: aiohttp.ClientSession, url: str, binding_timeout: float) -> None:
        self._session = session
        self._bind_seconds = bind_http_seconds(binding_timeout)
        self._url = url

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer.  Raises OSError when there is none."""
        seconds = self._bind_seconds if verb == "bind" else FILTER_HTTP_SECONDS
        try:
            async with self._session.post(
                f"{self._url}/{verb}",
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as response:
                return response.status, await response.read()
        except aiohttp.ClientError as problem:
            raise OSError(str(problem) or type(problem).__name__) from problem


def with_policy(settings: Settings, policy: Path | None) -> Settings:
    """The settings with this policy file, if there is one."""
    if policy is None:
        return settings
    scheduling = settings.scheduling.model_copy(update={"policy_file": policy})
    return settings.model_copy(update={"scheduling": scheduling})


async def _play(stories: list[Story], minor: int, settings: Settings, report: StoryReport | None) -> list[StoryResult]:
    results = []
    for title, manifests, policy in stories:
        in_force = with_policy(settings, policy)

        def start(cluster: MemoryCluster, chosen: Settings = in_force) -> AbstractAsyncContextManager[HttpTransport]:
            return serve(cluster, chosen)

        if report is None:
            results.append(await run_story(title, manifests, start, served=served_by(minor)))
            continue
        report.title(title)
        report.warnings(str(warning) for warning in manifests.warnings)
        result = await run_story(title, manifests, start, served=served_by(minor), observe=report.step)
        report.end(result)
        results.append(result)
    return results


def _given(files: list[Path]) -> Story:
    title = ", ".join(map(str, files))
    if _STDIN not in files:
        policies = [found for found in (_policy_of(str(each)) for each in files) if found is not None]
        return Story(title, load_files(files), policies[0] if len(policies) == 1 else None)
    if len(files) > 1:
        raise ManifestError.saying("standard input (-f -) cannot be combined with other files")
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as problem:
        raise ManifestError.saying("standard input is not UTF-8 text") from problem
    return Story("standard input", load_texts([("standard input", text)]))


def _minor(release: str) -> int:
    """The minor of "1.37"."""
    major, _, minor = release.partition(".")
    try:
        if major == "1":
            served_by(int(minor))
            return int(minor)
    except ValueError:
        pass
    raise UnknownReleaseError(f"--kubernetes: expected a release from 1.34 to 1.37, found {release!r}")
