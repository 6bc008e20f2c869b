"""A file with the objects of a cluster: a compressed tar archive with one file of JSON lines for each kind."""

import gzip
import io
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Final

import msgspec

from dra_extender.inspection.objects import (
    ALL_KINDS,
    KINDS,
    AssumedGate,
    ClusterObjects,
    MissingKind,
    Origin,
    keep_fields,
)
from dra_extender.manifests.files import opened, title
from dra_extender.model.api_json import ModelError, Value, decode_object
from dra_extender.model.metadata import Moment, decoded_moment, encoded_moment

FORMAT: Final = "dra-extender.io/snapshot/v1"
MOST_MIB: Final = 256
"""The default limit of what a snapshot may have unpacked."""
STDOUT: Final = Path("-")
_MOST_MEMBERS: Final = 64
_RECORD_BYTES: Final = 4 * 2**20
"""The longest record; the API server stores no longer object."""
_RECORD_COST: Final = 256
"""Bytes that a line counts at least: what a record takes in memory, and a blank line in time, however short it is."""
_REGULAR: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
_ABOUT: Final = "snapshot.json"
_SUFFIX: Final = ".jsonl"
_CHUNK: Final = 2**20
_LEVEL: Final = 6
_MODE: Final = 0o600


class SnapshotFileError(ValueError):
    """A file that is no snapshot, or cannot be read or written; the message names the file and what is wrong."""


class _About(Value, frozen=True):
    """The first member of the archive: the format, and the origin of the objects."""

    format: str
    taken_at: Moment
    release: str = ""
    missing: tuple[MissingKind, ...] = ()
    gates: tuple[AssumedGate, ...] = ()


_ABOUT_DECODER: Final = msgspec.json.Decoder(_About, dec_hook=decoded_moment)


