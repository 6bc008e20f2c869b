"""The `format` function of the strings library: %s, %d, %f, %e, %b, %o, %x, %X and %%."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.library.conversions import decode
from dra_extender.cel.native.strings import ENCODE, HEX, UPPER, quote_in_pieces
from dra_extender.cel.types.types import UNSPECIFIC, Type
from dra_extender.cel.values.go_format import format_double
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.times import Duration, Timestamp, seconds_text, timestamp_text
from dra_extender.cel.values.values import LISTS, MAPS, TypeValue, from_map_key, type_name

_CLAUSE: Final = re.compile(r"%(%|(?:\.([0-9]{1,4}))?([a-zA-Z])|)")
_KEYS: Final = frozenset({str, bool, int, Uint})
_SUPERSCRIPT: Final = str.maketrans(
    "0123456789-",
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b",
)
_SPECIAL_DOUBLES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ZERO: Final = "0.000000\u00d710\u2070\u2070"
"""Zero with %e, whatever the precision."""
_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000
_CLAUSE_WORK: Final = 80
_PERCENT_WORK: Final = 20
_VALUE_WORK: Final = 40
_DIGITS_WORK: Final = 500
"""The work of writing a double with up to 300 digits before the point; each place behind it takes two units."""


def format_text(frame: EvaluationFrame, template: str, arguments: list[Any]) -> str:
    """Fill the clauses of a template with the arguments, in order."""
    parts: list[str] = []
    end = used = length = 0
    plain = template.isascii()
    frame.spend(len(template) >> 3)
    for clause in _CLAUSE.finditer(template):
        frame.spend(_PERCENT_WORK)
        parts.append(template[end : clause.start()])
        end = clause.end()
        if clause[1] == "%":
            parts.append("%")
        else:
            if used >= len(arguments):
                raise CelRuntimeError(f"index {used} out of range: the format string needs more arguments")
            frame.spend(_CLAUSE_WORK)
            parts.append(_clause(frame, clause[3] or "", clause[2], arguments[used]))
            used += 1
        length += len(parts[-2]) + len(parts[-1])
        plain = plain and parts[-1].isascii()
        frame.require_text(length, plain=plain)
    parts.append(template[end:])
    frame.build_text(length + len(parts[-1]), plain=plain)
    return "".join(parts)


_INTEGERS: Final = frozenset({"int", "uint"})
_DOUBLES: Final = frozenset({"double", "string"})
_NUMBERS_AND_TEXTS: Final = _INTEGERS | {"string", "bytes"}
_SHOWABLE: Final[Mapping[str, frozenset[str]]] = {
    "s": _NUMBERS_AND_TEXTS | {"bool", "double", "list", "map", "null_type", "type", "duration", "timestamp"},
    "d": _INTEGERS,
    "f": _DOUBLES,
    "e": _DOUBLES,
    "b": _INTEGERS | {"bool"},
    "o": _INTEGERS,
    "x": _NUMBERS_AND_TEXTS,
    "X": _NUMBERS_AND_TEXTS,
}
"""The names of the types that each clause can show."""


def check_format(template: str, arguments: Sequence[Sequence[Type]]) -> None:
    """Check a constant template against the types of its arguments; each argument lists its type and those in its literal."""
    clauses = [clause for clause in _CLAUSE.finditer(template) if clause[1] != "%"]
    if len(clauses) != len(arguments):
        raise CelRuntimeError(f"the format string needs {len(clauses)} arguments, not {len(arguments)}")
    for clause, types in zip(clauses, arguments, strict=True):
        verb = clause[3] or ""
        if verb not in _SHOWABLE:
            raise CelRuntimeError(f"could not parse formatting clause: unrecognized formatting clause {verb!r}")
        for kind in types if verb == "s" else types[:1]:
            if kind.kind not in UNSPECIFIC and kind.name not in _SHOWABLE[verb]:
                raise CelRuntimeError(f"error during formatting: %{verb} cannot show a value of type {kind}")


def _clause(frame: EvaluationFrame, verb: str, precision: str | None, value: Any) -> str:
    show = _VERBS.get(verb)
    if verb in {"f", "e"}:
        places = _DEFAULT_PRECISION if precision is None else int(precision)
        if places > _MAX_PRECISION:
            raise CelRuntimeError(f"the precision {places} of a format clause is above {_MAX_PRECISION}")
        frame.spend(_DIGITS_WORK + 2 * places)
        return _floating(value, verb, places)
    if show is None:
        raise CelRuntimeError(f"could not parse formatting clause: unrecognized formatting clause {verb!r}")
    return show(frame, value)


def _floating(value: Any, verb: str, places: int) -> str:
    """Write a double as upstream's localised printer does: with groups of thousands and powers of ten in superscript.

    With %e that printer writes six places, whatever the precision.
    """
    value = _SPECIAL_DOUBLES.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, float):
        raise _mismatch(verb, value)
    if not math.isfinite(value):
        word = "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
        return word if verb == "f" else word.rjust(places)
    if verb == "f":
        return f"{value or 0.0:,.{places}f}"
    if not value:
        return _ZERO
    mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
    return f"{mantissa}\u00d710{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _integer(value: Any, verb: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(verb, value)
    return int(value)


def _hexadecimal(frame: EvaluationFrame, value: Any) -> str:
    if isinstance(value, str | bytes):
        raw = ENCODE.call(frame, value) if isinstance(value, str) else value
        frame.build_text(2 * len(raw))
        return str(HEX.call(frame, raw))
    return f"{_integer(value, 'x'):x}"


def _shown(frame: EvaluationFrame, value: Any) -> str:
    """Write any value; nested values are charged each time, because one value can occur many times."""
    frame.spend(_VALUE_WORK)
    kind = type(value)
    if kind is str:
        frame.build_text(len(value), plain=value.isascii())
        return str(value)
    if kind is bytes:
        return decode(frame, value)
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if kind in LISTS:
        return _listed(frame, "[", [_nested(frame, item) for item in value], "]")
    if kind in MAPS:
        shown = [(_key(frame, from_map_key(key)), _nested(frame, item)) for key, item in value.items()]
        length = sum(len(key) for key, _ in shown)
        frame.begin_call("a sort of a map's keys", (8 * len(shown) + (length >> 5)) * len(shown).bit_length())
        return _listed(frame, "{", [f"{key}:{item}" for key, item in sorted(shown)], "}")
    raise _mismatch("s", value)


def _listed(frame: EvaluationFrame, opening: str, parts: list[str], closing: str) -> str:
    frame.spend(_PERCENT_WORK + len(parts))
    plain = all(map(str.isascii, parts))
    frame.build_text(sum(map(len, parts)) + 2 * len(parts) + 2, plain=plain)
    return f"{opening}{', '.join(parts)}{closing}"


def _key(frame: EvaluationFrame, key: Any) -> str:
    if type(key) in _KEYS:
        return _nested(frame, key)
    raise _mismatch("s", key)


def _nested(frame: EvaluationFrame, value: Any) -> str:
    """Write a value inside of a list or map: texts in quotes, doubles with six places."""
    if isinstance(value, str):
        return _quoted(frame, value)
    if isinstance(value, bytes):
        return f"b{_quoted(frame, value)}"
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else f'"{_shown(frame, value)}"'
    if isinstance(value, Timestamp):
        return f'timestamp("{_shown(frame, value)}")'
    if isinstance(value, Duration):
        return f'duration("{_shown(frame, value)}")'
    return _shown(frame, value)


def _quoted(frame: EvaluationFrame, value: str | bytes) -> str:
    text = _shown(frame, value)
    frame.build_text(2 * len(text), plain=text.isascii())
    return quote_in_pieces(frame, text)


_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    float: format_double,
    int: str,
    Uint: lambda value: str(int(value)),
    TypeValue: lambda value: value.name,
    Duration: lambda value: seconds_text(value.nanos),
    Timestamp: timestamp_text,
}


def _mismatch(verb: str, value: Any) -> CelRuntimeError:
    kind = "semver" if isinstance(value, Semver) else type_name(value)
    return CelRuntimeError(f"error during formatting: %{verb} cannot show a value of type {kind}")


_VERBS: Final[dict[str, Callable[[EvaluationFrame, Any], str]]] = {
    "s": _shown,
    "d": lambda _, value: str(_integer(value, "d")),
    "b": lambda _, value: f"{int(value) if isinstance(value, bool) else _integer(value, 'b'):b}",
    "o": lambda _, value: f"{_integer(value, 'o'):o}",
    "x": _hexadecimal,
    "X": lambda frame, value: str(UPPER.call(frame, _hexadecimal(frame, value))),
}
