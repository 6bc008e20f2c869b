"""Protobuf messages edited as bytes: what is not edited stays as it is, known to us or not.

Source: https://protobuf.dev/programming-guides/encoding/; the envelope is `runtime.Unknown` of k8s.io/apimachinery.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\0"
_TYPE, _RAW = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10
_MORE: Final = 0x80
_LARGEST_TAG: Final = 2**32 - 1


class ProtobufError(ValueError):
    """The bytes are not a message of the expected form."""


class ProtobufField(NamedTuple):
    """One field of a message: its number, its bytes with tag and length, and its content (empty unless it has a length)."""

    number: int
    encoded: bytes
    content: bytes


def fields(message: bytes) -> list[ProtobufField]:
    """Return the fields of a message, in their order.

    Raises:
        ProtobufError: the message ends within a field, or has groups.
    """
    parts, at = [], 0
    while at < len(message):
        tag, start = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not number or tag > _LARGEST_TAG:
            raise ProtobufError(f"expected a field number between 1 and 2^29 - 1, found {number}")
        length = 0
        if kind == _VARINT:
            end = _varint(message, start)[1]
        elif kind == _BYTES:
            length, start = _varint(message, start)
            end = start + length
        elif kind in (_FIXED32, _FIXED64):
            end = start + (8 if kind == _FIXED64 else 4)
        else:
            raise ProtobufError(f"field {number} has wire type {kind}, which no message of the API has")
        if end > len(message):
            raise ProtobufError(f"field {number} ends after its message")
        parts.append(ProtobufField(number, message[at:end], message[start:end] if kind == _BYTES else b""))
        at = end
    return parts


def field(number: int, content: bytes) -> ProtobufField:
    """Return a text, or an embedded message."""
    tag, length = _written(number << 3 | _BYTES), _written(len(content))
    return ProtobufField(number, b"".join((tag, length, content)), content)


def message_of(parts: Iterable[ProtobufField]) -> bytes:
    return b"".join(part.encoded for part in parts)


def text(parts: Iterable[ProtobufField], number: int) -> str:
    """Return the text of a field, empty if it is absent.

    Raises:
        ProtobufError: it is not UTF-8.
    """
    content = b""
    for part in parts:
        if part.number == number:
            content = part.content
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise ProtobufError(f"field {number} is not UTF-8 text") from problem


def only_field(parts: Iterable[ProtobufField], number: int) -> ProtobufField:
    """Return the only field with this number; an empty one if there is none.

    Raises:
        ProtobufError: there are several, which a reader would merge.
    """
    fields_with_number = [part for part in parts if part.number == number]
    if len(fields_with_number) > 1:
        raise ProtobufError(f"field {number} occurs {len(fields_with_number)} times")
    return fields_with_number[0] if fields_with_number else field(number, b"")


def replaced(parts: Iterable[ProtobufField], new: ProtobufField) -> list[ProtobufField]:
    """Return the fields with this one in the place of the one with its number, or at the end."""
    before = list(parts)
    if any(part.number == new.number for part in before):
        return [new if part.number == new.number else part for part in before]
    return [*before, new]


class Envelope(NamedTuple):
    """An object as the API server sends and takes it: type and content are fields of one message behind a magic number."""

    parts: list[ProtobufField]

    @classmethod
    def opened(cls, body: bytes, api_version: str, kind: str) -> "Envelope":
        """Return the envelope of an object of this kind.

        Raises:
            ProtobufError: it is something else.
        """
        if not body.startswith(MAGIC):
            raise ProtobufError("the magic number is missing")
        parts = fields(body[len(MAGIC) :])
        named = fields(only_field(parts, _TYPE).content)
        named_type = (text(named, 1), text(named, 2))
        if named_type != (api_version, kind):
            raise ProtobufError(f"expected {kind} of {api_version}, found {named_type[1]!r} of {named_type[0]!r}")
        return cls(parts)

    @property
    def content(self) -> bytes:
        return only_field(self.parts, _RAW).content

    def holding(self, content: bytes) -> bytes:
        """Return the body with another object."""
        return MAGIC + message_of(replaced(self.parts, field(_RAW, content)))


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    number = 0
    for index, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        number |= (byte & (_MORE - 1)) << (7 * index)
        if byte < _MORE:
            return number, at + index + 1
    raise ProtobufError("a number does not end")


def _written(number: int) -> bytes:
    out = bytearray()
    while number >= _MORE:
        out.append(number & (_MORE - 1) | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)
