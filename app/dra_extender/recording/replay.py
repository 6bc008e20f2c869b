"""Plays a recording again: the real ledger and the real use cases, with the time and the cluster of the recording."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.state.features import Features
from dra_extender.api.decoding import MalformedRequestError
from dra_extender.api.handlers import verb_handlers
from dra_extender.config.policy_file import InvalidPolicyError, parse_policy
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.recording.clock_readings import ClockKind, ReadingsPlayed, ReplayedTime
from dra_extender.recording.observed_loop import TimerId
from dra_extender.recording.plain import answer_text
from dra_extender.recording.recorder import RecordingFileError
from dra_extender.recording.recording import ShareIds
from dra_extender.recording.recording_file import ReadRecording
from dra_extender.recording.records import (
    BACKGROUND,
    CURRENT_CALL,
    Answered,
    Called,
    Delivered,
    Given,
    PolicyTaken,
    TermBegan,
    TermEnded,
    TimerFired,
    working_for,
)
from dra_extender.recording.replay_loop import ReplayLoop
from dra_extender.recording.replay_report import CUT_OFF, AnswerComparison, AnsweredCall, ReplayReport
from dra_extender.recording.replayed_cluster import ReplayedCluster
from dra_extender.recording.tape import Cause, Stretch, Tape
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

_LATE_SECONDS: Final = 2.0
"""How long after its time a timer runs that the recording does not have."""
_MOST_STEPS: Final = 100_000
"""How many steps may run that the recording does not have."""
_STOP_SECONDS: Final = 1e6


def replay(recording: ReadRecording) -> ReplayReport:
    """Play a recording to its end.

    Raises:
        RecordingFileError: the file cannot be read any further, or is none that a service has written.
    """
    played = _Replay(recording)
    try:
        return played.loop.run_until_complete(played.run())
    finally:
        played.loop.close()


class _Call(NamedTuple):
    verb: str
    at: float
    task: "asyncio.Task[tuple[str, str]]"


class _Replay:
    """Feeds the loop: each cause after as many steps as in the recording.

    Once the replay has departed from the recording, their number means nothing: a cause comes when all steps before it have run.
    Timers that the recording does not have then run late.
    """

    def __init__(self, recording: ReadRecording) -> None:
        self._path, self._header, records = recording
        readings = ReadingsPlayed()
        self.loop = ReplayLoop(self)
        self._tape = Tape(records, readings)
        self._clock = ReplayedTime(readings, lambda: self.loop.now, self._departs)
        self._cluster = ReplayedCluster(self._clock, self._departs)
        self._stretch: Stretch | None = None
        self._begun = 0
        self._calls: dict[int, _Call] = {}
        self._answers: dict[int, Answered] = {}
        self._over: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self._departure = ""

    async def run(self) -> ReplayReport:
        self.loop.set_exception_handler(lambda *_: None)
        self._set_up()
        self._over = self.loop.create_future()
        try:
            self._advance()
            await self._over
            return self._report()
        finally:
            await self._end_tasks()

    def turn(self) -> None:
        """See Feed."""
        over = self._over
        if over is None or over.done():
            return
        try:
            if self._ending:
                self._begun += 1
                if self._begun > _MOST_STEPS or not self.loop.run_step():
                    over.set_result(None)
            elif not self._is_upcoming_due():
                self.loop.run_step()
            elif self._tape.upcoming is None:
                over.set_result(None)
            else:
                self._feed(self._tape.upcoming)
        except Exception as problem:  # noqa: BLE001 - it is raised where the replay was started
            over.set_exception(problem)

    def step_begins(self) -> None:
        """See Feed."""
        self._begun += 1
        self._enter(self._begun)

    def loop_time(self) -> float:
        """See Feed."""
        return self._clock.read(ClockKind.LOOP)

    def _is_upcoming_due(self) -> bool:
        """Whether it is the turn of the next cause, or of the end."""
        steps = 0 if self._stretch is None else self._stretch.steps
        if not self.loop.has_steps:
            if self._begun < steps:
                self._departs(f"{steps - self._begun} steps are missing")
            return True
        return self._begun >= (steps + _MOST_STEPS if self._departure else steps)

    def _feed(self, cause: Cause) -> None:
        self.loop.pass_to(cause.at)
        if self._departure:
            late = self.loop.overdue(_LATE_SECONDS)
            for timer in late:
                self.loop.fire(timer)
            if late:
                return
        self._advance()
        if self._stretch is None or self._stretch.steps >= 0:
            self.loop.call_soon(self._take, cause)

    def _advance(self) -> None:
        """Go on to the next stretch."""
        try:
            self._stretch = stretch = self._tape.advance()
        except ValueError as problem:
            raise RecordingFileError(f"{self._path}: record {self._tape.passed + 1}: {problem}") from problem
        for asked in stretch.asked:
            self._cluster.expect(asked)
        for given in stretch.given:
            self._cluster.give(given)
        self._answers.update((each.number, each) for each in stretch.answered)
        self._begun = 0
        self._enter(0)

    def _enter(self, step: int) -> None:
        """A step begins, or what a cause sets off."""
        if self._stretch is None:
            return
        facts = self._stretch.facts.get(step)
        if facts is not None:
            self._cluster.learn(facts)
        self._clock.use(self._stretch.readings.get(step))

    def _departs(self, how: str) -> None:
        if not self._departure and not self._ending:
            self._departure = f"at {self.loop.now:.3f} s: {how}"
            self._cluster.gives_up = True

    def _set_up(self) -> None:
        header = self._header
        self._ledger = Ledger(header.claim_bytes)
        try:
            self._features = msgspec.convert(header.features, Features)
            options = msgspec.convert(header.options, Options)
            share_ids = ShareIds(header.share_seed)
        except (msgspec.ValidationError, ValueError) as problem:
            raise RecordingFileError(f"{self._path}: line 1: {problem}") from problem
        self._extender = Extender(self._ledger, self._cluster, Metrics(), options, self._features, share_ids)
        self._sinks = sinks_of(self._ledger)
        self._handlers = verb_handlers(self._extender)

    def _take(self, cause: Cause) -> None:
        match cause:
            case Delivered():
                self._deliver(cause)
            case Called():
                body = msgspec.json.encode(cause.body)
                task = asyncio.ensure_future(self._answer(cause.number, cause.verb, body))
                self._calls[cause.number] = _Call(cause.verb, cause.at, task)
            case Given():
                self._cluster.give(cause)
            case TimerFired():
                if not self.loop.fire(TimerId(cause.call, cause.task, cause.number)):
                    self._departs(f"timer {cause.number} of {cause.task or f'call {cause.call}'} is not set")
            case TermBegan():
                self._tasks.append(asyncio.ensure_future(self._term(self._extender.start())))
            case TermEnded():
                self._tasks.append(asyncio.ensure_future(self._term(self._stop(cause.reason))))
            case PolicyTaken():
                self._take_policy(cause.text)

    async def _term(self, work: Coroutine[Any, Any, None]) -> None:
        with working_for(BACKGROUND):
            await work

    async def _stop(self, reason: str) -> None:
        # Its timer runs when it did.
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._extender.stop(reason)

    def _deliver(self, record: Delivered) -> None:
        sink = self._sinks.get(record.kind)
        if sink is None:
            self._fail(f"expected a kind that is watched, found {record.kind!r}")
            return
        # What cannot be taken in could not be taken in then, either.
        with working_for(BACKGROUND), suppress(Exception):
            if record.change == "changed":
                sink.changed(msgspec.json.encode(record.object))
            elif record.change == "deleted":
                sink.deleted(*(record.key or ("", "", "")))
            elif record.change == "synced":
                sink.synced()
            else:
                sink.absent()

    async def _answer(self, number: int, verb: str, body: bytes) -> tuple[str, str]:
        CURRENT_CALL.set(number)

        async def receive() -> dict[str, Any]:
            return {"type": await self._cluster.ask("caller", "receive", [number])}

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
        try:
            policy = parse_policy(text.encode(), "the policy in the recording", compatibility_groups=groups)
        except InvalidPolicyError as problem:
            self._fail(f"a policy that this version refuses: {problem}")
            return
        with working_for(BACKGROUND):
            self._ledger.overlays_changed(self._ledger.overlays.use_policy(policy, {}))

    def _fail(self, why: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(RecordingFileError(f"{self._path}: at {self.loop.now:.3f} s: {why}"))

    def _report(self) -> ReplayReport:
        found = AnswerComparison()
        for number, recorded in sorted(self._answers.items()):
            call = self._calls[number]
            replayed = call.task.result() if call.task.done() else ("none", "no answer by the end of the recording")
            found.compare(AnsweredCall(call.at, number, call.verb), recorded, replayed)
        if self._tape.cut_off:
            found.excepted[CUT_OFF] += self._tape.cut_off
        self._cluster.close(self._tape.at)
        return ReplayReport(
            records=self._tape.passed,
            equal=found.equal,
            time_stops=found.time_stops,
            different=tuple(found.different),
            excepted=found.excepted,
            requests=self._cluster.requests,
            other_requests=tuple(self._cluster.differences),
            departure=self._departure,
            seconds=self._tape.at,
            ended=self._tape.ended,
        )

    async def _end_tasks(self) -> None:
        """Cancel what still works, as far as it lets itself be cancelled."""
        self._over, self._begun, self._ending = self.loop.create_future(), 0, True
        self._cluster.gives_up = True
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self._over
