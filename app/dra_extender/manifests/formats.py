"""What a manifest may have in the place of a text, by its format; a wrong value gets a sentence that says what was expected."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, assert_never

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.manifests.problems import shown
from dra_extender.model.api_json import MAX_PARAMETERS
from dra_extender.model.fields import Format
from dra_extender.model.names import (
    is_driver_name,
    is_extended_resource,
    is_fully_qualified_name,
    is_label,
    is_label_key,
    is_label_value,
    is_pool_name,
    is_qualified_name,
    is_semantic_version,
    is_subdomain,
)

MAX_BYTES: Final = 64
"""The longest value of an attribute."""
_IDENTIFIER: Final = "letters, digits and '_', at most 32, the first no digit"


class Wrong(NamedTuple):
    """What is wrong with a value; `is_expression` marks a CEL expression that does not compile."""

    sentence: str
    is_expression: bool = False


Check = Callable[[Any], Wrong | None]


def check_text(text_format: Format, value: Any) -> Wrong | None:
    return _CHECKS[text_format](value)


def check_parameters(value: Any) -> Wrong | None:
    if not isinstance(value, dict):
        return Wrong(f"expected a mapping of fields, got {shown(value)}")
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
    return Wrong(f"expected at most {MAX_PARAMETERS} bytes of JSON, got {size}") if size > MAX_PARAMETERS else None


def _check_named(is_valid: Callable[[Any], bool], expected: str, value: Any) -> Wrong | None:
    return None if is_valid(value) else Wrong(f"expected {expected}, got {shown(value)}")


def _check_plain(value: Any) -> Wrong | None:
    return None if isinstance(value, str) else Wrong(f"expected a text, got {shown(value)}")


def _check_quantity(value: Any) -> Wrong | None:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return Wrong(f"expected a quantity such as 40Gi or 500m, got {shown(value)}")
    try:
        parse_quantity(text)
    except QuantityError as problem:
        return Wrong(str(problem))
    return None


def _check_expression(value: Any) -> Wrong | None:
    if not isinstance(value, str) or not value:
        return Wrong("expected a CEL expression as text")
    try:
        compile_expression(value)
    except CelCompileError as problem:
        place = f"line {problem.line}, column {problem.column}"
        return Wrong(f"the expression does not compile: {problem.reason} ({place})", is_expression=True)
    return None


def _check_not_empty(value: Any) -> Wrong | None:
    return Wrong("expected a text that is not empty, got ''") if value == "" else _check_plain(value)


def _check_attribute_text(value: Any) -> Wrong | None:
    if isinstance(value, str) and len(value.encode(errors="replace")) > MAX_BYTES:
        return Wrong(f"expected at most {MAX_BYTES} bytes, got {shown(value)}")
    return _check_plain(value)


def _check_attribute_version(value: Any) -> Wrong | None:
    if isinstance(value, str) and not is_semantic_version(value):
        return Wrong(f"expected a version such as 1.2.3 (semver.org), got {shown(value)}")
    return _check_attribute_text(value)


def _check_time(value: Any) -> Wrong | None:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return Wrong(f"expected a time such as 2026-01-02T15:04:05Z, got {shown(value)}")
    return _check_plain(value)


def _check_extended_resource(value: Any) -> Wrong | None:
    if isinstance(value, str) and not is_extended_resource(value):
        return Wrong(f"expected the name of an extended resource, such as example.com/gpu, got {shown(value)}")
    return _check_plain(value)


def _check_of(text_format: Format) -> Check:  # noqa: C901, PLR0911, PLR0912 - one case for each format
    match text_format:
        case Format.DNS_LABEL | Format.COUNTER_SET:
            return partial(_check_named, is_label, "a DNS label (lower case letters, digits and '-', at most 63)")
        case Format.SUBDOMAIN:
            return partial(_check_named, is_subdomain, "a DNS subdomain (lower case letters, digits, '-' and '.')")
        case Format.DRIVER:
            return partial(_check_named, is_driver_name, "a DNS subdomain of at most 63 characters")
        case Format.POOL:
            return partial(_check_named, is_pool_name, "DNS subdomains joined by '/'")
        case Format.LABEL_KEY:
            return partial(_check_named, is_label_key, "the key of a label, such as example.com/name")
        case Format.TOLERATION_KEY:
            expected = "the key of a label, such as example.com/name"
            return partial(_check_named, lambda text: text == "" or is_label_key(text), expected)
        case Format.LABEL_VALUE:
            expected = "the value of a label (letters, digits, '-', '_' and '.', at most 63)"
            return partial(_check_named, is_label_value, expected)
        case Format.QUALIFIED_NAME:
            expected = f"a name ({_IDENTIFIER}), or a driver's domain, '/' and such a name"
            return partial(_check_named, is_qualified_name, expected)
        case Format.FULLY_QUALIFIED_NAME:
            expected = f"a domain, '/' and a name ({_IDENTIFIER}), such as example.com/model"
            return partial(_check_named, is_fully_qualified_name, expected)
        case Format.QUANTITY:
            return _check_quantity
        case Format.EXPRESSION:
            return _check_expression
        case Format.UNCOMPILED_EXPRESSION:
            return _check_not_empty
        case Format.ATTRIBUTE_TEXT:
            return _check_attribute_text
        case Format.ATTRIBUTE_VERSION:
            return _check_attribute_version
        case Format.TIME:
            return _check_time
        case Format.EXTENDED_RESOURCE:
            return _check_extended_resource
        case (
            Format.NAME
            | Format.WORD
            | Format.SENTENCE
            | Format.RESOURCE_VERSION
            | Format.RESOURCE
            | Format.REQUEST
            | Format.CAPACITY
            | Format.SUPPLIED_FIELD
            | Format.VERSION
            | Format.ANNOTATION
            | Format.DIGEST
            | Format.PLAIN
        ):
            return _check_plain
        case _:
            assert_never(text_format)


_CHECKS: Final[Mapping[Format, Check]] = {text_format: _check_of(text_format) for text_format in Format}
