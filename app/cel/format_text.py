"""The `format` function of the strings library: %s, %d, %f, %e, %b, %o, %x, %X and %%."""

import math
import re
from collections.abc import Callable
from typing import Any, Final

from app.cel.cost import Frame
from app.cel.errors import CelRuntimeError
from app.cel.library_core import double_text
from app.cel.semver import Semver
from app.cel.values import LISTS, MAPS, TypeValue, Uint, from_map_key, type_name

_CLAUSE: Final = re.compile(r"%(%|(?:\.([0-9]{1,4}))?([a-zA-Z])|)")
_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000


def format_text(frame: Frame, template: str, arguments: list[Any]) -> str:
    """Fill the clauses of a template with the arguments, in order.

    Raises:
        CelRuntimeError: A clause is unknown, or has no argument or one that it cannot show.
        CelCostError: The result would be too long.
    """
    parts: list[str] = []
    end = used = length = 0
    for found in _CLAUSE.finditer(template):
        parts.append(template[end : found.start()])
        end = found.end()
        if found[1] == "%":
            parts.append("%")
        else:
            if used >= len(arguments):
                raise CelRuntimeError(f"index {used} out of range: the format string needs more arguments")
            parts.append(_clause(frame, found[3] or "", found[2], arguments[used]))
            used += 1
        length += len(parts[-2]) + len(parts[-1])
        frame.build_text(length)
    parts.append(template[end:])
    return "".join(parts)


def _clause(frame: Frame, verb: str, precision: str | None, value: Any) -> str:
    show = _VERBS.get(verb)
    if verb in {"f", "e"}:
        places = _DEFAULT_PRECISION if precision is None else int(precision)
        if places > _MAX_PRECISION:
            raise CelRuntimeError(f"the precision {places} of a format clause is above {_MAX_PRECISION}")
        return _floating(value, verb, places)
    if show is None or precision is not None:
        raise CelRuntimeError(f"could not parse formatting clause: unrecognized formatting clause {verb!r}")
    return show(frame, value)


def _floating(value: Any, verb: str, places: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(verb, value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return f"{value:.{places}{verb}}"


def _integer(value: Any, verb: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(verb, value)
    return int(value)


def _decimal(_: Frame, value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return str(_integer(value, "d"))


def _binary(_: Frame, value: Any) -> str:
    return f"{int(value) if isinstance(value, bool) else _integer(value, 'b'):b}"


def _hexadecimal(_: Frame, value: Any) -> str:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass").hex()
    if isinstance(value, bytes):
        return value.hex()
    return f"{_integer(value, 'x'):x}"


def _shown(frame: Frame, value: Any) -> str:
    """Show any value; nested values are charged, because one value can be in many places."""
    frame.spend(1)
    kind = type(value)
    if kind in _SCALARS:
        text = _SCALARS[kind](value)
        frame.build_text(len(text))
        return text
    if kind in LISTS:
        return f"[{', '.join(_shown(frame, item) for item in value)}]"
    if kind in MAPS:
        shown = sorted((_shown(frame, from_map_key(key)), _shown(frame, item)) for key, item in value.items())
        return f"{{{', '.join(f'{key}: {item}' for key, item in shown)}}}"
    raise _mismatch("s", value)


_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    str: str,
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    bytes: lambda value: value.decode(errors="replace"),
    float: double_text,
    int: str,
    Uint: lambda value: str(int(value)),
    TypeValue: lambda value: value.name,
}


def _mismatch(verb: str, value: Any) -> CelRuntimeError:
    kind = "semver" if isinstance(value, Semver) else type_name(value)
    return CelRuntimeError(f"error during formatting: %{verb} cannot show a value of type {kind}")


_VERBS: Final[dict[str, Callable[[Frame, Any], str]]] = {
    "s": _shown,
    "d": _decimal,
    "b": _binary,
    "o": lambda _, value: f"{_integer(value, 'o'):o}",
    "x": _hexadecimal,
    "X": lambda frame, value: _hexadecimal(frame, value).upper(),
}
