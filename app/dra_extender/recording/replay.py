"""Plays a recording again: the real ledger and the real use cases, with the time and the cluster of the recording."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.rejection import Code
from dra_extender.api.decoding import MalformedRequestError
from dra_extender.api.handlers import verb_handlers
from dra_extender.config.policy_file import parse_policy
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.api_json import ModelError
from dra_extender.recording.plain import answer_text
from dra_extender.recording.recorder import RecordingFileError
from dra_extender.recording.recording import ShareIds
from dra_extender.recording.recording_file import ReadRecording
from dra_extender.recording.records import (
    BACKGROUND,
    CURRENT_CALL,
    MANY_TURNS,
    Answered,
    Asked,
    Called,
    Delivered,
    Disconnected,
    FactsLearned,
    Given,
    PolicyTaken,
    Record,
    RecordingEnded,
    TermBegan,
    TermEnded,
    TimerFired,
)
from dra_extender.recording.replayed_cluster import ReplayedCluster, WriteDifference
from dra_extender.recording.tape import RecordedTime, Tape
from dra_extender.recording.timers import TimerId
from dra_extender.recording.virtual_time import VirtualTimeLoop
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.errors import SHARE_USED_UP, RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

_TIME_STOPS: Final = (SHARE_USED_UP, Code.SEARCH_LIMIT.value)
_COMPARED: Final = ("ok", "again")


class AnswerDifference(NamedTuple):
    """An answer that was another one; the texts of outcome and answer, at seconds since the recording began."""

    at: float
    number: int
    verb: str
    recorded: str
    replayed: str


class ReplayReport(NamedTuple):
    """What a replay found.

    `excepted` counts the answers that are not compared, by why: a search was ended by its time, the request was malformed, ...
    `ended` is why the recording ended before the process, empty if it did not.
    """

    records: int
    equal: Counter[str]
    different: tuple[AnswerDifference, ...]
    excepted: Counter[str]
    requests: int
    other_requests: tuple[WriteDifference, ...]
    seconds: float
    ended: str

    @property
    def is_equal(self) -> bool:
        """Whether every compared answer is the recorded one, byte by byte."""
        return not self.different


def replay(recording: ReadRecording) -> ReplayReport:
    """Play a recording to its end.

    Raises:
        RecordingFileError: the file cannot be read any further.
    """
    played = _Replay(recording)
    with asyncio.Runner(loop_factory=lambda: played.loop) as runner:
        return runner.run(played.run())


class _Call(NamedTuple):
    verb: str
    task: "asyncio.Task[tuple[str, str]]"
    disconnected: asyncio.Event


class _Replay:
    """Feeds the loop with what came from outside: each thing in the turn in which it came."""

    def __init__(self, recording: ReadRecording) -> None:
        self._recording = recording
        self.loop = VirtualTimeLoop(self)
        self._causes: Iterator[Record] = iter(())
        self._next: Record | None = None
        self._last_turn = self._fed_turn = 0
        self._over: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    async def run(self) -> ReplayReport:
        self._set_up()
        self._causes = self._from_outside()
        self._over = self.loop.create_future()
        self._next = next(self._causes, None)
        await self._over
        if self._failure is not None:
            raise self._failure
        return self._report(self._tape.passed, self._tape.at)

    def before_turn(self, *, idle: bool, timer: float | None) -> None:
        """See Feed."""
        while self._over is not None and not self._over.done():
            cause = self._next
            if cause is None:
                if idle:
                    self._over.set_result(None)
                return
            turns = cause.turn - self._last_turn
            if not idle and (turns >= MANY_TURNS or self.loop.turns - self._fed_turn < turns):
                return
            if idle and timer is not None and timer <= cause.at:
                break
            self._feed(cause)
            idle = False
        if timer is not None:
            self.loop.pass_to(timer)

    def _feed(self, cause: Record) -> None:
        self.loop.pass_to(cause.at)
        self._last_turn, self._fed_turn = cause.turn, self.loop.turns
        self._take(cause)
        try:
            self._next = next(self._causes, None)
        except RecordingFileError as problem:
            self._next, self._failure = None, problem

    def _from_outside(self) -> Iterator[Record]:
        """The records that are causes; what followed from them is kept for comparison."""
        for record in self._tape:
            if isinstance(record, Answered):
                self._answers[record.number] = record
            elif isinstance(record, Asked):
                self._cluster.take(record)
            else:
                yield record

    def _set_up(self) -> None:
        header = self._recording.header
        self._tape = Tape(self._recording.records)
        self._clock = RecordedTime(self._tape, self.loop.time)
        self._cluster = ReplayedCluster(self._clock)
        self._ledger = Ledger(header.claim_bytes)
        self._features = msgspec.convert(header.features, Features)
        self._extender = Extender(
            self._ledger,
            self._cluster,
            Metrics(),
            msgspec.convert(header.options, Options),
            self._features,
            share_ids=ShareIds(header.share_seed),
        )
        self._sinks = sinks_of(self._ledger)
        self._handlers = verb_handlers(self._extender)
        self._calls: dict[int, _Call] = {}
        self._answers: dict[int, Answered] = {}
        self._called_at: dict[int, float] = {}
        self._stops: list[asyncio.Task[None]] = []
        self._ended = ""

    def _take(self, record: Record) -> None:
        match record:
            case Delivered():
                self.loop.call_soon(self._deliver, record)
            case Called():
                self._call(record)
            case Disconnected():
                if record.number in self._calls:
                    self._calls[record.number].disconnected.set()
            case Given():
                self._cluster.take(record)
            case FactsLearned():
                self._cluster.learn(record)
            case TimerFired():
                self.loop.fire(TimerId(record.call, record.task, record.number))
            case TermBegan():
                self._stops.append(asyncio.ensure_future(self._begin_term()))
            case TermEnded():
                self._stops.append(asyncio.ensure_future(self._extender.stop(record.reason)))
            case PolicyTaken():
                self.loop.call_soon(self._take_policy, record.text)
            case RecordingEnded():
                self._ended = record.reason

    async def _begin_term(self) -> None:
        CURRENT_CALL.set(BACKGROUND)
        await self._extender.start()

    def _deliver(self, record: Delivered) -> None:
        sink = self._sinks[record.kind]
        if record.change == "changed":
            try:
                sink.changed(msgspec.json.encode(record.object))
            except ModelError:
                # It could not be read then, either.
                return
        elif record.change == "deleted":
            sink.deleted(*(record.key or ("", "", "")))
        elif record.change == "synced":
            sink.synced()
        else:
            sink.absent()

    def _call(self, record: Called) -> None:
        disconnected = asyncio.Event()
        task = asyncio.ensure_future(
            self._answer(record.number, record.verb, msgspec.json.encode(record.body), disconnected)
        )
        self._calls[record.number] = _Call(record.verb, task, disconnected)
        self._called_at[record.number] = record.at

    async def _answer(self, number: int, verb: str, body: bytes, disconnected: asyncio.Event) -> tuple[str, str]:
        CURRENT_CALL.set(number)

        async def receive() -> dict[str, Any]:
            await disconnected.wait()
            return {"type": "http.disconnect"}

        try:
            return "ok", answer_text(verb, await self._handlers[verb].handle(body, receive))
        except RetryableError as reason:
            return "again", str(reason)
        except MalformedRequestError as problem:
            return "malformed", str(problem)
        except Exception as problem:  # noqa: BLE001 - the service answers with an internal error, and says so in its log
            return "internal", f"{type(problem).__name__}: {problem}"

    def _take_policy(self, text: str) -> None:
        groups = self._features.compatibility_groups
        policy = parse_policy(text.encode(), "the policy in the recording", compatibility_groups=groups)
        self._ledger.overlays_changed(self._ledger.overlays.use_policy(policy, {}))

    def _report(self, records: int, at: float) -> ReplayReport:
        equal: Counter[str] = Counter()
        excepted: Counter[str] = Counter()
        different = []
        for number, recorded in sorted(self._answers.items()):
            call = self._calls.get(number)
            if call is None:
                excepted["its call is not in the recording"] += 1
                continue
            replayed = call.task.result() if call.task.done() else ("none", "no answer by the end of the recording")
            why = _excepted(recorded, replayed)
            if why:
                excepted[why] += 1
            elif (recorded.outcome, recorded.answer) == replayed:
                equal[call.verb] += 1
            else:
                texts = (f"{recorded.outcome}: {recorded.answer}", ": ".join(replayed))
                different.append(AnswerDifference(self._called_at[number], number, call.verb, *texts))
        self._cluster.close(at)
        for task in (*(each.task for each in self._calls.values()), *self._stops):
            task.cancel()
        return ReplayReport(
            records=records,
            equal=equal,
            different=tuple(different),
            excepted=excepted,
            requests=self._cluster.requests,
            other_requests=tuple(self._cluster.differences),
            seconds=at,
            ended=self._ended,
        )


def _excepted(recorded: Answered, replayed: tuple[str, str]) -> str:
    """Why two answers are not compared; empty if they are."""
    if recorded.outcome not in _COMPARED:
        return recorded.outcome
    if any(text in answer for text in _TIME_STOPS for answer in (recorded.answer, replayed[1])):
        return "ended by time"
    return ""