def write_snapshot(objects: ClusterObjects, path: Path) -> int:
    """Write the fields that decisions read of all objects; returns the bytes of the file, which only its owner may read.

    The path `-` is standard output.  Two snapshots of the same objects have the same bytes.

    Raises:
        SnapshotFileError: the file cannot be written.
        ModelError: an object is no JSON object.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        origin = objects.origin
        about = _About(
            format=FORMAT,
            taken_at=origin.taken_at,
            release=origin.release,
            missing=origin.missing,
            gates=origin.gates,
        )
        _add(archive, _ABOUT, msgspec.json.encode(about, enc_hook=encoded_moment) + b"\n")
        for kind in (kind for kind in ALL_KINDS if kind in KINDS or kind in objects.by_kind):
            kept_of_kind = (keep_fields(kind, decode_object(kind, data)) for data in objects.of_kind(kind))
            _add(archive, kind + _SUFFIX, b"".join(msgspec.json.encode(item) + b"\n" for item in kept_of_kind))
    data = buffer.getvalue()
    try:
        if path == STDOUT:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        else:
            path.touch(mode=_MODE)
            # A file that was there has another mode; no device or pipe gets one.
            if path.is_file():
                with suppress(PermissionError):
                    path.chmod(_MODE)
            path.write_bytes(data)
    except OSError as problem:
        name = "standard output" if path == STDOUT else path
        raise SnapshotFileError(f"{name}: cannot be written: {problem.strerror}") from problem
    return len(data)


def read_snapshot(path: Path, most_mib: int = MOST_MIB) -> ClusterObjects:
    """Return the objects in a snapshot, with the fields that decisions read.

    Records are decoded one by one, so that memory grows with what is kept.

    Raises:
        SnapshotFileError: the file cannot be read, is no snapshot, is of a later format, or has more than `most_mib` MiB unpacked.
    """
    budget = _Budget(path, most_mib)
    try:
        with (
            opened(path) as file,
            _Unpacked(file, budget) as packed,
            tarfile.open(fileobj=packed, mode="r|", bufsize=_CHUNK) as archive,
        ):
            return _read(archive, path, most_mib)
    except SnapshotFileError:
        raise
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as problem:
        raise SnapshotFileError(
            f"{title(path)}: expected a snapshot, a tar archive packed with gzip: {problem}"
        ) from problem
    except OSError as problem:
        raise SnapshotFileError(f"{title(path)}: cannot be read: {problem.strerror or problem}") from problem


class _Budget:
    """Counts bytes; refuses the file when they are more than the limit."""

    def __init__(self, path: Path, most_mib: int) -> None:
        self._path = path
        self._most_mib = most_mib
        self._left = most_mib * 2**20

    def spend(self, size: int) -> None:
        """Raises SnapshotFileError."""
        self._left -= size
        if self._left < 0:
            raise SnapshotFileError(
                f"{title(self._path)}: has more than {self._most_mib} MiB unpacked; --snapshot-limit sets another limit"
            )


class _Unpacked(gzip.GzipFile):
    """Refuses to unpack more than the budget, whatever the bytes are: headers of an archive may be long as well."""

    def __init__(self, file: BinaryIO, budget: _Budget) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._budget = budget

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._budget.spend(len(data))
        return data


def _read(archive: tarfile.TarFile, path: Path, most_mib: int) -> ClusterObjects:
    about: _About | None = None
    by_kind: dict[str, list[bytes]] = {}
    sizes, records = _Budget(path, most_mib), _Budget(path, most_mib)
    for count, member in enumerate(archive):
        if count >= _MOST_MEMBERS:
            raise SnapshotFileError(
                f"{title(path)}: expected a snapshot: the archive has more than {_MOST_MEMBERS} files"
            )
        # A sparse member has bytes that the archive does not have.
        file = archive.extractfile(member) if member.type in _REGULAR and not member.issparse() else None
        if file is None or member.size < 0:
            raise SnapshotFileError(f"{title(path)}: expected a snapshot: {member.name!r} is no regular file")
        sizes.spend(member.size)
        if about is None:
            if member.name != _ABOUT:
                raise SnapshotFileError(
                    f"{title(path)}: expected a snapshot: its first file is {member.name!r}, not {_ABOUT}"
                )
            about = _about(file.read(_RECORD_BYTES), path)
            continue
        kind = member.name.removesuffix(_SUFFIX)
        if kind in by_kind:
            raise SnapshotFileError(f"{title(path)}: expected each kind once, got {member.name} again")
        if kind in ALL_KINDS and kind != member.name:
            by_kind[kind] = list(_records(file, kind, path, records))
    if about is None:
        raise SnapshotFileError(f"{title(path)}: expected a snapshot: the archive is empty")
    origin = Origin(
        source=f"snapshot {title(path)}",
        taken_at=about.taken_at,
        release=about.release,
        missing=about.missing,
        gates=about.gates,
    )
    return ClusterObjects(origin, by_kind)


def _records(file: IO[bytes], kind: str, path: Path, budget: _Budget) -> Iterator[bytes]:
    """Read a line at a time, with the fields that decisions read; a line that is no object stays, for the answer to name it."""
    while line := file.readline(_RECORD_BYTES + 1):
        if len(line) > _RECORD_BYTES:
            raise SnapshotFileError(f"{title(path)}: {kind}{_SUFFIX}: a record has more than {_RECORD_BYTES >> 20} MiB")
        line = line.removesuffix(b"\n")
        budget.spend(max(len(line), _RECORD_COST))
        if not line:
            continue
        try:
            yield msgspec.json.encode(keep_fields(kind, decode_object(kind, line)))
        except (ModelError, UnicodeEncodeError, RecursionError):
            yield line


def _about(data: bytes, path: Path) -> _About:
    try:
        about = _ABOUT_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise SnapshotFileError(f"{title(path)}: {_ABOUT}: {problem}") from problem
    if about.format != FORMAT:
        raise SnapshotFileError(f"{title(path)}: has format {about.format!r}; this version reads {FORMAT}")
    return about


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = _MODE
    archive.addfile(member, io.BytesIO(data))
