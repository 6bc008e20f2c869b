import re
from typing import Any, Final, Generic, TypeVar

import msgspec

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
        self._keys = {each.encode_name.lower(): each.encode_name for each in msgspec.structs.fields(shape)}
        self._attributes = {each.encode_name: each.name for each in msgspec.structs.fields(shape)}
        self._needed = needed

    def read(self, body: bytes) -> T:
        """The request.

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
            given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            renamed: dict[str, Any] = {self._keys.get(key.lower(), key): value for key, value in given.items()}
            return self._decoder.decode(msgspec.json.encode(renamed))
        except UNREADABLE as problem:
            raise MalformedRequestError(explain(self._verb, first or problem)) from problem


def explain(verb: str, problem: Exception, field: str = "") -> str:
    """One of `UNREADABLE` as a sentence; `field` is where in the request the unreadable part is."""
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
    def plain(found: re.Match[str]) -> str:
        return " or ".join(_TYPES.get(part, part) for part in found[1].split(" | "))

    return re.sub(r"`([^`]*)`", plain, text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
