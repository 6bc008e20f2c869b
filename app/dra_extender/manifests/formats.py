"""Checks of the texts in a manifest by their format; a wrong value gets a sentence that says what was expected."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.manifests.problems import Problem, shown
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
_DNS_LABEL: Final = "a DNS label (lower case letters, digits and '-', at most 63)"
_LABEL_KEY: Final = "the key of a label, such as example.com/name"
_IDENTIFIER: Final = "letters, digits and '_', at most 32, the first no digit"


Check = Callable[[Any], Problem | None]


def check_text(text_format: Format, value: Any) -> Problem | None:
    return _CHECKS[text_format](value)


def check_parameters(value: Any) -> Problem | None:
    if not isinstance(value, dict):
        return Problem((), f"expected a mapping of fields, got {shown(value)}")
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
    return (
        Problem((), f"expected at most {MAX_PARAMETERS} bytes of JSON, got {size}") if size > MAX_PARAMETERS else None
    )


def _check_named(is_valid: Callable[[Any], bool], expected: str, value: Any) -> Problem | None:
    return None if is_valid(value) else Problem((), f"expected {expected}, got {shown(value)}")


def _check_plain(value: Any) -> Problem | None:
    return None if isinstance(value, str) else Problem((), f"expected a text, got {shown(value)}")


def _check_quantity(value: Any) -> Problem | None:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return Problem((), f"expected a quantity such as 40Gi or 500m, got {shown(value)}")
    try:
        parse_quantity(text)
    except QuantityError as problem:
        return Problem((), str(problem))
    return None


def _check_expression(value: Any) -> Problem | None:
    if not isinstance(value, str) or not value:
        return Problem((), "expected a CEL expression as text")
    try:
        compile_expression(value)
    except CelCompileError as problem:
        place = f"line {problem.line}, column {problem.column}"
        return Problem((), f"the expression does not compile: {problem.reason} ({place})", is_expression=True)
    return None


def _check_not_empty(value: Any) -> Problem | None:
    return Problem((), "expected a text that is not empty, got ''") if value == "" else _check_plain(value)


def _check_attribute_text(value: Any) -> Problem | None:
    if isinstance(value, str) and len(value.encode(errors="replace")) > MAX_BYTES:
        return Problem((), f"expected at most {MAX_BYTES} bytes, got {shown(value)}")
    return _check_plain(value)


def _check_attribute_version(value: Any) -> Problem | None:
    if isinstance(value, str) and not is_semantic_version(value):
        return Problem((), f"expected a version such as 1.2.3 (semver.org), got {shown(value)}")
    return _check_attribute_text(value)


def _check_time(value: Any) -> Problem | None:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return Problem((), f"expected a time such as 2026-01-02T15:04:05Z, got {shown(value)}")
    return _check_plain(value)


def _check_extended_resource(value: Any) -> Problem | None:
    if isinstance(value, str) and not is_extended_resource(value):
        return Problem((), f"expected the name of an extended resource, such as example.com/gpu, got {shown(value)}")
    return _check_plain(value)


_CHECKS: Final[Mapping[Format, Check]] = {
    Format.DNS_LABEL: partial(_check_named, is_label, _DNS_LABEL),
    Format.COUNTER_SET: partial(_check_named, is_label, _DNS_LABEL),
    Format.SUBDOMAIN: partial(_check_named, is_subdomain, "a DNS subdomain (lower case letters, digits, '-' and '.')"),
    Format.DRIVER: partial(_check_named, is_driver_name, "a DNS subdomain of at most 63 characters"),
    Format.POOL: partial(_check_named, is_pool_name, "DNS subdomains joined by '/'"),
    Format.LABEL_KEY: partial(_check_named, is_label_key, _LABEL_KEY),
    Format.TOLERATION_KEY: partial(_check_named, lambda text: text == "" or is_label_key(text), _LABEL_KEY),
    Format.LABEL_VALUE: partial(
        _check_named, is_label_value, "the value of a label (letters, digits, '-', '_' and '.', at most 63)"
    ),
    Format.QUALIFIED_NAME: partial(
        _check_named, is_qualified_name, f"a name ({_IDENTIFIER}), or a driver's domain, '/' and such a name"
    ),
    Format.FULLY_QUALIFIED_NAME: partial(
        _check_named, is_fully_qualified_name, f"a domain, '/' and a name ({_IDENTIFIER}), such as example.com/model"
    ),
    Format.QUANTITY: _check_quantity,
    Format.EXPRESSION: _check_expression,
    Format.UNCOMPILED_EXPRESSION: _check_not_empty,
    Format.ATTRIBUTE_TEXT: _check_attribute_text,
    Format.ATTRIBUTE_VERSION: _check_attribute_version,
    Format.TIME: _check_time,
    Format.EXTENDED_RESOURCE: _check_extended_resource,
    **dict.fromkeys(
        (
            Format.NAME,
            Format.WORD,
            Format.SENTENCE,
            Format.RESOURCE_VERSION,
            Format.RESOURCE,
            Format.REQUEST,
            Format.CAPACITY,
            Format.SUPPLIED_FIELD,
            Format.VERSION,
            Format.ANNOTATION,
            Format.DIGEST,
            Format.PLAIN,
        ),
        _check_plain,
    ),
}
