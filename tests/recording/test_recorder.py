"""A recording is bounded, its owner alone may read it, and what was written can be read after a crash."""

import asyncio
import gzip
import os
import threading
from functools import partial
from pathlib import Path

import pytest
from dra_extender.config.service_settings import RecordingSettings
from dra_extender.recording.recorder import STOPPED, Recorder, RecordingFileError
from dra_extender.recording.recording_file import read_recording
from dra_extender.recording.records import FORMAT, ClocksRead, Header, PolicyTaken, RecordingEnded, TermBegan

from tests.support.kube.recording import ManualClock

HEADER = Header(format=FORMAT, version="1", options={}, features={}, claim_bytes=1, share_seed="")


def _policy(text: str, at: float) -> PolicyTaken:
    return PolicyTaken(at=at, text=text)


def recorder(file: Path, clock: ManualClock, **settings: int) -> Recorder:
    made = Recorder(RecordingSettings.model_validate(settings), file, clock)
    made.begin(HEADER)
    return made


def test_records_are_read_as_they_were_noted(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "r.gz"
    made = recorder(file, clock)
    made.note(lambda at: TermBegan(at=at))
    clock.pass_by(2.0)
    made.step = 3
    made.note(lambda at: ClocksRead(at=at, readings=[0, 7, 1]))
    made.close()
    path, header, records = read_recording(file)
    assert (path, header) == (file, HEADER)
    assert list(records) == [
        TermBegan(at=0.0),
        ClocksRead(at=2.0, step=3, readings=[0, 7, 1]),
        RecordingEnded(at=2.0, step=3, reason=STOPPED),
    ]
    assert file.stat().st_mode & 0o777 == 0o600


def test_recording_ends_when_its_time_is_over_and_says_so(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "r.gz"
    made = recorder(file, clock, limit_seconds=10)
    clock.pass_by(11.0)
    made.note(lambda at: TermBegan(at=at))
    made.note(lambda at: TermBegan(at=at))
    made.close()
    assert list(read_recording(file).records) == [RecordingEnded(at=11.0, reason="it has lasted 10 s")]
    assert made.ended == "it has lasted 10 s"


async def test_recording_ends_before_its_file_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.recording.recorder.FLUSH_SECONDS", 0.0)
    clock, file = ManualClock(), tmp_path / "r.gz"
    made = recorder(file, clock, limit_bytes=2**20)
    running = asyncio.create_task(made.run())
    for number in range(3_000):
        noise = bytes((number * index * index + 7 * index) % 251 for index in range(1_000)).hex()
        made.note(partial(_policy, noise))
        if number % 100 == 0:
            await asyncio.to_thread(lambda: None)
        if made.ended is not None:
            break
    await running
    assert made.ended == "its file would exceed 1048576 bytes"
    assert 0 < file.stat().st_size <= 2**20
    assert len(list(read_recording(file).records)) > 10


def test_file_that_cannot_be_written_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(RecordingFileError, match=r"none/r\.gz: cannot be written: No such file"):
        recorder(tmp_path / "none" / "r.gz", ManualClock())


def test_recording_of_the_process_before_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write the folder could otherwise have another file overwritten."""
    other, file = tmp_path / "other", tmp_path / "r.gz"
    other.write_text("precious")
    file.symlink_to(other)
    recorder(file, ManualClock()).close()
    assert other.read_text() == "precious"
    assert not file.is_symlink()


def test_recording_that_a_crash_has_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "r.gz"
    made = recorder(file, clock)
    for _ in range(1000):
        clock.pass_by(0.001)
        made.note(lambda at: ClocksRead(at=at, readings=[0, int(at * 1e6), 1]))
    made.close()
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    records = list(read_recording(file).records)
    assert 0 < len(records) < 1000
    assert all(isinstance(each, ClocksRead) for each in records)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "the file is empty"),
        (b"[]\n", "line 1: Expected `object`"),
        (b'{"format": "v9", "version": "", "options": {}, "features": {}, "claimBytes": 1, "shareSeed": ""}\n', "'v9'"),
    ],
)
def test_file_that_is_no_recording_is_refused_with_the_reason(tmp_path: Path, text: bytes, said: str) -> None:
    file = tmp_path / "r.gz"
    file.write_bytes(gzip.compress(text))
    with pytest.raises(RecordingFileError, match=r"r\.gz") as refused:
        read_recording(file)
    assert said in str(refused.value)


def test_record_that_cannot_be_read_is_named_by_its_line(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "r.gz"
    recorder(file, clock).close()
    text = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(text[0] + b'{"type": "began"}\n'))
    with pytest.raises(RecordingFileError, match="line 2: Object missing required field `at`"):
        list(read_recording(file).records)


async def test_a_write_under_way_when_the_process_stops_comes_before_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is cancelled while a thread writes; what `close` writes stands behind it, and nothing is lost."""
    monkeypatch.setattr("dra_extender.recording.recorder.FLUSH_SECONDS", 0.0)
    begun, go_on, write = asyncio.Event(), threading.Event(), os.write
    loop = asyncio.get_running_loop()

    def slow_write(file: int, data: bytes) -> int:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(10.0)
        return write(file, data)

    file = tmp_path / "r.gz"
    made = recorder(file, ManualClock())
    made.note(lambda at: TermBegan(at=at))
    monkeypatch.setattr("dra_extender.recording.recorder.os.write", slow_write)
    running = asyncio.create_task(made.run())
    await begun.wait()
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    made.close()
    assert list(read_recording(file).records) == [TermBegan(at=0.0), RecordingEnded(at=0.0, reason=STOPPED)]
