import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import typer
import uvicorn
from rich.console import Console

from app.allocator import Features
from app.api.application import create_app
from app.api.health import Health
from app.ledger.ledger import Ledger
from app.scheduling.extender import Extender
from app.scheduling.options import Options
from app.scheduling.ports import Cluster
from app.settings import ServerSettings
from app.simulator.manifests import Manifests, load_files, load_texts
from app.simulator.problems import ManifestError
from app.simulator.report import Report, as_json
from app.simulator.results import StoryResult
from app.simulator.served import served_by
from app.simulator.session import EXIT_MANIFEST, Service, exit_code, run_story
from app.telemetry.logging import LogFormat, LogLevel, configure_logging
from app.telemetry.metrics import Metrics

_LOOPBACK: Final = "127.0.0.1"
_STDIN: Final = Path("-")
_FILTER_TIMEOUT: Final = 5.0
_BIND_TIMEOUT: Final = 700.0
_STOP_SECONDS: Final = 5


class Output(StrEnum):
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
    output: Annotated[Output, typer.Option("--output", "-o", help="How to tell what happened.")] = Output.TEXT,
    kubernetes: Annotated[
        str, typer.Option("--kubernetes", help="Release whose API server is emulated, from 1.34 to 1.37.")
    ] = "1.37",
) -> None:
    """Play manifests on a cluster in memory, with the real extender behind real HTTP.

    Without files, the examples of the project are played, each on a cluster of its own.  Exit status: 0 when every expectation in
    the manifests holds, 1 when one does not, 2 when a manifest cannot be used.
    """
    configure_logging(LogFormat.TEXT, LogLevel.WARNING)
    try:
        stories = _given(file) if file else examples()
        minor = _minor(kubernetes)
    except ManifestError as problem:
        _complain(str(problem))
        raise typer.Exit(EXIT_MANIFEST) from problem
    except ValueError as problem:
        _complain(f"--kubernetes: {problem}")
        raise typer.Exit(EXIT_MANIFEST) from problem
    report = Report(Console(highlight=False)) if output is Output.TEXT else None
    results = asyncio.run(_play(stories, minor, report))
    if report is None:
        sys.stdout.write(as_json(results) + "\n")
    else:
        report.summary(results)
    raise typer.Exit(exit_code(results))


def examples() -> list[tuple[str, Manifests]]:
    """The stories that come with the project, by file name: from the installed package, else from the source tree.

    Raises:
        ManifestError: a manifest cannot be used, or there are none.
    """
    for folder in (resources.files("app") / "_examples", Path(__file__).parent.parent / "deploy" / "examples"):
        if folder.is_dir():
            found = sorted(
                (each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name
            )
            return [(each.name, load_texts([(each.name, each.read_text(encoding="utf-8"))])) for each in found]
    raise ManifestError.saying("the examples are not part of this installation; name manifests with -f")


@asynccontextmanager
async def serve(cluster: Cluster) -> AsyncIterator[Service]:
    """The extender over this cluster, behind HTTP on a free port of the loopback interface."""
    ledger, metrics = Ledger(), Metrics()
    extender = Extender(ledger, cluster, metrics, Options(), Features())
    health = Health()
    health.checks(cluster.health)
    app = create_app(extender, health, metrics, ServerSettings())
    # asyncio switches off Nagle's delay for sockets of this protocol number only; with 0 every answer would be 40 ms late.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind((_LOOPBACK, 0))
        listener.listen()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=_STOP_SECONDS
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        await extender.start()
        try:
            async with aiohttp.ClientSession() as session:
                port: int = listener.getsockname()[1]
                yield Service(ledger.feeds, HttpTransport(session, f"http://{_LOOPBACK}:{port}"))
        finally:
            await extender.stop()
            server.should_exit = True
            await serving


class HttpTransport:
    """Calls the extender as kube-scheduler does: POST, JSON, a time-out for each call.  Implements the simulator's Transport."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer.  Raises OSError when there is none."""
        seconds = _BIND_TIMEOUT if verb == "bind" else _FILTER_TIMEOUT
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


class _Server(uvicorn.Server):
    """A server that leaves signals to the program, so that Ctrl-C ends the demo."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _play(stories: list[tuple[str, Manifests]], minor: int, report: Report | None) -> list[StoryResult]:
    results = []
    for title, manifests in stories:
        if report is None:
            results.append(await run_story(title, manifests, serve, served=served_by(minor)))
            continue
        report.title(title)
        report.warnings(str(warning) for warning in manifests.warnings)
        result = await run_story(title, manifests, serve, served=served_by(minor), observe=report.step)
        report.end(result)
        results.append(result)
    return results


def _given(files: list[Path]) -> list[tuple[str, Manifests]]:
    title = ", ".join(map(str, files))
    if _STDIN not in files:
        return [(title, load_files(files))]
    if len(files) > 1:
        raise ManifestError.saying("standard input (-f -) cannot be combined with other files")
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as problem:
        raise ManifestError.saying("standard input is not UTF-8 text") from problem
    return [("standard input", load_texts([("standard input", text)]))]


def _minor(release: str) -> int:
    """The minor of "1.37"."""
    major, _, minor = release.partition(".")
    if major != "1" or not minor.isdigit():
        raise ValueError(f"expected a release from 1.34 to 1.37, found {release!r}")
    served_by(int(minor))
    return int(minor)


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
