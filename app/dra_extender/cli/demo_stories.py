"""The stories of the demo, and the service over a cluster in memory on which they are played."""

import asyncio
import difflib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp

from dra_extender.config.scheduling_settings import FILTER_HTTP_SECONDS, bind_http_seconds
from dra_extender.config.settings import Settings
from dra_extender.manifests.files import title
from dra_extender.service.server import listen
from dra_extender.service.service import Service
from dra_extender.service.wiring import assemble
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.served_fields import served_by
from dra_extender.simulator.demo.document import ManifestError, Manifests
from dra_extender.simulator.demo.manifests import load_files, load_texts
from dra_extender.simulator.demo.report import StoryReport
from dra_extender.simulator.demo.results import StoryResult
from dra_extender.simulator.demo.runner import run_story
from dra_extender.simulator.scheduler.loop import SCHEDULER_NAME
from dra_extender.telemetry.metrics import Metrics

_SUFFIX: Final = ".yaml"


class UnknownNameError(ValueError):
    """No story has this name, or several have it, or no API server of this release can be emulated."""


class Story(NamedTuple):
    """Manifests that are played on one cluster, and the policy file in force there."""

    title: str
    manifests: Manifests
    policy: Path | None = None

    @property
    def name(self) -> str:
        return _name_of(self.title)

    @property
    def subject(self) -> str:
        """Return what the story is about: the first line of its narration."""
        first = next(iter(self.manifests.documents), None)
        return first.narration[0] if first is not None and first.narration else ""


class StoryFile(NamedTuple):
    """An example whose manifests have not been read, and the policy file in force there."""

    title: str
    text: str
    policy: Path | None = None

    @property
    def name(self) -> str:
        return _name_of(self.title)

    @property
    def subject(self) -> str:
        """Return what the story is about: its first line of narration."""
        return next((line.removeprefix("#").strip() for line in self.text.splitlines() if line.startswith("#")), "")

    def story(self, scheduler_names: Sequence[str] = (SCHEDULER_NAME,)) -> Story:
        """Read the story.  Raises ManifestError: a manifest cannot be used."""
        return Story(self.title, load_texts([(self.title, self.text)], scheduler_names), self.policy)


def _name_of(title: str) -> str:
    return title.removesuffix(_SUFFIX)


def chosen(files: Sequence[StoryFile], names: Sequence[str]) -> list[StoryFile]:
    """Find the stories of these names, in the order given; a name may be the beginning of one, or a part that no other has.

    Raises:
        UnknownNameError: a name fits no story, or several stories.
    """
    return [_named(files, _name_of(name)) for name in names]


def _named(files: Sequence[StoryFile], name: str) -> StoryFile:
    for fitting in (
        [file for file in files if file.name == name],
        [file for file in files if file.name.startswith(name)],
        [file for file in files if name in file.name],
    ):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            which = ", ".join(file.name for file in fitting)
            raise UnknownNameError(f"several stories are called {name!r}: {which}")
    close = difflib.get_close_matches(name, [file.name for file in files], n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else "see dra-extender demo --list"
    raise UnknownNameError(f"there is no story {name!r}; {hint}")


def example_files() -> list[StoryFile]:
    """Find the stories that come with the project, by file name: from the installed package, else from the source tree.

    A story for which the folder `policies` has a file of the same name is played with that policy.

    Raises:
        ManifestError: this installation has no examples.
    """
    for folder in (resources.files("dra_extender") / "_examples", Path(__file__).parents[3] / "deploy" / "examples"):
        if folder.is_dir():
            files = sorted(
                (file for file in folder.iterdir() if file.name.endswith(_SUFFIX)), key=lambda file: file.name
            )
            return [StoryFile(file.name, file.read_text(encoding="utf-8"), _policy_of(str(file))) for file in files]
    raise ManifestError.saying("the examples are not part of this installation; name manifests with -f")


def read_story(files: list[Path], scheduler_names: Sequence[str] = (SCHEDULER_NAME,)) -> Story:
    """Read one story from manifests, `-` for standard input.

    Raises:
        ManifestError: a manifest cannot be used.
    """
    policies = [policy for policy in (_policy_of(str(file)) for file in files) if policy is not None]
    policy = policies[0] if len(policies) == 1 else None
    return Story(", ".join(map(title, files)), load_files(files, scheduler_names), policy)


def _policy_of(story: str) -> Path | None:
    path = Path(story)
    policy = path.parent / "policies" / path.name
    return policy if policy.is_file() else None


def minor_of(release: str) -> int:
    """Return the minor of a release such as "1.37".

    Raises:
        UnknownNameError: the API server of this release cannot be emulated.
    """
    major, _, minor = release.partition(".")
    try:
        if major == "1":
            served_by(int(minor))
            return int(minor)
    except ValueError:
        pass
    raise UnknownNameError(f"--kubernetes: expected a release from 1.34 to 1.37, found {release!r}")


class Playing(NamedTuple):
    """The settings for all stories: the minor of the emulated release, the settings of the service, and the scheduler names."""

    minor: int
    settings: Settings
    scheduler_names: Sequence[str] = (SCHEDULER_NAME,)


async def play(
    stories: Sequence[Story], playing: Playing, report: StoryReport | None = None, full: Collection[str] = ()
) -> list[StoryResult]:
    """Play each story on a cluster of its own.

    `report` shows the steps of the stories in `full` (titles) as they happen, and one line for each other story.
    """
    results = []
    for story in stories:
        title, manifests, _ = story
        in_full = report if title in full else None
        if in_full is not None:
            in_full.title(title)
            in_full.warnings(str(warning) for warning in manifests.warnings)
        result = await run_story(
            title,
            manifests,
            partial(serve, settings=with_policy(playing.settings, story.policy)),
            served=served_by(playing.minor),
            scheduler_names=playing.scheduler_names,
            observe=in_full.step if in_full is not None else lambda _: None,
        )
        if in_full is not None:
            in_full.end(result)
        elif report is not None:
            report.line(story.name, story.subject, result)
        results.append(result)
    return results


def with_policy(settings: Settings, policy: Path | None) -> Settings:
    if policy is None:
        return settings
    scheduling = settings.scheduling.model_copy(update={"policy_file": policy})
    return settings.model_copy(update={"scheduling": scheduling})


@asynccontextmanager
async def serve(cluster: MemoryCluster, settings: Settings) -> AsyncIterator["HttpTransport"]:
    """Run the whole service over this cluster, behind HTTP on the configured address, ready for calls."""
    service, stop = assemble(settings, cluster, Metrics()), asyncio.Event()
    with listen(settings.server.host, settings.server.port) as listener:
        listener.listen()
        running = asyncio.create_task(service.serve(stop, listener))
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
        """Return status and body of the answer; raise OSError if there is none."""
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
