"""Writes records to a file: bounded in bytes and in time, and never in the way of what is recorded."""

import asyncio
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from dra_extender.config.service_settings import RecordingSettings
from dra_extender.recording.records import Header, Record, RecordingEnded
from dra_extender.scheduling.ports.cluster import Clock

_MODE: Final = 0o600
FLUSH_SECONDS: Final = 0.5
STOPPED: Final = "the process stops"
_MOST_PENDING: Final = 64 * 2**20
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1

_LOG = structlog.get_logger(__name__)


class RecordingFileError(Exception):
    """The file of a recording cannot be written, or read; the message names it."""


class Recorder:
    """One recording.  `note` takes a record at once, and gives it the present `step`; `run` writes what was noted, in a thread.

    The recording ends when the file would exceed its size, when its time is over, or when the file cannot be written: the process
    goes on, and `note` does nothing any more.  What was written by then can be read, also after a crash.
    """

    def __init__(self, settings: RecordingSettings, path: Path, clock: Clock) -> None:
        """Record to this file, which is made anew; its owner alone may read it.

        Raises:
            RecordingFileError: the file cannot be written.
        """
        self._path = path
        self._clock = clock
        self._most = settings.limit_bytes
        self._seconds = settings.limit_seconds
        self.began = clock.monotonic()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._written = 0
        self._encoder = msgspec.json.Encoder()
        self._packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
        self._ended: str | None = None
        self.step = 0
        try:
            path.unlink(missing_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        except OSError as problem:
            raise RecordingFileError(f"recording {path}: cannot be written: {problem.strerror}") from problem

    @property
    def ended(self) -> str | None:
        """Why nothing is recorded any more; None while something is."""
        return self._ended

    @property
    def at(self) -> float:
        """Seconds since the recording began: since the clock that never goes back showed `began`."""
        return self._clock.monotonic() - self.began

    def begin(self, header: Header) -> None:
        """Note the header, before anything else."""
        self._put(header)

    def note(self, make: Callable[[float], Record]) -> None:
        """Note what `make` returns for the present time; it is not called once the recording has ended."""
        if self._ended is not None:
            return
        at = self.at
        if at > self._seconds:
            self._end(at, f"it has lasted {self._seconds} s")
        elif self._pending_bytes > _MOST_PENDING:
            self._end(at, "more is to be recorded than the disk takes")
        else:
            self._put(msgspec.structs.replace(make(at), step=self.step))

    async def run(self) -> None:
        """Write what is noted, until the recording has ended or the task is cancelled, which waits for a write under way."""
        while self._file >= 0:
            await asyncio.sleep(FLUSH_SECONDS)
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._take(), last=self._ended is not None))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await writing
                raise

    def end(self, reason: str) -> None:
        """Record nothing any more."""
        if self._ended is None:
            self._end(self.at, reason)

    def close(self) -> None:
        """Write what is left, and end the recording."""
        if self._ended is None:
            self._put(RecordingEnded(at=self.at, step=self.step, reason=STOPPED))
            self._ended = STOPPED
        self._write(self._take(), last=True)

    def _put(self, record: Any) -> None:
        line = self._encoder.encode(record) + b"\n"
        self._pending.append(line)
        self._pending_bytes += len(line)

    def _end(self, at: float, reason: str) -> None:
        self._put(RecordingEnded(at=at, step=self.step, reason=reason))
        self._ended = reason
        _LOG.warning("recording ends", file=str(self._path), reason=reason)

    def _take(self) -> list[bytes]:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return pending

    def _write(self, pending: list[bytes], *, last: bool) -> None:
        """Compress and write; each write can be unpacked without those after it."""
        if self._file < 0:
            return
        data = self._packer.compress(b"".join(pending))
        data += self._packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        try:
            if self._written + len(data) > self._most:
                self._ended, last = f"its file would exceed {self._most} bytes", True
            else:
                _write_all(self._file, data)
                self._written += len(data)
        except OSError as problem:
            self._ended, last = f"{problem.strerror}", True
        if last:
            os.close(self._file)
            self._file = -1
            _LOG.info("recording ended", file=str(self._path), reason=self._ended, bytes=self._written)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
