"""A file with the objects of a cluster: a compressed tar archive with one file of JSON lines for each kind."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dra_extender.inspection.kept_fields import kept
from dra_extender.inspection.objects import KINDS, AssumedGate, ClusterObjects, MissingKind, Origin
from dra_extender.model.api_json import Value, decode_object

FORMAT: Final = "dra-extender.io/snapshot/v1"
MOST_BYTES: Final = 4 * 2**30
"""Bytes that a snapshot may have unpacked."""
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
    taken_at: float
    release: str = ""
    missing: tuple[MissingKind, ...] = ()
    gates: tuple[AssumedGate, ...] = ()


_ABOUT_DECODER: Final = msgspec.json.Decoder(_About)


def write_snapshot(objects: ClusterObjects, path: Path) -> int:
    """Write the fields that decisions read of all objects; returns the bytes of the file, which its owner alone may read.

    Two snapshots of the same objects have the same bytes.

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
        _add(archive, _ABOUT, msgspec.json.encode(about) + b"\n")
        for kind in KINDS:
            _add(archive, kind + _SUFFIX, b"".join(_lines(kind, objects)))
    data = buffer.getvalue()
    try:
        path.touch(mode=_MODE)
        path.write_bytes(data)
    except OSError as problem:
        raise SnapshotFileError(f"{path}: cannot be written: {problem.strerror}") from problem
    return len(data)


def read_snapshot(path: Path) -> ClusterObjects:
    """The objects in a snapshot.

    Raises:
        SnapshotFileError: the file cannot be read, is no snapshot, or is of a later format.
    """
    try:
        with (
            _Unpacked(path) as packed,
            tarfile.open(fileobj=packed, mode="r|", bufsize=_CHUNK) as archive,
        ):
            return _read(archive, path)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise SnapshotFileError(f"{path}: expected a snapshot, a tar archive packed with gzip: {problem}") from problem
    except OSError as problem:
        raise SnapshotFileError(f"{path}: cannot be read: {problem.strerror or problem}") from problem


class _Unpacked(gzip.GzipFile):
    """Refuses to unpack more than MOST_BYTES, whatever they are: headers of an archive may be long as well."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._left = MOST_BYTES

    def read(self, size: int | None = -1) -> bytes:
        """See GzipFile.  Raises SnapshotFileError."""
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise SnapshotFileError(f"{self.name}: has more than {MOST_BYTES >> 30} GiB unpacked")
        return data


def _read(archive: tarfile.TarFile, path: Path) -> ClusterObjects:
    about: _About | None = None
    by_kind: dict[str, list[bytes]] = {}
    for member in archive:
        if member.size > MOST_BYTES:
            raise SnapshotFileError(f"{path}: has more than {MOST_BYTES >> 30} GiB unpacked")
        file = archive.extractfile(member)
        if file is None:
            continue
        if about is None:
            if member.name != _ABOUT:
                raise SnapshotFileError(f"{path}: expected a snapshot: its first file is {member.name!r}, not {_ABOUT}")
            about = _about(file.read(), path)
            continue
        kind = member.name.removesuffix(_SUFFIX)
        if kind in KINDS and kind != member.name:
            by_kind[kind] = [line for line in file.read().split(b"\n") if line]
    if about is None:
        raise SnapshotFileError(f"{path}: expected a snapshot: the archive is empty")
    origin = Origin(
        source=f"snapshot {path}",
        taken_at=about.taken_at,
        release=about.release,
        missing=about.missing,
        gates=about.gates,
    )
    return ClusterObjects(origin, by_kind)


def _about(data: bytes, path: Path) -> _About:
    try:
        about = _ABOUT_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise SnapshotFileError(f"{path}: {_ABOUT}: {problem}") from problem
    if about.format != FORMAT:
        raise SnapshotFileError(f"{path}: has format {about.format!r}; this version reads {FORMAT}")
    return about


def _lines(kind: str, objects: ClusterObjects) -> Iterator[bytes]:
    for data in objects.of(kind):
        yield msgspec.json.encode(kept(kind, decode_object(kind, data)))
        yield b"\n"


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = _MODE
    archive.addfile(member, io.BytesIO(data))
