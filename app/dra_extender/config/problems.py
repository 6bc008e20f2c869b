"""What is wrong with values that an administrator wrote: the error, and pydantic's findings as sentences."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import ErrorDetails

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_START: Final = re.compile("^(?:Input|Value|List|Tuple|String) should (?:be|have) ")


class InvalidSettingsError(ValueError):
    """A setting cannot be used; the message names each such setting, its source, and what was expected."""


def sentence_of(error: ErrorDetails, expected: Mapping[str, str] = _NOTHING, shown: Callable[[Any], str] = repr) -> str:
    """What pydantic found: `expected ..., got ...`, or the sentence of a validator of ours.

    Args:
        error: One error of a ValidationError.
        expected: What to say was expected, by the type of the error, where pydantic's own text is not for administrators.
        shown: How a message quotes the value.
    """
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    wanted = expected.get(error["type"]) or _START.sub("", error["msg"])
    return f"expected {wanted}, got {shown(error['input'])}"
