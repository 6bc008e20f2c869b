"""The recording of one service: what it puts around the cluster and the verbs."""

import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

import msgspec

from dra_extender.allocator.state.features import Features
from dra_extender.api.decoding import MalformedRequestError
from dra_extender.api.dispatch import VerbHandler
from dra_extender.config.service_settings import RecordingSettings
from dra_extender.recording.plain import answer_text, call_body
from dra_extender.recording.recorded_cluster import RecordedCluster, WatchedCluster
from dra_extender.recording.recorder import Recorder
from dra_extender.recording.records import (
    BACKGROUND,
    FORMAT,
    Answered,
    Called,
    Header,
    PolicyTaken,
    TermBegan,
    TermEnded,
    working_for,
)
from dra_extender.recording.steps import StepRecorder
from dra_extender.scheduling.evaluation.placement_template import new_share_id
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import build_version

_PROCESS: Final = "%p"


class ShareIds:
    """IDs of shares that follow from a seed (a UUID): no other share has them, and a replay has the same."""

    def __init__(self, seed: str) -> None:
        self._seed = UUID(seed)
        self._numbers = count()

    def __call__(self) -> str:
        """The next one."""
        return str(uuid5(self._seed, str(next(self._numbers))))


class NoRecording:
    """Nothing is recorded: `cluster` is the cluster itself, and `share_ids` are random."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self.cluster = cluster
        self.share_ids: Callable[[], str] = new_share_id

    def begin(self, options: Options, features: Features, claim_bytes: int) -> None:
        """See ServiceRecording."""

    def recorded(self, _: str, handler: VerbHandler) -> VerbHandler:
        """See ServiceRecording."""
        return handler

    def term(self) -> AbstractContextManager[None]:
        """See ServiceRecording."""
        return nullcontext()

    def term_ended(self, _: str) -> AbstractContextManager[None]:
        """See ServiceRecording."""
        return nullcontext()

    def policy_taken(self, _: Path) -> AbstractContextManager[None]:
        """See ServiceRecording."""
        return nullcontext()

    async def run(self) -> None:
        """See ServiceRecording."""

    def close(self) -> None:
        """See ServiceRecording."""


class ServiceRecording:
    """`begin` is called first, once the options are known.

    `cluster` stands in the place of the cluster, `share_ids` in that of random IDs, and `recorded` puts a handler around that of a
    verb.
    """

    def __init__(self, settings: RecordingSettings, path: Path, cluster: WatchedCluster) -> None:
        """Record to this file.  Raises RecordingFileError."""
        self.recorder = Recorder(settings, path, cluster.clock)
        self._steps = StepRecorder(self.recorder)
        self.cluster = RecordedCluster(cluster, self._steps, self.recorder.began)
        self._seed = str(uuid4())
        self.share_ids: Callable[[], str] = ShareIds(self._seed)
        self._numbers = count()

    def begin(self, options: Options, features: Features, claim_bytes: int) -> None:
        """Note how the use cases are set up."""
        header = Header(
            format=FORMAT,
            version=build_version(),
            options=msgspec.to_builtins(options),
            features=msgspec.to_builtins(features),
            claim_bytes=claim_bytes,
            share_seed=self._seed,
        )
        self.recorder.begin(header)

    def recorded(self, verb: str, handler: VerbHandler) -> VerbHandler:
        """The handler of a verb, whose calls and answers are noted."""
        return _RecordedHandler(verb, handler, self._steps, self._numbers)

    @contextmanager
    def term(self) -> Iterator[None]:
        """Inside, the use cases begin to work."""
        self._steps.cause(lambda at: TermBegan(at=at))
        with working_for(BACKGROUND):
            yield

    @contextmanager
    def term_ended(self, reason: str) -> Iterator[None]:
        """Inside, the use cases are stopped, for this reason."""
        self._steps.cause(lambda at: TermEnded(at=at, reason=reason))
        with working_for(BACKGROUND):
            yield

    @contextmanager
    def policy_taken(self, file: Path) -> Iterator[None]:
        """Inside, the policy of this file comes into force."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            self.recorder.end("the policy file changed while it was read")
        else:
            self._steps.cause(lambda at: PolicyTaken(at=at, text=text))
        with working_for(BACKGROUND):
            yield

    async def run(self) -> None:
        """Write what is noted, until the recording has ended or the task is cancelled."""
        await self.recorder.run()

    def close(self) -> None:
        """Write what is left, and end the recording."""
        self._steps.release()
        self.recorder.close()


def recording_of(settings: RecordingSettings, cluster: WatchedCluster) -> ServiceRecording | NoRecording:
    """What the settings ask for.  Raises RecordingFileError if the file cannot be written."""
    if settings.file is None:
        return NoRecording(cluster)
    return ServiceRecording(settings, Path(str(settings.file).replace(_PROCESS, str(os.getpid()))), cluster)


class _RecordedHandler:
    def __init__(self, verb: str, handler: VerbHandler, steps: StepRecorder, numbers: "count[int]") -> None:
        self._verb = verb
        self._handler = handler
        self._steps = steps
        self._numbers = numbers

    async def handle(self, body: bytes, receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> bytes:
        """See VerbHandler."""
        given = None if self._steps.ended is not None else call_body(self._verb, body)
        if given is None:
            return await self._handler.handle(body, receive)
        number, verb = next(self._numbers), self._verb
        self._steps.cause(lambda at: Called(at=at, number=number, verb=verb, body=given))  # type: ignore[arg-type]

        async def observed() -> MutableMapping[str, Any]:
            return await self._steps.outside(
                receive(), lambda: ("caller", "receive", [number]), lambda got: got["type"]
            )

        outcome, text = "internal", ""
        try:
            with working_for(number):
                answer = await self._handler.handle(body, observed)
            outcome, text = "ok", answer_text(verb, answer)
        except RetryableError as reason:
            outcome, text = "again", str(reason)
            raise
        except MalformedRequestError:
            outcome = "malformed"
            raise
        finally:
            self._steps.within(lambda at: Answered(at=at, number=number, outcome=outcome, answer=text))
        return answer
