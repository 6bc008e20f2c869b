"""Findings of the lint."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """ERROR: an API server refuses the expression, or it fails on devices. WARNING: it may not mean what its author thinks."""

    ERROR = "error"
    WARNING = "warning"


class LintCode(StrEnum):
    """What is wrong with an expression; the text names a finding in output and in expectations."""

    ALWAYS_FALSE = "always-false"
    ALWAYS_TRUE = "always-true"
    CAPACITY_COMPARISON = "capacity-comparison"
    COMPILE_LIMIT = "compile-limit"
    CONSTANT_FAILURE = "constant-failure"
    COST_LIMIT = "cost-limit"
    DOES_NOT_COMPILE = "does-not-compile"
    LENGTH_LIMIT = "length-limit"
    QUALIFIED_KEY = "qualified-key"
    QUANTITY_OF_ATTRIBUTE = "quantity-of-attribute"
    UNGUARDED = "unguarded-attribute"
    UNKNOWN_FIELD = "unknown-field"
    UNQUALIFIED_NAME = "unqualified-name"
    VALUE_SUFFIX = "value-suffix"
    VERSION_COMPARISON = "version-comparison"


class LintFinding(msgspec.Struct, frozen=True):
    """Something wrong at `offset` of the expression; `suggestion` is what to write instead, or empty."""

    code: StrEnum
    severity: Severity
    offset: int
    message: str
    suggestion: str = ""


def error(code: StrEnum, offset: int, message: str, suggestion: str = "") -> LintFinding:
    """Return a finding that keeps the expression from working."""
    return LintFinding(code, Severity.ERROR, offset, message, suggestion)


def warning(code: StrEnum, offset: int, message: str, suggestion: str = "") -> LintFinding:
    """Return a finding about something doubtful."""
    return LintFinding(code, Severity.WARNING, offset, message, suggestion)
