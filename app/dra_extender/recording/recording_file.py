"""Reading the file of a recording, also one that a crash has cut off."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dra_extender.recording.record_order import DisorderError, RecordOrder
from dra_extender.recording.recorder import RecordingFileError
from dra_extender.recording.records import FORMAT, Header, Record

_CHUNK: Final = 2**20
_GZIP: Final = 16 + zlib.MAX_WBITS
_LONGEST_LINE: Final = 256 * 2**20
_HEADER: Final = msgspec.json.Decoder(Header)
_RECORD: Final = msgspec.json.Decoder(Record)


class ReadRecording(NamedTuple):
    """The file, its header, and the records as they are read."""

    path: Path
    header: Header
    records: Iterator[Record]


def read_recording(path: Path) -> ReadRecording:
    """The recording in a file; its records are read while they are asked for, which may raise as well.

    Raises:
        RecordingFileError: the file cannot be read, is no recording, or is of a later format.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise RecordingFileError(f"{path}: expected a recording: the file is empty")
    try:
        header = _HEADER.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RecordingFileError(f"{path}: expected a recording: line 1: {problem}") from problem
    if header.format != FORMAT:
        raise RecordingFileError(f"{path}: has format {header.format!r}; this version reads {FORMAT}")
    return ReadRecording(path, header, _records(path, lines))


def _records(path: Path, lines: Iterator[bytes]) -> Iterator[Record]:
    order = RecordOrder()
    for number, line in enumerate(lines, 2):
        try:
            record = _RECORD.decode(line)
            order.check(record)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DisorderError) as problem:
            raise RecordingFileError(f"{path}: line {number}: {problem}") from problem
        yield record


def _lines(path: Path) -> Iterator[bytes]:
    """The complete lines; what was cut off at the end is left out."""
    parts: list[bytes] = []
    for data in _unpacked(path):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join((*parts, line))
            parts.clear()
        parts.append(rest)
        if sum(map(len, parts)) > _LONGEST_LINE:
            raise RecordingFileError(f"{path}: has a line of more than {_LONGEST_LINE >> 20} MiB")


def _unpacked(path: Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                while data:
                    yield unpacker.decompress(data, _CHUNK)
                    data = unpacker.unconsumed_tail
    except OSError as problem:
        raise RecordingFileError(f"{path}: cannot be read: {problem.strerror}") from problem
    except zlib.error as problem:
        raise RecordingFileError(f"{path}: expected a recording, JSON lines packed with gzip: {problem}") from problem
