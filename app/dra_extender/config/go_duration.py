"""Durations as Go writes and reads them: `5s`, `11m0s`, `1h30m`, `1.5s`, `300ms`."""

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_go_duration(text: str) -> float:
    """Seconds.  Raises ValueError: it is no duration."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    seconds, position = 0.0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not rest or position < len(rest):
        raise ValueError(f"expected a duration such as 5s or 11m0s, got {text!r}")
    return sign * seconds
