"""The Kubernetes semver library, version 1."""

from typing import Final

from dra_extender.cel.cost import first_traversed
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import ANY, TEXT, NativeFunction
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import BOOL, INT, SEMVER, STRING
from dra_extender.cel.values.integers import MAX_INT
from dra_extender.cel.values.semver import LONGEST_VERSION, Semver, SemverError, parse_lenient, parse_semver


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


def _text_work(text: str, *_: bool) -> int:
    return _READ_WORK + 12 * min(len(text), LONGEST_VERSION) + (len(text) >> 3)


def _order_work(one: Semver, other: Semver) -> int:
    return 3 * min(len(one.text), len(other.text))


def _twice(one: Semver, other: Semver) -> int:
    return 6 * min(len(one.text), len(other.text))


def _greater(one: Semver, other: Semver) -> bool:
    return one.key > other.key


def _less(one: Semver, other: Semver) -> bool:
    return one.key < other.key


def _compared(one: Semver, other: Semver) -> int:
    return (one.key > other.key) - (one.key < other.key)


_READ_WORK: Final = 120
READ: Final = NativeFunction("semver", (TEXT, ANY), _semver, _text_work)
ASK: Final = NativeFunction("isSemver", (TEXT, ANY), _is_semver, _text_work)
GREATER: Final = NativeFunction("isGreaterThan of versions", (SEMVER.name, SEMVER.name), _greater, _order_work)
LESS: Final = NativeFunction("isLessThan of versions", (SEMVER.name, SEMVER.name), _less, _order_work)
COMPARE: Final = NativeFunction("compareTo of versions", (SEMVER.name, SEMVER.name), _compared, _twice)

_PAIR: Final = (SEMVER, SEMVER)
_LENIENT: Final = (STRING, BOOL)

FUNCTIONS: Final = (
    function("semver", overload((STRING,), SEMVER, READ), overload(_LENIENT, SEMVER, READ), extra=first_traversed),
    function("isSemver", overload((STRING,), BOOL, ASK), overload(_LENIENT, BOOL, ASK), extra=first_traversed),
    function("isGreaterThan", method(_PAIR, BOOL, GREATER)),
    function("isLessThan", method(_PAIR, BOOL, LESS)),
    function("compareTo", method(_PAIR, INT, COMPARE)),
    function("major", method((SEMVER,), INT, lambda version: _wrapped(version.major))),
    function("minor", method((SEMVER,), INT, lambda version: _wrapped(version.minor))),
    function("patch", method((SEMVER,), INT, lambda version: _wrapped(version.patch))),
)
