from typing import Any, TypeVar

import msgspec

from dra_extender.model.api_json import decode_any

T = TypeVar("T")


class ModelError(ValueError):
    """An object cannot be read; the message names kind, field and what was expected."""


class Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Base of the values that mirror API JSON one to one (camelCase keys, absent fields left out when written)."""


def decode(kind: str, decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Read one API object of `kind`.

    Raises:
        ModelError: not JSON, or a field has the wrong type; the message names kind and field.
    """
    try:
        return decode_any(decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ModelError(f"{kind}: {problem}") from problem


def plain(value: Any) -> Any:
    """The JSON-compatible form of a model value (dicts, lists, strings, numbers)."""
    return msgspec.to_builtins(value)
