"""JSON that is handed on in other JSON, in a spelling that API servers store.

An API server spells `<`, `>`, `&`, U+2028 and U+2029 as escapes of six bytes in whatever it sends, but limits opaque parameters by
the bytes that are stored.  So what it has stored may be too long in the spelling in which it is read.
"""

from typing import Final

import msgspec

MAX_PARAMETERS: Final = 10 * 1024
"""Bytes of opaque parameters that an API server stores."""

_BACKSLASH: Final = b"\\\\"
_ESCAPES: Final = {
    b"\\u003c": b"<",
    b"\\u003e": b">",
    b"\\u0026": b"&",
    b"\\u2028": b"\xe2\x80\xa8",
    b"\\u2029": b"\xe2\x80\xa9",
    b"\\u003C": b"<",
    b"\\u003E": b">",
}


def as_stored(parameters: msgspec.Raw) -> msgspec.Raw:
    """JSON as it is spelled, or without the escapes of an API server where that would find it too long.

    What is spelled as API servers spell it goes through every JSON client unchanged, so that drivers that write a claim's status
    as JSON do not change an allocation that they cannot change.  What is spelled otherwise does not.
    """
    text = bytes(parameters)
    return parameters if len(text) <= MAX_PARAMETERS else msgspec.Raw(without_escapes(text))


def without_escapes(text: bytes) -> bytes:
    """The same JSON with those characters as they are; no longer than what an API server has stored."""
    if b"\\u" not in text:
        return text
    # A backslash before another stands for itself, and what follows the two is no escape.
    return _BACKSLASH.join(map(_plain, text.split(_BACKSLASH)))


def _plain(part: bytes) -> bytes:
    if b"\\u" in part:
        for escape, character in _ESCAPES.items():
            part = part.replace(escape, character)
    return part
