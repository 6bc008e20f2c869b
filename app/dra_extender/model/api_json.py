"""JSON of the API: read into values, however it nests, and passed on in a spelling that API servers store.

Opaque parameters, and what the server keeps beside them, are stored as any JSON: containers may nest some thousands deep, and an
escape may name half a surrogate pair.  The decoder recurses into what it only skips, and refuses such an escape even there.  So
where it fails, these parts are cut out of the text, the rest is decoded, and `Raw` values get their parts back byte by byte.

An API server spells `<`, `>`, `&`, U+2028 and U+2029 as escapes of six bytes in whatever it sends, but limits opaque parameters by
the bytes that are stored.  So what it has stored may be too long in the spelling in which it is read.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, ClassVar, Final, TypeVar

import msgspec

T = TypeVar("T")

SHALLOW: Final = 64
"""A container at this depth is cut out if something in it lies as deep again; no field that is read lies so deep."""

# Texts, and containers without either, are passed over at C speed; a match ends with a run of brackets of one direction.
# It never fails, so that nothing is looked at again from the next byte.
# Possessive groups take quadratic time in CPython before 3.11.5, which distributions still ship.
_BRACKETS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|([\[{]++)|([\]}]++)', re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)

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


class ModelError(ValueError):
    """An object cannot be read; the message names kind, field and what was expected."""


class Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Base of the values that mirror API JSON one to one (camelCase keys, absent fields left out when written).

    `unread` describes the fields that nothing decodes, by the name that JSON has.  `in_part`: the API has more fields than these.
    """

    unread: ClassVar[Mapping[str, Any]] = {}
    in_part: ClassVar[bool] = False


def decode(kind: str, decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Read one API object of `kind`.

    Raises:
        ModelError: not JSON, or a field has the wrong type; the message names kind and field.
    """
    try:
        return decode_any(decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ModelError(f"{kind}: {problem}") from problem


def reader(kind: str, shape: type[T]) -> Callable[[bytes], T]:
    """Return a function that reads an API object of `kind` from JSON, as `decode` does."""
    return partial(decode, kind, msgspec.json.Decoder(shape))


def from_json(kind: str, shape: type[T], raw: Any) -> T:
    """Do what `decode` does, from decoded JSON.

    Raises:
        ModelError: a field has the wrong type; the message names kind and field.
    """
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as problem:
        raise ModelError(f"{kind}: {problem}") from problem


def decode_any(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Return what the decoder makes of `data`, however deep what it skips or keeps as `Raw` nests.  The time is linear in the size.

    Raises:
        msgspec.DecodeError: not JSON, or a field has the wrong type.
        UnicodeDecodeError: a text that is read is not UTF-8.
        RecursionError: the caller's own stack is nearly used up.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        cuts = _Cuts(data)
        if not cuts.parts:
            raise
    value: T = cuts.restored(decoder.decode(cuts.text))
    return value


def decode_object(kind: str, data: bytes) -> dict[str, Any]:
    """Return an API object of `kind` as decoded JSON; a text stands in the place of what nests too deep to be read.

    Raises:
        ModelError: not a JSON object.
    """
    return decode(kind, _OBJECT, data)


def decode_shallow(kind: str, data: bytes) -> dict[str, Any]:
    """Return an API object to be copied and written again as decoded JSON; a text stands in the place of all that nests deep.

    Raises:
        ModelError: not a JSON object.
    """
    return decode(kind, _OBJECT, _Cuts(data).text)


_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class _Cuts:
    """A text with parts cut out; a mark that occurs nowhere else in it stands in the place of each."""

    def __init__(self, data: bytes) -> None:
        self._mark = blake2b(data, digest_size=8).hexdigest().encode()
        self.parts: list[bytes] = []
        self.text = self._without_halves(self._without_depths(data))

    def restored(self, value: Any) -> Any:
        """Return the decoded value, its `Raw` parts as they were before the cuts."""
        if isinstance(value, msgspec.Raw):
            text = bytes(value)
            if self._mark not in text:
                return value
            return msgspec.Raw(re.sub(rb'"?<%b:(\d+)>"?' % self._mark, self._part, text))
        if isinstance(value, list | tuple):
            return type(value)(map(self.restored, value))
        if isinstance(value, dict):
            return {name: self.restored(item) for name, item in value.items()}
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            changed = {name: new for name, old in fields.items() if (new := self.restored(old)) is not old}
            return msgspec.structs.replace(value, **changed) if changed else value
        return value

    def _part(self, mark: "re.Match[bytes]") -> bytes:
        part = self.parts[int(mark[1])]
        # A mark in the place of a container has quotes of its own; one within a text leaves the quotes beside it alone.
        return part if part[:1] in b"[{" else mark[0].replace(b"<%b:%b>" % (self._mark, mark[1]), part)

    def _cut(self, part: bytes) -> bytes:
        self.parts.append(part)
        return b"<%b:%d>" % (self._mark, len(self.parts) - 1)

    def _without_depths(self, data: bytes) -> bytes:
        pieces, end = [], 0
        for start, stop in _deep_containers(data):
            pieces += [data[end:start], b'"%b"' % self._cut(data[start:stop])]
            end = stop
        return b"".join(chain(pieces, (data[end:],))) if pieces else data

    def _without_halves(self, data: bytes) -> bytes:
        if not _SURROGATE.search(data):
            return data
        return _SURROGATES.sub(
            lambda surrogate: surrogate[0] if surrogate[2] is None else surrogate[1] + self._cut(surrogate[2]), data
        )


def _deep_containers(data: bytes) -> list[tuple[int, int]]:
    """Return where containers at the depth SHALLOW begin and end that contain something at twice that depth or deeper."""
    containers = []
    depth = deepest = start = 0
    for brackets in _BRACKETS.finditer(data):
        if brackets[1] is not None:
            count = len(brackets[1])
            if depth < SHALLOW <= depth + count:
                start, deepest = brackets.start(1) + SHALLOW - depth - 1, 0
            depth += count
            deepest = max(deepest, depth)
        elif brackets[2] is not None:
            count = len(brackets[2])
            if depth >= SHALLOW > depth - count and deepest >= 2 * SHALLOW:
                containers.append((start, brackets.start(2) + depth - SHALLOW + 1))
            depth -= count
    return containers


def as_stored(parameters: msgspec.Raw) -> msgspec.Raw:
    """Return JSON as it is spelled, or without the escapes of an API server where that would find it too long.

    What is spelled as API servers spell it goes through every JSON client unchanged, so that drivers that write a claim's status
    as JSON do not change an allocation that they cannot change.  What is spelled otherwise does not.
    """
    text = bytes(parameters)
    return parameters if len(text) <= MAX_PARAMETERS else msgspec.Raw(without_escapes(text))


def without_escapes(text: bytes) -> bytes:
    """Return the same JSON with those characters as they are; no longer than what an API server has stored."""
    if b"\\u" not in text:
        return text
    # A backslash before another stands for itself, and what follows the two is no escape.
    return _BACKSLASH.join(map(_plain, text.split(_BACKSLASH)))


def _plain(part: bytes) -> bytes:
    if b"\\u" in part:
        for escape, character in _ESCAPES.items():
            part = part.replace(escape, character)
    return part


def printable(line: str) -> str:
    """Return the line with JSON's escapes in the place of what a terminal would obey: tenants choose names and messages.

    A line of JSON means the same afterwards.
    """
    if line.isprintable():
        return line
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)


def number_of(count: int, noun: str) -> str:
    """Return for example `1 node`, `2 nodes`, `3 classes`."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


def listed(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names, comma-separated, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
