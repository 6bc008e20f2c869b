"""How long the note of an Event may be, and how texts are cut to that."""

from collections.abc import Sequence
from typing import Final

NOTE_BYTES: Final = 1024
"""The API server refuses Events (events.k8s.io/v1) with a longer note; in UTF-8."""

_ELLIPSIS: Final = "…".encode()


def shorten(text: str, most: int = NOTE_BYTES) -> str:
    """The text, at most this many bytes long in UTF-8; never cut inside a character."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    return data[: max(0, most - len(_ELLIPSIS))].decode(errors="ignore") + _ELLIPSIS.decode()


def joined(parts: Sequence[str], separator: str, most: int = NOTE_BYTES) -> str:
    """The parts with the separator between them, at most this many bytes long in UTF-8.

    Where they are too long together, the longest parts are cut to an equal length, so that each is seen.
    """
    whole = separator.join(parts)
    if len(whole.encode(errors="replace")) <= most:
        return whole
    sizes = sorted(len(part.encode(errors="replace")) for part in parts)
    room, share = most - len(separator.encode()) * (len(parts) - 1), 0
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            break
        room -= size
    return shorten(separator.join(shorten(part, share) for part in parts), most)
