"""Decodes requests within limits; what can be counted without decoding is counted first, at next to no cost."""

import re
from collections.abc import Sized
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"(?P<text>.*?)(?: - at `(?:key in )?\$\.?(?P<place>.*)`)?", re.DOTALL)
_TYPES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_UNFOLDED: Final = 50_000
NULL: Final = msgspec.Raw(b"null")
"""What a field holds that is null or missing."""
NODES: Final = 65_536
"""Nodes in one list; Kubernetes is tested with 5,000."""
WHOLE_NODES: Final = 10_000
"""Whole nodes in one list."""
CANDIDATES: Final = 16_384
"""Nodes in one proposal of preempt; kube-scheduler proposes a tenth of all nodes, and at least 100."""
VICTIMS: Final = 4_096
"""Victims on one node."""
MEMBERS: Final = 100_000
"""Members of all objects in a proposal of preempt: 500 candidates with 110 victims each have 56,500."""
ITEMS: Final = 400_000
"""Commas in a list of whole nodes: decoding so many takes some 50 ms."""

Name = Annotated[str, Meta(max_length=253)]
Namespace = Annotated[str, Meta(max_length=63)]
Uid = Annotated[str, Meta(max_length=128)]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for input that it cannot read."""


class MalformedRequestError(ValueError):
    """A request cannot be read; the message names verb, field and what was expected."""


class RequestReader(Generic[T]):
    """Decodes the requests of one verb: at full speed with the keys as Go writes them, else with any capitalisation."""

    def __init__(self, verb: str, shape: type[T], *, needed: tuple[str, ...]) -> None:
        """`needed`: at least one of these keys must be present and not null."""
        self._verb = verb
        self._decoder = msgspec.json.Decoder(shape)
        self._shape = shape
        self._keys = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(shape)}
        self._attributes = {field.encode_name: field.name for field in msgspec.structs.fields(shape)}
        self._needed = needed

    def read(self, body: bytes) -> T:
        """Decode a request.

        Raises:
            MalformedRequestError: not JSON, or a field is missing or of the wrong type.
        """
        try:
            request = self._decoder.decode(body)
        except UNREADABLE as problem:
            request = self._read_in_any_case(body, problem)
        if self._lacks_all(request):
            request = self._read_in_any_case(body, None)
            if self._lacks_all(request):
                raise MalformedRequestError(
                    f"{self._verb}: {' or '.join(self._needed)}: expected one of them, both are missing or null"
                )
        return request

    def _lacks_all(self, request: T) -> bool:
        return bool(self._needed) and not any(getattr(request, self._attributes[key]) != NULL for key in self._needed)

    def _read_in_any_case(self, body: bytes, first: Exception | None) -> T:
        if body.count(b":") > _UNFOLDED:
            problem = first or msgspec.ValidationError(
                f"expected keys as Go spells them, or at most {_UNFOLDED} members"
            )
            raise MalformedRequestError(explain(self._verb, problem))
        try:
            members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            renamed: dict[str, Any] = {self._keys.get(key.lower(), key): value for key, value in members.items()}
            return self._decoder.decode(msgspec.json.encode(renamed))
        except UNREADABLE as problem:
            raise MalformedRequestError(explain(self._verb, first or problem)) from problem


def explain(verb: str, problem: Exception, field: str = "") -> str:
    """Describe one of `UNREADABLE` in a sentence; `field` is where in the request the unreadable part is."""
    if isinstance(problem, RecursionError):
        return f"{verb}: {field or 'body'}: expected JSON of sensible depth"
    if isinstance(problem, UnicodeDecodeError):
        return f"{verb}: {field or 'body'}: expected UTF-8 (byte {problem.start})"
    matched = _PLACE.fullmatch(str(problem))
    text, place = (matched["text"], matched["place"]) if matched else (str(problem), None)
    if not isinstance(problem, msgspec.ValidationError):
        return f"{verb}: {field or 'body'}: expected JSON: {_lower(text)}"
    where = ".".join(part for part in (field, place) if part).replace(".[", "[")
    return f"{verb}: {where or 'body'}: {_lower(_plain_types(text))}"


def _plain_types(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return " or ".join(_TYPES.get(part, part) for part in match[1].split(" | "))

    return re.sub(r"`([^`]*)`", plain, text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def check_names(verb: str, raw: bytes) -> None:
    """Raise MalformedRequestError if the JSON list `NodeNames` has too many items."""
    # The shortest name takes four bytes, so that usual lists need not be counted.
    if len(raw) > 4 * NODES and raw.count(b",") >= NODES:
        raise MalformedRequestError(f"{verb}: NodeNames: expected at most {NODES} names")


def check_length(verb: str, field: str, items: Sized, limit: int, what: str) -> None:
    """Raise MalformedRequestError if there are more than `limit` items."""
    if len(items) > limit:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {limit} {what}, got {len(items)}")


def check_members(verb: str, field: str, raw: bytes) -> None:
    """Raise MalformedRequestError if the objects in `raw` have too many members in all."""
    if raw.count(b":") > MEMBERS:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {MEMBERS} members of objects")


def check_items(verb: str, field: str, raw: bytes) -> None:
    """Raise MalformedRequestError if lists and objects in `raw` have too many items in all."""
    if raw.count(b",") > ITEMS:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {ITEMS} items of lists and objects")
