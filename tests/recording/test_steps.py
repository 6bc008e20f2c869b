"""What a step recorder notes: what came from outside, after how many steps, and what the clocks showed in each."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dra_extender.config.service_settings import RecordingSettings
from dra_extender.recording.clock_readings import ClockKind
from dra_extender.recording.recorder import Recorder
from dra_extender.recording.recording_file import read_recording
from dra_extender.recording.records import (
    CURRENT_CALL,
    FORMAT,
    NO_CALL,
    Asked,
    ClocksRead,
    Given,
    Header,
    TermBegan,
    TimerFired,
)
from dra_extender.recording.steps import StepRecorder
from dra_extender.runtime.clock import SystemClock

HEADER = Header(format=FORMAT, version="1", options={}, features={}, claim_bytes=1, share_seed="")


def steps_to(file: Path) -> tuple[Recorder, StepRecorder]:
    recorder = Recorder(RecordingSettings(), file, SystemClock())
    recorder.begin(HEADER)
    return recorder, StepRecorder(recorder)


async def timer_that_is_due() -> None:
    """Wait for a timer that is due at once."""
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.0, ended.set_result, None)
    await ended


def records_of(file: Path, recorder: Recorder, steps: StepRecorder) -> list[Any]:
    steps.release()
    recorder.close()
    return list(read_recording(file).records)


async def test_causes_have_the_number_of_steps_before_them(tmp_path: Path) -> None:
    recorder, steps = steps_to(tmp_path / "r.gz")
    steps.cause(lambda at: TermBegan(at=at))

    async def use_case() -> None:
        CURRENT_CALL.set(4)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await timer_that_is_due()

    await asyncio.create_task(use_case())
    began, timer, _ = records_of(tmp_path / "r.gz", recorder, steps)
    assert (began.step, type(began)) == (0, TermBegan)
    # The timer completes a future, which puts the third step into the loop.
    assert (timer.step, type(timer), timer.call) == (2, TimerFired, 4)
    assert recorder.step == 3


async def test_readings_stand_before_the_step_that_follows_them(tmp_path: Path) -> None:
    recorder, steps = steps_to(tmp_path / "r.gz")
    steps.cause(lambda at: TermBegan(at=at))

    async def use_case() -> None:
        CURRENT_CALL.set(4)
        assert steps.reading(ClockKind.WALL, 1.0) == 1.0
        await asyncio.sleep(0)
        assert steps.reading(ClockKind.WALL, 2.00001) == 2.0

    await asyncio.create_task(use_case())
    found = [each for each in records_of(tmp_path / "r.gz", recorder, steps) if isinstance(each, ClocksRead)]
    assert [(each.step, each.readings) for each in found] == [(0, [1, 16384, 1]), (1, [1, 16384, 1])]


async def test_what_is_awaited_outside_is_no_work_of_the_use_cases_and_goes_on_as_a_cause(tmp_path: Path) -> None:
    recorder, steps = steps_to(tmp_path / "r.gz")
    steps.cause(lambda at: TermBegan(at=at))
    seen: list[int] = []

    async def network() -> int:
        seen.append(CURRENT_CALL.get())
        await asyncio.sleep(0)
        await timer_that_is_due()
        return 7

    async def refuses() -> int:
        raise PermissionError("no right")

    async def use_case() -> None:
        CURRENT_CALL.set(4)
        await asyncio.sleep(0)
        assert await steps.outside(network(), lambda: ("pods", "read", ["p"]), str) == 7
        seen.append(CURRENT_CALL.get())
        with pytest.raises(PermissionError):
            await steps.outside(refuses(), lambda: ("pods", "bind", ["p"]), str)
        seen.append(CURRENT_CALL.get())

    await asyncio.create_task(use_case())
    _, asked, given, asked_again, refused, _ = records_of(tmp_path / "r.gz", recorder, steps)
    assert seen == [NO_CALL, 4, 4]
    assert asked == Asked(at=asked.at, step=1, number=0, port="pods", method="read", arguments=["p"], call=4)
    assert given == Given(at=given.at, step=1, number=0, value="7")
    assert asked_again.number == 1
    assert refused == Given(at=refused.at, step=1, number=1, error=("PermissionError", "no right"), at_once=True)


async def test_cancellation_of_what_is_awaited_outside_is_noted_as_it_ended(tmp_path: Path) -> None:
    recorder, steps = steps_to(tmp_path / "r.gz")
    steps.cause(lambda at: TermBegan(at=at))

    async def use_case() -> None:
        CURRENT_CALL.set(4)
        await steps.outside(asyncio.Event().wait(), lambda: ("waker", "wake", []), str)

    task = asyncio.create_task(use_case())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    given = next(each for each in records_of(tmp_path / "r.gz", recorder, steps) if isinstance(each, Given))
    assert (given.error, given.at_once) == (("CancelledError", ""), False)
