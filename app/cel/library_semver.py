"""The Kubernetes semver library, version 1."""

from typing import Final

from app.cel.cost import first_traversed
from app.cel.declarations import function, method, overload, weighed
from app.cel.errors import CelRuntimeError
from app.cel.semver import Semver, SemverError, parse_lenient, parse_semver
from app.cel.types import BOOL, INT, SEMVER, STRING
from app.cel.values import MAX_INT


def _semver(text: str, normalise: bool = False) -> Semver:
    try:
        return parse_lenient(text) if normalise else parse_semver(text)
    except SemverError as error:
        raise CelRuntimeError(str(error)) from None


def _is_semver(text: str, normalise: bool = False) -> bool:
    try:
        _semver(text, normalise)
    except CelRuntimeError:
        return False
    return True


def _wrapped(number: int) -> int:
    """Versions hold unsigned numbers that CEL sees as signed ones."""
    return number if number <= MAX_INT else number - 2**64


_PAIR: Final = (SEMVER, SEMVER)
_LENIENT: Final = (STRING, BOOL)

FUNCTIONS: Final = (
    weighed(
        120,
        function(
            "semver",
            overload((STRING,), SEMVER, _semver),
            overload(_LENIENT, SEMVER, _semver),
            extra=first_traversed,
        ),
    ),
    weighed(
        120,
        function(
            "isSemver",
            overload((STRING,), BOOL, _is_semver),
            overload(_LENIENT, BOOL, _is_semver),
            extra=first_traversed,
        ),
    ),
    function("isGreaterThan", method(_PAIR, BOOL, lambda one, other: one.key > other.key)),
    function("isLessThan", method(_PAIR, BOOL, lambda one, other: one.key < other.key)),
    function("compareTo", method(_PAIR, INT, lambda one, other: (one.key > other.key) - (one.key < other.key))),
    function("major", method((SEMVER,), INT, lambda version: _wrapped(version.major))),
    function("minor", method((SEMVER,), INT, lambda version: _wrapped(version.minor))),
    function("patch", method((SEMVER,), INT, lambda version: _wrapped(version.patch))),
)
