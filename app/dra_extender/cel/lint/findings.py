"""Findings of the lint."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """ERROR: an API server refuses the expression, or it fails on devices. WARNING: it may not mean what its author thinks."""

    ERROR = "error"
    WARNING = "warning"


class LintCode(StrEnum):
    """What is wrong; the text names a finding in output and in expectations."""

    ALWAYS_FALSE = "always-false"
    ALWAYS_TRUE = "always-true"
    ASYMMETRIC = "asymmetric-rule"
    CAPACITY_COMPARISON = "capacity-comparison"
    COMPILE_LIMIT = "compile-limit"
    CONSTANT_FAILURE = "constant-failure"
    COST_LIMIT = "cost-limit"
    DOES_NOT_COMPILE = "does-not-compile"
    EVERY_DEVICE = "every-device"
    GROUPS = "groups"
    IMMUTABLE = "immutable"
    INVALID_FIELD = "invalid-field"
    LENGTH_LIMIT = "length-limit"
    NEVER_FITS = "never-fits"
    NO_EFFECT = "no-effect"
    NOTHING_KNOWN = "nothing-known"
    POLICY = "policy"
    POOL = "pool"
    QUALIFIED_KEY = "qualified-key"
    QUANTITY_OF_ATTRIBUTE = "quantity-of-attribute"
    SAME_ALTERNATIVE = "same-alternative"
    UNGUARDED = "unguarded-attribute"
    UNKNOWN_FIELD = "unknown-field"
    UNKNOWN_NAME = "unknown-name"
    UNQUALIFIED_NAME = "unqualified-name"
    VALUE_SUFFIX = "value-suffix"
    VERSION_COMPARISON = "version-comparison"


class LintFinding(msgspec.Struct, frozen=True):
    """Something wrong at `offset` of the expression; `suggestion` is what to write instead, or empty."""

    code: LintCode
    severity: Severity
    offset: int
    message: str
    suggestion: str = ""


def error(code: LintCode, offset: int, message: str, suggestion: str = "") -> LintFinding:
    """Return a finding that keeps the expression from working."""
    return LintFinding(code, Severity.ERROR, offset, message, suggestion)


def warning(code: LintCode, offset: int, message: str, suggestion: str = "") -> LintFinding:
    """Return a finding about something doubtful."""
    return LintFinding(code, Severity.WARNING, offset, message, suggestion)
