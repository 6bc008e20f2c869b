"""JSON that the decoder does not get through, although the API server stores it.

Opaque parameters, and what the server keeps beside them, are stored as any JSON: containers may nest some thousands deep, and an
escape may name half a surrogate pair.  The decoder recurses into what it only skips, and refuses such an escape even there.  So
where it fails, these parts are cut out of the text, the rest is decoded, and `Raw` values get their parts back byte by byte.
"""

import re
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

SHALLOW: Final = 64
"""A container at this depth is cut out if something in it lies as deep again; no field that is read lies so deep."""

# Texts, and containers without either, are passed over at C speed; a match ends with a run of brackets of one direction.
# It never fails, so that nothing is looked at again from the next byte.
_BRACKETS: Final = re.compile(
    rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{][^"\[\]{}]*+[\]}])*+(?:([\[{]++)|([\]}]++)|\Z)',
    re.DOTALL,
)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*+)"
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)


def decode_any(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """What the decoder makes of `data`, however deep what it skips or keeps as `Raw` nests.  The time is linear in the size.

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
    whole: T = cuts.restored(decoder.decode(cuts.text))
    return whole


class _Cuts:
    """A text with parts cut out; a mark that occurs nowhere else in it stands in the place of each."""

    def __init__(self, data: bytes) -> None:
        self._mark = blake2b(data, digest_size=8).hexdigest().encode()
        self.parts: list[bytes] = []
        self.text = self._without_halves(self._without_depths(data))

    def restored(self, value: Any) -> Any:
        """The decoded value, its `Raw` parts as they were before the cuts."""
        if isinstance(value, msgspec.Raw):
            return self._whole(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.restored, value))
        if isinstance(value, dict):
            return {name: self.restored(each) for name, each in value.items()}
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            changed = {name: new for name, old in fields.items() if (new := self.restored(old)) is not old}
            return msgspec.structs.replace(value, **changed) if changed else value
        return value

    def _whole(self, value: msgspec.Raw) -> msgspec.Raw:
        text = bytes(value)
        if self._mark not in text:
            return value
        return msgspec.Raw(re.sub(rb'"?<%b:(\d+)>"?' % self._mark, self._part, text))

    def _part(self, found: "re.Match[bytes]") -> bytes:
        part = self.parts[int(found[1])]
        # A mark in the place of a container has quotes of its own; one within a text leaves the quotes beside it alone.
        return part if part[:1] in b"[{" else found[0].replace(b"<%b:%b>" % (self._mark, found[1]), part)

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
        return _SURROGATES.sub(lambda found: found[0] if found[2] is None else found[1] + self._cut(found[2]), data)


def _deep_containers(data: bytes) -> list[tuple[int, int]]:
    """Where the containers at the depth SHALLOW begin and end in which something lies at twice that depth or deeper."""
    found = []
    depth = deepest = start = 0
    for run in _BRACKETS.finditer(data):
        if run[1] is not None:
            count = len(run[1])
            if depth < SHALLOW <= depth + count:
                start, deepest = run.start(1) + SHALLOW - depth - 1, 0
            depth += count
            deepest = max(deepest, depth)
        elif run[2] is not None:
            count = len(run[2])
            if depth >= SHALLOW > depth - count and deepest >= 2 * SHALLOW:
                found.append((start, run.start(2) + depth - SHALLOW + 1))
            depth -= count
    return found
