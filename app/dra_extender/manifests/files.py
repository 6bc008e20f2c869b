"""The files that a command line names: a file, a folder of manifests, or `-` for standard input."""

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TextIO
from weakref import WeakSet

STDIN: Final = Path("-")
_SUFFIXES: Final = (".yaml", ".yml")
_read: Final[WeakSet[TextIO]] = WeakSet()
"""The standard input, once it has been read."""


def title(path: Path) -> str:
    """Return how messages name the file."""
    return "standard input" if path == STDIN else str(path)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file to read bytes from it.

    Raises:
        OSError: it cannot be opened, or is standard input that is closed or was read before.
    """
    if path != STDIN:
        with path.open("rb") as file:
            yield file
        return
    # Without standard input Python has none, whatever its type says.
    stdin: TextIO | None = sys.stdin
    if stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    if stdin in _read:
        raise OSError(errno.EINVAL, "it is named twice, and can be read once")
    _read.add(stdin)
    yield stdin.buffer


def read_text(path: Path) -> str:
    """Return the text of the file.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8 text.
    """
    with opened(path) as file:
        return file.read().decode()


def files_in(path: Path) -> Sequence[Path]:
    """Return every *.yaml and *.yml of a folder, by name; the path itself if it is no folder.

    Raises:
        OSError: the folder cannot be read.
    """
    if path == STDIN or not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
